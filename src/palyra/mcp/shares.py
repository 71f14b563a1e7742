"""How many sessions of the handshake era each principal may have open: the SDK's own bound is one for everybody.

A session is learnt from the header of the answer that opens it, and forgotten when it was ended, is not found any more,
or was idle as long as the SDK keeps one. Past its share a principal's longest idle session is ended for the new one,
as its own runs are; where none is idle the request is refused. Nobody's share touches another's.

Not here: the sessions themselves (the SDK), runs (mcp/http).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

MAX_SESSIONS_EACH = 64
SESSION_HEADER = "mcp-session-id"
VERSION_HEADER = "mcp-protocol-version"


@dataclass(slots=True, eq=False)
class Open:
    session_id: str
    credential_id: str
    """Only who opened it may end it."""
    used_s: float
    requests: int = 0


@dataclass(slots=True)
class Shares:
    now_s: Callable[[], float]
    idle_s: float
    most: int
    _open: dict[str, OrderedDict[str, Open]] = field(default_factory=dict)
    _opening: dict[str, int] = field(default_factory=dict)

    def begin(self, principal: str) -> Open | None:
        """Before a request that may open a session: one to be ended first. `BlockingIOError` where there is no room."""
        mine = self._open.setdefault(principal, OrderedDict())
        self._forget_idle(mine)
        over = len(mine) + self._opening.get(principal, 0) + 1 - self.most
        idle = next((one for one in mine.values() if not one.requests), None)
        if over > 0 and idle is None:
            raise BlockingIOError
        if over > 0 and idle is not None:
            del mine[idle.session_id]
        self._opening[principal] = self._opening.get(principal, 0) + 1
        return idle if over > 0 else None

    def opened(self, principal: str, session_id: str, credential_id: str) -> None:
        self._open.setdefault(principal, OrderedDict())[session_id] = Open(session_id, credential_id, self.now_s())

    def settled(self, principal: str) -> None:
        """The request that might have opened one is answered."""
        self._opening[principal] -= 1
        if not self._opening[principal]:
            del self._opening[principal]
        if not self._open.get(principal):
            self._open.pop(principal, None)

    def use(self, principal: str, session_id: str) -> Open | None:
        """Of a request in a session: in use until `leave`."""
        mine = self._open.get(principal, OrderedDict())
        found = mine.get(session_id)
        if found is not None:
            found.requests += 1
            found.used_s = self.now_s()
            mine.move_to_end(session_id)
        return found

    def leave(self, principal: str, found: Open, *, ended: bool) -> None:
        found.requests -= 1
        found.used_s = self.now_s()
        mine = self._open.get(principal, OrderedDict())
        if ended:
            mine.pop(found.session_id, None)
        if not mine:
            self._open.pop(principal, None)

    def count(self, principal: str) -> int:
        return len(self._open.get(principal, ()))

    def _forget_idle(self, mine: OrderedDict[str, Open]) -> None:
        for session_id, one in tuple(mine.items()):
            if not one.requests and self.now_s() - one.used_s >= self.idle_s:
                del mine[session_id]


def may_open(headers: Mapping[str, str]) -> bool:
    """Whether the SDK would open a session for this request: its own rule, by the same headers."""
    version = headers.get(VERSION_HEADER)
    of_the_era = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
    return SESSION_HEADER not in headers and of_the_era
