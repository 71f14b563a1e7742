"""Who a request comes from: a run, and the person who may answer for it. One caller a stdio process, many over HTTP.

Rules: a caller is found in what the transport proved, never in what a client says about itself; a question put through
a client may be answered there only where the client is a process of the operator's own (stdio): an agent's bearer token
must not decide on the agent's own call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from mcp.server.context import ServerRequestContext

from palyra.engine.runs import Run, start_run
from palyra.errors import Rejected
from palyra.model.call import Door, RequestContext, parse_principal
from palyra.values import dataclass
from palyra.wiring.embedded import Installation

Context = ServerRequestContext[Any, Any]
Lapse = Callable[[], Rejected | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    run: Run
    person: str | None = None
    """user:NAME who sits in front of the client; None: questions are answered elsewhere."""
    lapse: Lapse | None = None
    """Why its credential no longer holds."""

    @property
    def principal(self) -> str:
        return str(self.run.context.principal)


class Callers(Protocol):
    def of(self, ctx: Context) -> Caller: ...


@dataclass(frozen=True, slots=True)
class OneCaller:
    """stdio: the client started this process."""

    caller: Caller

    def of(self, ctx: Context) -> Caller:
        return self.caller


def begin_run(installation: Installation, *, principal: str, workspace: str, channel: str) -> Run:
    ports = installation.ports
    return start_run(
        ports.config,
        run_id=ports.ids.ulid(),
        context=RequestContext(principal=parse_principal(principal), door=Door.MCP, channel=channel),
        workspace=workspace,
        now_unix_ms=ports.clock.now_unix_ms(),
    )
