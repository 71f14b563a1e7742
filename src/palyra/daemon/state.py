"""What handlers get: the wired engine with its stores, who keeps the door, and what the daemon itself keeps.

One for each daemon, made at its start (daemon/server). Handlers read from it and call its parts; only `stopping`
changes. Not here: anything about one request (daemon/routes.Asked).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from palyra.config.daemon import DaemonConfig
from palyra.daemon.auth import Guard
from palyra.daemon.bodies import Bodies
from palyra.daemon.ends import CallEnds
from palyra.daemon.live import LiveCalls
from palyra.daemon.metrics import Metrics
from palyra.daemon.sessions import Failures, Sessions
from palyra.daemon.tracing import Tracing, make_tracing
from palyra.engine.ports import Clock, Ids
from palyra.state.person import owner_principal
from palyra.tokens.store import TokenStore
from palyra.values import dataclass
from palyra.wiring.embedded import Installation
from palyra.wiring.run_terms import RunTerms
from palyra.wiring.sessions import SessionRows
from palyra.wiring.taken import TakenCalls
from palyra.wiring.tokens import make_tokens

if TYPE_CHECKING:
    from palyra.daemon.attended import Attendance

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(slots=True, kw_only=True)
class State:
    installation: Installation
    settings: DaemonConfig
    tokens: TokenStore
    sessions: Sessions
    failures: Failures
    guard: Guard
    calls: LiveCalls
    run_terms: RunTerms
    taken: TakenCalls
    ends: CallEnds
    metrics: Metrics
    tracing: Tracing | None = None
    attended: dict[str, Attendance] = field(default_factory=dict)
    """Calls with somebody at their other end, by id."""
    listening: list[str] = field(default_factory=list)
    """Where, as URLs; the Unix socket as unix:PATH."""
    bodies: Bodies = field(default_factory=Bodies)
    stopping: bool = False
    """No new calls: the daemon is about to end."""

    @property
    def clock(self) -> Clock:
        return self.installation.ports.clock

    @property
    def ids(self) -> Ids:
        return self.installation.ports.ids


def make_state(installation: Installation, settings: DaemonConfig) -> State:
    ports = installation.ports
    now, ids = ports.clock.now_unix_ms, ports.ids
    tokens = make_tokens(installation)
    sessions = Sessions(
        now_unix_ms=now,
        random_bytes=ids.random_bytes,
        kept=SessionRows(installation.writer),
        session_ms=settings.session_ms,
        idle_ms=settings.session_idle_ms,
    )
    guard = Guard(
        tokens=tokens,
        sessions=sessions,
        owner=owner_principal(),
        owner_uid=installation.home.root.stat().st_uid,
        names=LOCAL_NAMES | {settings.host.lower().strip("[]")} | {name.lower() for name in settings.names},
    )
    taken = TakenCalls(installation.writer)
    ends = CallEnds(taken=taken, now_unix_ms=now)
    metrics = Metrics(knows_tool=installation.engine.registry.has)
    ends.watchers.append(metrics.call_ended)
    tracing = make_tracing(now_unix_ms=now) if settings.traces else None
    if tracing is not None:
        ends.watchers.append(tracing.ended)
    calls = LiveCalls(
        installation.engine,
        most=settings.max_calls,
        most_waiting_per_run=settings.max_calls_waiting_per_run,
        on_end=ends.note,
    )
    return State(
        installation=installation,
        settings=settings,
        tokens=tokens,
        sessions=sessions,
        failures=Failures(now_unix_ms=now),
        guard=guard,
        calls=calls,
        run_terms=RunTerms(installation.writer, now_unix_ms=now),
        taken=taken,
        ends=ends,
        metrics=metrics,
        tracing=tracing,
    )
