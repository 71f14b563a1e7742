"""The async face: `AsyncPalyra`, an embedded installation, and `AsyncRun`, the calls that share a budget in it.

Rules: an outcome for everything that can happen to a call; who can open a home is its operator, so grants given here
are the operator's. Not here: the face for code without an event loop (api_sync), the one for a daemon (client).
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack

from palyra.api_approvals import AsyncApprovals
from palyra.api_output import heard
from palyra.api_ready import ReadyList
from palyra.canon import Json
from palyra.config.load import find_home
from palyra.engine.listing import tools_for
from palyra.engine.output import OnOutput
from palyra.engine.runs import Run, start_run
from palyra.engine.trip import CallRequest
from palyra.errors import PalyraError, Reason, Rejected
from palyra.model.budget import UNLIMITED, Allowance
from palyra.model.call import Door, OperatorGrant, RequestContext, parse_principal, parse_ulid
from palyra.model.limits import Limits
from palyra.model.narrowing import parse_narrowing
from palyra.model.options import Fewer
from palyra.model.outcome import Outcome
from palyra.protocol.wire import tool_json
from palyra.values import dataclass
from palyra.wiring.embedded import Installation, open_installation
from palyra.wiring.grants import egress_word, tier_word
from palyra.wiring.places import resolve_workspace
from palyra.wiring.runs import RunDesk

if TYPE_CHECKING:
    from palyra.client.asynchronous import AsyncRemotePalyra

DEFAULT_PRINCIPAL = "agent:embedded"
NOT_OPEN = "this Palyra is not open: use it with `with`, or call start() first"


@dataclass(slots=True, eq=False)
class AsyncRun:
    """Calls that share a principal, a workspace and a budget; `async with` ends the run with its block.

    A run that is not ended ends with its `AsyncPalyra`, and with this process at the latest.
    """

    run: Run
    _installation: Installation
    _ended: bool = False

    def __repr__(self) -> str:
        return f"<AsyncRun {self.run_id} of {self.run.context.principal} in {self.run.workspace!r}>"

    @property
    def run_id(self) -> str:
        return self.run.run_id

    async def call(
        self,
        tool: str,
        input: Mapping[str, Json] | bytes | None = None,
        *,
        call_id: str | None = None,
        project: bool = False,
        on_output: OnOutput | None = None,
        wait_s: float = 0.0,
        changes: bool = False,
    ) -> Outcome:
        """One call to its end: an outcome for everything that can happen to it, refusals too.

        `call_id`: a ULID of yours, under which it may be sent again and runs once. `project`: a large output comes as
        its head and tail, the whole as artifacts. `on_output`: gets the redacted output as it comes; what it raises
        ends the call and is raised here. `wait_s`: how long to wait for a person, where policy asks for one; then the
        outcome is pending. `changes`: `output["changes"]` says which files of the workspace a process changed.
        """
        if self._ended:
            raise PalyraError("this run has ended: start another with run()")
        request = CallRequest(
            tool=tool,
            input={} if input is None else input,
            run=self.run,
            call_id=call_id,
            project=project,
            wait_s=wait_s,
            changes=changes,
        )
        call = self._installation.engine.call
        return await (call(request) if on_output is None else heard(call, request, on_output))

    def cancel(self, call_id: str) -> bool:
        """Whether a call under that id was under way; it ends, and its outcome says CANCELLED."""
        given: object = call_id
        return isinstance(given, str) and self._installation.engine.cancel(given)

    async def end(self) -> None:
        """Cancel what is under way in this run and end the background processes it owns. Detached ones go on."""
        self._ended = True
        await self._installation.engine.end_run(self.run)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.end()


class AsyncPalyra:
    """An embedded installation: no daemon, no server, state in one folder. Use it with `async with`."""

    def __init__(
        self, home: str | os.PathLike[str] | None = None, config: str | os.PathLike[str] | None = None
    ) -> None:
        self._home = find_home(os.fspath(home) if home is not None else None)
        self._config = os.fspath(config) if config is not None else None
        self._installation: Installation | None = None

    @classmethod
    def open(cls, home: str | os.PathLike[str] | None = None, *, config: str | os.PathLike[str] | None = None) -> Self:
        """A home: `home`, else $PALYRA_HOME, else below the XDG data folder. `async with` opens and closes it."""
        return cls(home, config)

    @staticmethod
    def connect(url: str, *, token: str | None = None, ca_file: str | None = None) -> AsyncRemotePalyra:
        """A daemon at `http://HOST:PORT` or `unix:PATH`, with the same face; `ca_file`: whom to trust over TLS."""
        from palyra.client.asynchronous import AsyncRemotePalyra

        return AsyncRemotePalyra(url, token=token, ca_file=ca_file)

    async def start(self) -> Self:
        if self._installation is None:
            self._installation = await open_installation(self._home, config_file=self._config)
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._installation is not None:
            await self._installation.close()
            self._installation = None

    @property
    def installation(self) -> Installation:
        if self._installation is None:
            raise PalyraError(NOT_OPEN)
        return self._installation

    def run(
        self,
        principal: str = DEFAULT_PRINCIPAL,
        workspace: str | os.PathLike[str] = ".",
        *,
        run_id: str | None = None,
        device: str = "",
        channel: str = "",
        limits: Limits | None = None,
        tier: str | None = None,
        egress: str | None = None,
        grant: OperatorGrant | None = None,
        calls_max: int | None = None,
        budget: Allowance = UNLIMITED,
        **fewer: Unpack[Fewer],
    ) -> AsyncRun:
        """A run of its own, or with `run_id` one more session of a run that shares its budget.

        `calls_max` and `budget` narrow what the configuration gives; a run that is known keeps what it began with.
        `allowed_tools`, `allowed_capabilities`, `allowed_executables`, `allowed_egress_hosts` take away from what is
        configured under those names, and never add.
        """
        _check_kinds(limits=(limits, Limits), grant=(grant, OperatorGrant), budget=(budget, Allowance))
        ports = self.installation.ports
        if run_id is not None:
            from palyra.wiring.ending import run_terms  # only for runs that are named

            run_terms(self.installation).check_goes_on(parse_ulid(run_id, what="run_id"))
        run = start_run(
            ports.config,
            run_id=run_id if run_id is not None else ports.ids.ulid(),
            context=RequestContext(
                principal=parse_principal(principal), door=Door.PYTHON, device=device, channel=channel
            ),
            workspace=resolve_workspace(workspace),
            now_unix_ms=ports.clock.now_unix_ms(),
            limits=limits,
            tier=tier_word(tier),
            egress=egress_word(egress),
            grant=grant,
            calls_max=calls_max,
            most=budget,
            narrowing=parse_narrowing(fewer),
        )
        if egress == "block_all":  # not only strict: no host at all, whatever is configured
            run = replace(run, grant=replace(run.grant, block_all=True))
        return AsyncRun(run, self.installation)

    def tools(self, principal: str | None = None) -> ReadyList[dict[str, Json]]:
        """Every tool, or those that this principal could ever be allowed to call."""
        installation = self.installation
        registry = installation.engine.registry
        if principal is None:
            return ReadyList(tool_json(spec) for spec in registry.specs())
        who, bundle = parse_principal(principal), installation.policies.current()
        return ReadyList(tool_json(spec) for spec in tools_for(who, registry, installation.config, bundle))

    @property
    def runs(self) -> RunDesk:
        """Budgets of this home's runs, and more of them: `list`, `find`, `await extend`. The operator's."""
        return self.installation.runs

    @property
    def approvals(self) -> AsyncApprovals:
        """What waits for a person, and the grants: for the operator's code, never for an agent's."""
        return AsyncApprovals(self.installation.approvals)


_MADE_WITH = {"limits": "Limits(wall_ms=…)", "grant": "grant(executables=(…))", "budget": "Allowance(…)"}


def _check_kinds(**given: tuple[object, type]) -> None:
    """Who runs no type checker is told so here, and not by a name that is missing deep within."""
    for name, (value, kind) in given.items():
        if value is not None and not isinstance(value, kind):
            detail = f"{name} must be of the class {kind.__name__}, not {type(value).__name__}."
            raise Rejected(Reason.BAD_ARGUMENTS, detail, f"Make one with palyra.{_MADE_WITH[name]}.")
