"""The daemon's life: sockets, the application on them, and an end in order.

Order of the end: 1 no new connections and no new calls · 2 calls under way may finish, for a while · 3 the rest are
ended and recorded as cancelled · 4 answers are sent, connections closed · 5 the home is closed.

Not here: the application (daemon/app), one connection (daemon/wire_guard), signals (cli/serve).
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from starlette.types import ASGIApp
from uvicorn.config import Config as UvicornConfig
from uvicorn.server import ServerState

from palyra.daemon.app import make_app
from palyra.daemon.chores import chores_of, do_chores, note_sessions, watch_config, watch_journal
from palyra.daemon.listening import keep_tls_small
from palyra.daemon.open_files import share_open_files
from palyra.daemon.places import (
    BACKLOG,
    check_reach,
    forget_pointer,
    open_tcp,
    open_unix,
    point_at,
    socket_path,
    tls_context,
    url_of,
)
from palyra.daemon.routes import Route
from palyra.daemon.state import State
from palyra.daemon.taking import begin_taken
from palyra.daemon.wire_guard import make_protocol, too_many
from palyra.errors import PalyraError, StateError
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.version import __version__
from palyra.wiring.daemon_note import NOTE, Stamp, config_stamp, write_note
from palyra.wiring.gc import sweep_launchers

log = logging.getLogger("palyra.daemon")
LAST_ANSWERS_S = 5.0


class Server:
    def __init__(
        self,
        state: State,
        routes: Sequence[Route],
        mounts: Mapping[str, ASGIApp] | None = None,
        *,
        config: Stamp = None,
        config_file: str | None = None,
    ) -> None:
        """`config`: the stamp of the configuration, from before it was read; `config_file`: one that was named by
        hand."""
        self.state = state
        home = state.installation.home.root
        self._config = config or config_stamp(home, config_file)
        watch = watch_config(self._config, lambda: config_stamp(home, config_file))
        journal = watch_journal(state.installation.writer, self._fail)
        self._chores = (*chores_of(state.installation), note_sessions(state.sessions), watch, journal)
        self._failure: StateError | None = None
        self._app = make_app(state, routes, mounts)
        self._wire = ServerState()
        self._servers: list[asyncio.Server] = []
        self._end = asyncio.Event()

    def end(self) -> None:
        """Begin to end; for a signal handler."""
        self._end.set()

    def _fail(self, failure: StateError) -> None:
        if self._failure is None:
            log.critical("the daemon ends, to be started again: %s", failure.detail)
        self._failure = failure
        self.end()

    async def serve(self, *, on_ready: Callable[[], object] = lambda: None) -> None:
        """Until `end`. `on_ready` is called when every socket answers. Raises `StateError` where the journal failed."""
        await self._open()
        await self._note(ActKind.INSTALLATION_STARTED, listen=list(self.state.listening))
        await self._sweep()
        await begin_taken(self.state)
        on_ready()
        clock = self.state.clock
        chores = asyncio.ensure_future(do_chores(self._chores, monotonic_us=clock.monotonic_us))
        try:
            await self._end.wait()
        finally:
            chores.cancel()
            await asyncio.wait([chores])
            await self._close()
        if self._failure is not None:
            raise self._failure

    async def _sweep(self) -> None:
        try:
            ended = await sweep_launchers(self.state.installation)
        except (OSError, PalyraError):
            log.exception("launchers left by a killed engine could not be ended")
            return
        if ended:
            log.warning("ended %d sandbox launchers that a killed engine had left", ended)

    async def _open(self) -> None:
        state, settings = self.state, self.state.settings
        now = state.clock.now_unix_ms()
        check_reach(settings, has_tokens=any(token.holds(now) for token in state.tokens.list(count=10_000)))
        connections = share_open_files(connections=settings.max_connections, calls=settings.max_calls)
        context = tls_context(settings)
        loop, factory = asyncio.get_running_loop(), self._factory(connections)
        tcp = open_tcp(settings)
        tcp.most = connections
        shakes: dict[str, Any] = {}
        if context is None:
            tcp.answer = too_many()
        else:
            keep_tls_small()
            shakes = {"ssl": context, "ssl_handshake_timeout": settings.header_timeout_ms / 1000}
        self._servers.append(await loop.create_server(factory, sock=tcp, backlog=BACKLOG, **shakes))
        state.listening.append(url_of(tcp, tls=context is not None))
        if hasattr(socket, "AF_UNIX"):
            home = state.installation.home.root
            path = socket_path(home, settings)
            forget_pointer(home)  # of a daemon that crashed
            self._servers.append(await loop.create_unix_server(factory, sock=open_unix(path), backlog=BACKLOG))
            state.listening.append(f"unix:{path}")
            point_at(home, path.absolute())
            write_note(home, socket_path=path, url=state.listening[0], config=self._config)

    def _factory(self, max_connections: int) -> Callable[[], asyncio.Protocol]:
        settings = self.state.settings
        config = UvicornConfig(
            self._app,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            ws="none",
            h11_max_incomplete_event_size=settings.max_header_bytes,
            timeout_keep_alive=max(1, settings.idle_timeout_ms // 1000),
        )
        config.load()
        made = make_protocol(
            header_timeout_s=settings.header_timeout_ms / 1000,
            max_connections=max_connections,
            max_header_bytes=settings.max_header_bytes,
            owner_uid=self.state.guard.owner_uid,
        )
        return lambda: made(config=config, server_state=self._wire, app_state={})

    async def _close(self) -> None:
        self.state.stopping = True  # 1
        for server in self._servers:
            server.close()
        await self._finish_calls()  # 2, 3
        await self._close_connections()  # 4
        home = self.state.installation.home.root
        for path in (home / "run" / NOTE, socket_path(home, self.state.settings)):
            path.unlink(missing_ok=True)
        forget_pointer(home)
        if self._failure is None:
            await self._note(ActKind.INSTALLATION_STOPPED, reason="asked to end")

    async def _finish_calls(self) -> None:
        patience_ms = self.state.settings.shutdown_ms if self._failure is None else 0  # its end could not be recorded
        await self.state.calls.finish(within_s=patience_ms / 1000)
        await self.state.ends.settle()
        with suppress(StateError):
            await self.state.sessions.note_used()
        if self.state.tracing is not None:
            await asyncio.to_thread(self.state.tracing.shut_down)

    async def _close_connections(self) -> None:
        for connection in list(self._wire.connections):
            connection.shutdown()
        if self._wire.tasks:
            await asyncio.wait(self._wire.tasks, timeout=LAST_ANSWERS_S)
        for task in list(self._wire.tasks):
            task.cancel()
        if self._wire.tasks:
            await asyncio.wait(self._wire.tasks, timeout=LAST_ANSWERS_S)
        for connection in list(self._wire.connections):
            connection.transport.abort()

    async def _note(self, kind: ActKind, **details: object) -> None:
        told = {"version": __version__, "pid": os.getpid(), **details}
        act = Act(kind=kind, actor=PALYRA, subject="home", details=told)
        now = self.state.clock.now_unix_ms()
        await self.state.installation.writer.commit_closing(lambda tx: record_act(tx, act, at_unix_ms=now))
