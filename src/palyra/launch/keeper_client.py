"""An engine's line to the keeper of its home; where there is none, one is started.

Rules: only a start may make a keeper; of many that want one at once a lock lets one make it, and the others wait for
its socket. A connection without a greeting did nothing and is tried again; after the request was sent nothing is
repeated. A keeper that cannot be started or does not answer is `NotStarted` with a hint, never a hang. Cancelling a
start takes the process back before it returns.

Not here: the keeper itself (keeper), who may ask for what (wiring/processes).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from palyra.canon import Json
from palyra.errors import StateError
from palyra.launch import _os
from palyra.launch.keeper_message import (
    LOCK,
    PROTOCOL,
    SOCKET,
    START_LOCK,
    TOKEN,
    BrokenLine,
    error_from,
    peer_uid,
    read_frame,
    write_frame,
)
from palyra.launch.values import from_json, to_json
from palyra.launch.waiting import unbroken
from palyra.model.process import BackgroundProcess, NotStarted, ProcessOwner, StartOrder
from palyra.state.keyfile import check_private
from palyra.state.lock import FileLock
from palyra.values import dataclass

START_TIMEOUT_S = 30.0
ANSWER_TIMEOUT_S = 60.0
_GREETING_TIMEOUT_S = 10.0
_STEP_S = 0.02
_IDLE_PATIENCE_S = 8.0
"""More than a keeper stays that keeps nothing (keeper.IDLE_S)."""
_MAX_LOG_BYTES = 1 << 20
_HINT = "See logs/keeper.log in the home; a foreground call needs no keeper."
_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from {module} import main; sys.exit(main(sys.argv[2:]))"
)


@dataclass(frozen=True, slots=True)
class _Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class KeeperClient:
    def __init__(self, home: Path, *, module: str, arguments: Sequence[str]) -> None:
        """`module` has the keeper's `main`, which gets `arguments`."""
        self._home = home
        self._folder = home / "run"
        self._logs = home / "logs"
        self._module = module
        self._arguments = tuple(arguments)
        self._spawned = 0

    # ── requests ──

    async def start(self, order: StartOrder) -> BackgroundProcess:
        line = await self._connect_or_start()
        asking = asyncio.ensure_future(self._ask(line, {"do": "start", "order": to_json(order)}))
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            await unbroken(self._take_back(line, asking, order))
            raise
        try:
            return from_json(BackgroundProcess, answer.get("process"))
        except ValueError as error:
            raise NotStarted("The keeper's answer cannot be read.", _HINT) from error

    async def stop(self, process_id: str, *, by: str) -> None:
        await self._tell({"do": "stop", "process_id": process_id, "by": by})

    async def end_run(self, owner: ProcessOwner, *, by: str) -> None:
        await self._tell({"do": "end_run", "owner": to_json(owner), "by": by})

    def let_go(self) -> None:
        """Collect the remains of a keeper that we started and that has ended."""
        if self._spawned and _os.reap(self._spawned) is not None:
            self._spawned = 0

    async def _take_back(self, line: _Line, asking: asyncio.Future[dict[str, Json]], order: StartOrder) -> None:
        """Hanging up makes the keeper end what it is just starting; what it has answered for is stopped by name."""
        with contextlib.suppress(OSError, RuntimeError):
            line.writer.write_eof()
        try:
            await asking
        except (NotStarted, StateError):
            return
        with contextlib.suppress(NotStarted, StateError):
            await self.stop(order.process_id, by=order.owner.principal)

    async def _tell(self, request: Mapping[str, Json]) -> None:
        """To a keeper that is there. None, and nothing is kept: there is nobody to tell."""
        line = await self._connect()
        if line is not None:
            await self._ask(line, request)

    async def _ask(self, line: _Line, request: Mapping[str, Json]) -> dict[str, Json]:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await write_frame(line.writer, {"token": self._token(), **request})
                answer = await read_frame(line.reader)
        except (BrokenLine, TimeoutError) as error:
            raise NotStarted("The keeper ended before it answered.", _HINT) from error
        finally:
            line.writer.close()
        if "error" in answer:
            raise error_from(answer["error"])
        return answer

    def _token(self) -> str:
        """Read after the greeting: it is the token of the keeper that greeted."""
        try:
            return (self._folder / TOKEN).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise NotStarted("The keeper's token cannot be read.", _HINT) from error

    # ── the line ──

    async def _connect(self) -> _Line | None:
        """None when nobody is there to talk to."""
        try:
            place = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, f"/proc/self/fd/{place}/{SOCKET}")
            if peer_uid(sock) != os.geteuid():
                raise NotStarted("The keeper's socket belongs to another user.", f"Remove {self._folder / SOCKET}.")
            reader, writer = await asyncio.open_unix_connection(sock=sock)
        except OSError:
            sock.close()
            return None
        except BaseException:
            sock.close()
            raise
        finally:
            os.close(place)
        return await self._greeted(_Line(reader, writer))

    async def _greeted(self, line: _Line) -> _Line | None:
        try:
            async with asyncio.timeout(_GREETING_TIMEOUT_S):
                greeting = await read_frame(line.reader)
        except (BrokenLine, TimeoutError):
            line.writer.close()
            return None
        except BaseException:
            line.writer.close()
            raise
        if greeting.get("protocol") != PROTOCOL:
            line.writer.close()
            raise NotStarted(
                "The keeper of this home is of another version of Palyra.",
                "Stop its processes (palyra ps, palyra stop ID); it then exits by itself.",
            )
        return line

    async def _connect_or_start(self) -> _Line:
        line = await self._connect()
        if line is not None:
            return line
        prepare_folders(self._home)
        lock = FileLock(self._folder / START_LOCK)
        clock = asyncio.get_running_loop().time
        deadline, started = clock() + START_TIMEOUT_S, 0
        try:
            while clock() < deadline:
                ours = lock.try_acquire()
                line = await self._connect()  # whoever had the lock before us may have made one
                if line is not None:
                    return line
                if ours:
                    started = self._see_to_a_keeper(started)
                await asyncio.sleep(_STEP_S)
        finally:
            lock.close()
        raise NotStarted(f"The keeper was not ready after {START_TIMEOUT_S:.0f} s.", _HINT)

    # ── a new keeper ──

    def _see_to_a_keeper(self, started: int) -> int:
        """Start one, unless ours is on its way. `started` is the one of this attempt: if it gave up, its last line
        says why; one of an earlier attempt has done its work, however it ended."""
        if self._spawned:
            ended = _os.reap(self._spawned)
            if ended is None and _os.state(self._spawned):
                return started
            if ended is not None and ended[0] and self._spawned == started:
                self._spawned = 0
                raise NotStarted(f"The keeper could not be started: {self._last_words()}", _HINT)
        self._spawned = self._spawn()
        return self._spawned

    def _spawn(self) -> int:
        if not sys.executable:
            raise NotStarted("The keeper cannot be started: the path of this Python is not known.", _HINT)
        # What this process imports from, less the current folder: agents write there.
        places = [place for place in sys.path if os.path.isabs(place) and not _is_here(place)]
        boot = _BOOT.format(module=self._module)
        argv = [sys.executable, *_flags(), "-c", boot, orjson.dumps(places).decode(), *self._arguments]
        null = words = -1
        try:
            null = _os.raised(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
            words = _os.raised(os.open(self._log_file(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
            return _os.spawn(argv, places={0: null, 1: words, 2: words})
        except OSError as error:
            raise NotStarted(f"The keeper could not be started: {error}.", _HINT) from error
        finally:
            for fd in (null, words):
                if fd >= 0:
                    os.close(fd)

    def _log_file(self) -> Path:
        path = self._logs / "keeper.log"
        with contextlib.suppress(OSError):
            if path.stat().st_size > _MAX_LOG_BYTES:
                path.rename(path.with_suffix(".log.1"))
        return path

    def _last_words(self) -> str:
        with contextlib.suppress(OSError):
            lines = (self._logs / "keeper.log").read_bytes()[-2000:].decode("utf-8", "replace").strip().splitlines()
            return lines[-1][:300] if lines else "it said nothing."
        return "it said nothing."


def take_keeping(home: Path) -> FileLock:
    """While it is held there is no keeper; one that keeps nothing any more is waited for."""
    prepare_folders(home)
    lock = FileLock(home / "run" / LOCK)
    if not lock.acquire(_IDLE_PATIENCE_S):
        raise StateError(
            "Background processes are kept: nobody could record how they end.",
            "Stop them first (palyra ps, palyra stop), and palyra-keeper.service if there is one.",
        )
    return lock


def prepare_folders(home: Path) -> None:
    """What a keeper of this home needs to be there, and private."""
    run = home / "run"
    try:
        for folder in (run, home / "logs"):
            folder.mkdir(mode=0o700, exist_ok=True)
            check_private(folder, folder.lstat(), is_kind=stat.S_ISDIR)
        for name in (LOCK, START_LOCK):
            os.close(os.open(run / name, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise NotStarted(f"The keeper cannot be started: {error}.", _HINT) from error
    except StateError as error:
        raise NotStarted(error.detail, error.hint) from error


def _flags() -> list[str]:
    """Isolated: no environment, no folder of the user's; compiled code goes where this process puts its own."""
    flags = ["-I", "-S"]
    if sys.dont_write_bytecode:
        flags.append("-B")
    return [*flags, "-X", f"pycache_prefix={sys.pycache_prefix}"] if sys.pycache_prefix else flags


def _is_here(place: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(place, ".")
    return False
