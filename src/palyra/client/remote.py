"""The daemon with the engine's face: `Palyra.connect(…)`. The same names, the same outcomes, the same exceptions.

    with Palyra.connect("http://127.0.0.1:7142", token=…) as palyra:
        run = palyra.run(workspace="/srv/project")
        result = run.call("palyra.process.run", {"command": "ls"})

Rules: every call has an id before it is sent, so that one whose answer was lost is asked for again and runs once; safe
from several threads, each request on a line of its own. Stdlib sockets (client/wire).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import orjson

from palyra.canon import Json
from palyra.client.wire import Line, Place, Unreachable, parse_place
from palyra.client.words import events, grant_words, input_of, loads, outcome_of, output_of, refused
from palyra.errors import PalyraError
from palyra.model.budget import UNLIMITED, Allowance
from palyra.model.call import OperatorGrant
from palyra.model.limits import Limits
from palyra.model.narrowing import parse_narrowing
from palyra.model.options import Fewer
from palyra.model.outcome import Outcome, StreamName
from palyra.wiring.clock import SystemClock, SystemIds

KEPT_LINES = 8
_OUTCOMES = frozenset({200, 202, 429, 503})
OnOutput = Callable[[StreamName, bytes], None]


class Daemon:
    """Lines to one daemon, with a credential."""

    def __init__(self, place: Place, *, token: str | None, ca_file: str | None = None) -> None:
        self.place = place
        self._token = token
        self._ca_file = ca_file
        self._lines: list[Line] = []
        self._guard = threading.Lock()
        self._pid = os.getpid()
        self._closed = False

    def line(self) -> Line:
        with self._guard:
            if self._pid != os.getpid():  # a fork's lines are its parent's
                self._lines, self._pid = [], os.getpid()
            return self._lines.pop() if self._lines else Line(self.place, ca_file=self._ca_file)

    def give_back(self, line: Line) -> None:
        with self._guard:
            if line.is_open and not self._closed and len(self._lines) < KEPT_LINES:
                self._lines.append(line)
                return
        line.close()

    def close(self) -> None:
        self._closed = True  # what another thread still asks closes its own line
        self._drop()

    def _drop(self) -> None:
        with self._guard:
            lines, self._lines = self._lines, []
        for line in lines:
            line.close()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def ask(self, method: str, path: str, body: object = None, *, again: bool = True) -> tuple[int, Any]:
        """(status, JSON). `again`: safe to be asked twice, so a line that had gone stale is replaced."""
        data = None if body is None else orjson.dumps(body)
        line = self.line()
        was_open = line.is_open
        try:
            reply = line.ask(method, path, headers=self.headers, body=data)
            content = reply.read()
        except Unreachable:
            line.close()
            if not (again and was_open):
                raise
            self._drop()  # others from before the daemon's restart are as stale
            return self.ask(method, path, body, again=False)
        self.give_back(line)
        return reply.status, loads(content)

    def ask_for(self, method: str, path: str, body: object = None) -> Any:
        """The answer, or the exception its error means."""
        status, value = self.ask(method, path, body)
        if status >= 400:
            raise refused(status, value)
        return value


class RemoteRun:
    """Calls that share a principal, a workspace and a budget, in a daemon."""

    def __init__(self, daemon: Daemon, run_id: str, terms: Mapping[str, Json] | None, said: Mapping[str, Json]) -> None:
        """`terms`: what to make the run with, before its first call; None for a run that is there already."""
        self._daemon = daemon
        self.run_id = run_id
        self._terms = terms
        self._said = dict(said)
        self._guard = threading.Lock()
        self._ended = False

    def call(
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
        """One call to its end, as `AsyncRun.call`; `changes` is for operators."""
        if self._ended:
            raise PalyraError("this run has ended: start another with run()")
        self._make()
        body = {
            "tool": tool,
            "input": input_of(input),
            "run_id": self.run_id,
            "call_id": call_id or _IDS.ulid(),
            "project": project,
            "approval_wait_ms": int(wait_s * 1000),
            **({"changes": True} if changes else {}),
            **self._said,
        }
        if on_output is not None:
            return self._follow(body, on_output)
        status, value = self._daemon.ask("POST", "/v1/calls", body)
        if status in _OUTCOMES and isinstance(value, dict) and "call_id" in value:
            return outcome_of(value)
        raise refused(status, value)

    def _follow(self, body: Mapping[str, Json], on_output: OnOutput) -> Outcome:
        line = self._daemon.line()
        headers = {**self._daemon.headers, "Accept": "text/event-stream"}
        try:
            reply = line.ask("POST", "/v1/calls", headers=headers, body=orjson.dumps(body))
            if reply.status != 200:
                raise refused(reply.status, loads(reply.read()))
            for name, data in events(reply.lines()):
                if name == "output":
                    on_output(*output_of(data))
                elif name == "outcome":
                    return outcome_of(loads(data))
        finally:
            line.close()
        raise Unreachable("The daemon went away before the call ended.")

    def cancel(self, call_id: str) -> bool:
        status, value = self._daemon.ask("POST", f"/v1/calls/{call_id}/cancel")
        return status == 200 and value["status"] == "cancelled"

    def _make(self) -> None:
        with self._guard:
            if self._terms is not None:
                self._daemon.ask_for("POST", "/v1/runs", self._terms)
                self._terms = None

    def end(self) -> None:
        """Cancel what is under way in this run and end the background processes it owns. Detached ones go on."""
        if not self._ended:
            self._ended = True
            if self._terms is None:
                self._daemon.ask_for("POST", f"/v1/runs/{self.run_id}/end")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


class RemotePalyra:
    """A daemon, with the face of `Palyra`: runs and their calls. Use it with `with`; safe from several threads."""

    def __init__(self, url: str, *, token: str | None = None, ca_file: str | None = None) -> None:
        self._daemon = Daemon(parse_place(url), token=token, ca_file=ca_file)

    def start(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._daemon.close()

    def run(
        self,
        principal: str | None = None,
        workspace: str | os.PathLike[str] = "",
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
    ) -> RemoteRun:
        """`principal`: the credential's own where None; another's is for an operator to say. Folders are the daemon's
        machine's: a relative one is read here, as the library reads it."""
        said = grant_words(grant)
        if principal is not None:
            said["principal"] = principal
        if run_id is not None:
            return RemoteRun(self._daemon, run_id, None, said)
        fresh = _IDS.ulid()
        terms: dict[str, Json] = {
            "run_id": fresh,
            "workspace": os.path.abspath(workspace) if os.fspath(workspace) else None,
            "device": device,
            "channel": channel,
            "limits": dict(limits.as_json()) if limits is not None else None,
            "tier": tier,
            "egress": egress,
            "calls_max": calls_max,
            "budget": None if budget.is_unlimited else budget_words(budget),
            "principal": principal,
            **parse_narrowing(fewer).as_json(),
        }
        return RemoteRun(self._daemon, fresh, {k: v for k, v in terms.items() if v is not None}, said)

    def tools(self) -> list[dict[str, Json]]:
        """Those that this credential could ever be allowed to use."""
        items: list[dict[str, Json]] = self._daemon.ask_for("GET", "/v1/tools")["items"]
        return items


def budget_words(budget: Allowance) -> dict[str, Json]:
    names = ("wall_us", "cpu_us", "output_bytes", "egress_bytes", "fuel")
    return {name: amount for name in names if (amount := getattr(budget, name)) is not None}


_IDS = SystemIds(SystemClock())
