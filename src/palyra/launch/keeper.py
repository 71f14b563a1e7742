"""The keeper: a Unix socket around a `Supervisor`, in a process of its own that outlives its callers.

Rules: one a home, by a lock; the socket is made ready beside its place and renamed into it, so it is never there
without somebody listening; a peer of another uid is shown the door without a word, a request without the token is not
read any further; one request a connection. When nothing is kept and nobody talks, it ends; a connection that comes in
that moment gets no greeting, so its client knows that nothing was done.

Not here: starting keepers (keeper_client), what is kept and journaled (background, wiring/keeper).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import os
import socket
from pathlib import Path
from typing import Any

from palyra.canon import Json
from palyra.errors import PalyraError
from palyra.launch.background import Supervisor
from palyra.launch.keeper_message import (
    PROTOCOL,
    SOCKET,
    TOKEN,
    BrokenLine,
    error_json,
    peer_uid,
    read_frame,
    write_frame,
)
from palyra.launch.values import from_json, to_json
from palyra.model.process import NotStarted, ProcessOwner, StartOrder

log = logging.getLogger("palyra.keeper")

IDLE_S = 3.0
_REQUEST_TIMEOUT_S = 10.0
_STEP_S = 0.1
_BACKLOG = 128
_TOKEN_BYTES = 32


class Keeper:
    def __init__(self, supervisor: Supervisor, folder: Path, *, idle_s: float = IDLE_S) -> None:
        self._supervisor = supervisor
        self._folder = folder
        self._idle_s = idle_s
        self._token = os.urandom(_TOKEN_BYTES).hex()
        self._talking = 0
        self._leaving = False
        self._told_to_end = asyncio.Event()

    def end(self) -> None:
        """End everything that is kept, then leave."""
        self._told_to_end.set()

    async def serve(self) -> None:
        """Until there has been nothing to keep for a while, or until `end`."""
        write_private(self._folder / TOKEN, self._token)
        server = await asyncio.start_unix_server(self._talk, sock=listen(self._folder))
        try:
            await self._until_idle()
        finally:
            self._leaving = True
            with contextlib.suppress(FileNotFoundError):
                (self._folder / SOCKET).unlink()
            server.close()
        if self._told_to_end.is_set():
            await self._supervisor.close(by="keeper")

    async def _until_idle(self) -> None:
        loop = asyncio.get_running_loop()
        since = loop.time()
        while loop.time() - since < self._idle_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STEP_S):
                    await self._told_to_end.wait()
                    return
            if self._supervisor.kept or self._talking:
                since = loop.time()
            elif self._supervisor.failure is not None:
                return  # also one that would stay: the next one finds what was not recorded

    # ── one connection ──

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._leaving or peer_uid(writer.get_extra_info("socket")) != os.geteuid():
                return
            self._talking += 1
            try:
                await self._answer(reader, writer)
            finally:
                self._talking -= 1
        except (BrokenLine, TimeoutError):
            return
        except Exception:
            log.exception("a request failed")
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await write_frame(writer, {"protocol": PROTOCOL, "pid": os.getpid()})
        async with asyncio.timeout(_REQUEST_TIMEOUT_S):
            request = await read_frame(reader)
        if not hmac.compare_digest(str(request.get("token")).encode(), self._token.encode()):
            return
        try:
            answer = await self._do(request, reader)
        except PalyraError as error:
            answer = error_json(error)
        except Exception as error:
            log.exception("a request failed")
            answer = error_json(error)
        await write_frame(writer, answer)

    async def _do(self, request: dict[str, Json], reader: asyncio.StreamReader) -> dict[str, Json]:
        by = request.get("by")
        match request.get("do"), by:
            case "start", _:
                return await self._start(_given(StartOrder, request.get("order")), reader)
            case "stop", str():
                await self._supervisor.stop(str(request.get("process_id")), by=by)
            case "end_run", str():
                await self._supervisor.end_run(_given(ProcessOwner, request.get("owner")), by=by)
            case _:
                raise NotStarted("The keeper does not know this request.", "Stop older Palyra processes of this home.")
        return {"done": True}

    async def _start(self, order: StartOrder, reader: asyncio.StreamReader) -> dict[str, Json]:
        """A caller that goes away before it has its answer does not know the process: it is ended again."""
        starting = asyncio.ensure_future(self._supervisor.start(order))
        listening = asyncio.ensure_future(reader.read(1))
        await asyncio.wait({starting, listening}, return_when=asyncio.FIRST_COMPLETED)
        gone = listening.done()
        listening.cancel()
        process = await starting
        if gone:
            await self._supervisor.stop(order.process_id, by=order.owner.principal)
            raise NotStarted("The call was cancelled.")
        return {"process": to_json(process)}


def _given(kind: type[Any], raw: Json) -> Any:
    try:
        return from_json(kind, raw)
    except (ValueError, TypeError, PalyraError) as error:
        raise NotStarted(f"The keeper cannot read this request: {error}.") from error


# ── the socket ───────────────────────────────────────────────────────────────


def listen(folder: Path) -> socket.socket:
    """Names of sockets are short, homes may be long: the folder is named by a descriptor."""
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    name = f".{SOCKET}.{os.urandom(8).hex()}"
    try:
        listener.bind(f"/proc/self/fd/{place}/{name}")
        os.chmod(name, 0o600, dir_fd=place)
        listener.listen(_BACKLOG)
        os.rename(name, SOCKET, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(place)
    return listener


def write_private(path: Path, text: str) -> None:
    """Whole or not at all, for our eyes only."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(text)
    temporary.rename(path)
