"""The second road: a container client that runs the program itself, and its engine, which is asked to end it.

There is no shell to hold and no process of ours inside, so everything goes by the container's name, unique to the call.
Killing the client would leave the container running: the engine is told to remove it, and only when it is gone does a
call return. A client's exit codes 125, 126, 127 and 137 may be the program's own: the engine says whether it was ever
started, and whether memory ended it. Containers whose engine process is gone are swept before the first new one.

Not here: the client's argv (sandbox/docker), reading and feeding the streams (course).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from dataclasses import replace

from palyra.launch import _os
from palyra.launch.course import follow
from palyra.launch.ending import Ended
from palyra.launch.executor import LaunchFailed, Sink, Source, not_started
from palyra.launch.identity import granted_identity
from palyra.launch.message import nonce_from
from palyra.launch.waiting import ends_within, has_ended, readable, unbroken
from palyra.model.outcome import Execution
from palyra.model.plan import Hole, ProcessPlan
from palyra.sandbox.docker import LABEL, NAME, OWNER
from palyra.values import dataclass

_ASK_TIMEOUT_S = 30.0
_CUT_TRIES, _CUT_STEP_S = 100, 0.05
_REMOVE_TRIES = 20
_REMOVE_STEP_S = 0.1
_ANSWER_BYTES = 1 << 20
_AMBIGUOUS = (125, 126, 127, 137)
_STATE = "{{.State.StartedAt}}|{{.State.OOMKilled}}"
_WHOSE = '{{.Name}}|{{index .Config.Labels "' + LABEL + '"}}'
_STATUS = "{{.State.Status}}"
_BEGUN = ("running", "exited", "stopped", "stopping", "dead", "paused", "removing")
_ELSEWHERE = ("/bin/sh", "-c", 'cd /proc && exec "$@"', "sh")
"""podman's conmon writes a file `oom` where its client was started, through any link of that name: what runs out of
memory would leave it in the workspace, or where that points. In /proc nobody can make a file."""
_NEVER = "0001-"
"""How engines write a time that was never."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How to ask the container engine about a container, by the client that started it."""

    client: str
    env: tuple[tuple[str, str], ...]
    kind: str

    async def ask(self, *words: str) -> tuple[int, str]:
        """(exit code, what it said on stdout); code -1 when it did not answer in time."""
        read, write = _os.pipe()
        null = _os.raised(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
        try:
            pid = _os.spawn([self.client, *words], places={0: null, 1: write, 2: null}, env=self.env)
        except OSError:
            os.close(read)
            return -1, ""
        finally:
            os.close(write)
            os.close(null)
        return await unbroken(_answer(pid, read))

    async def remove(self, name: str, *, looks: int = 1) -> bool:
        """Killed and gone, or not there that many times in a row: an engine may still be making what it was asked for
        by a client that was cut off."""
        absent = 0
        for _ in range(_REMOVE_TRIES):
            now = ("--time", "0") if self.kind == "podman" else ()
            code, said = await self.ask("rm", "--force", "--volumes", *now, name)
            if code == 0 and said.strip() == name:
                return True
            code, _ = await self.ask("inspect", "--type", "container", name)
            absent = absent + 1 if code > 0 else 0
            if absent >= looks:
                return True
            await asyncio.sleep(_REMOVE_STEP_S)
        return False


class ContainerRoad:
    def __init__(self) -> None:
        self._swept: set[Engine] = set()

    async def run(self, plan: ProcessPlan, sink: Sink, source: Source | None = None) -> Execution:
        engine = Engine(str(plan.launcher[0]), plan.launcher_env, plan.backend)
        if engine not in self._swept:
            self._swept.add(engine)
            await sweep(engine)
        try:
            for root in plan.granted:  # the engine follows a link that is there now
                granted_identity(root)
            return await follow(_start(plan, engine), plan, sink, source)
        except (LaunchFailed, OSError) as error:
            return not_started(error)


async def sweep(engine: Engine) -> list[str]:
    """Remove what engines of Palyra's left that are no more; the names of what was removed."""
    return [name for name in await abandoned(engine) if await engine.remove(name)]


async def abandoned(engine: Engine) -> list[str]:
    """Containers of ours, by name, whose engine process is gone."""
    _, listed = await engine.ask("ps", "--all", "--quiet", "--filter", f"label={LABEL}")
    names: list[str] = []
    if listed.split():
        _, told = await engine.ask("inspect", "--type", "container", "--format", _WHOSE, *listed.split())
        rows = [line.partition("|")[::2] for line in told.splitlines()]
        names = [name.lstrip("/") for name, owner in rows if not _os.is_alive(owner)]
    return names


class _Container:
    """One container: its client's process and streams, and its name."""

    def __init__(self, engine: Engine, name: str, *, pid: int, streams: dict[str, int]) -> None:
        self._engine = engine
        self._name = name
        self._pid = pid
        self._streams = streams
        self._pid_fd = os.pidfd_open(pid)
        self._asking: asyncio.Task[tuple[int, str]] | None = None
        self._ended: Ended | None = None

    @property
    def program_fd(self) -> int:
        return self._pid_fd

    is_alone = False
    """A container takes its time."""

    def ends_within(self, timeout_s: float) -> bool:
        return ends_within(self._pid_fd, timeout_s)

    def is_gone(self, timeout_s: float) -> bool:
        return False

    def take(self, name: str) -> int:
        fd, self._streams[name] = self._streams[name], -1
        return fd

    def look_ahead(self) -> None:
        """Nothing."""

    async def begin(self) -> bytes:
        """It has begun: the client was given the program's argv, and says itself what went wrong."""
        return nonce_from(os.urandom(16))

    def ask_to_end(self) -> None:
        self._asking = asyncio.ensure_future(self._engine.ask("kill", "--signal", "TERM", self._name))

    def cut_off(self) -> None:
        """Nothing: only the engine can end it, and must be asked."""

    async def end(self, *, program_ended: bool) -> Ended:
        if self._ended is None:
            self._ended = await self._end(program_ended=program_ended)
        return self._ended

    async def _end(self, *, program_ended: bool) -> Ended:
        try:
            if self._asking is not None:
                await self._asking
            if not program_ended:
                await self._cut_short()
            reaped = _os.reap(self._pid)
            ended = Ended()
            if program_ended and reaped is not None:
                ended = await self._judged(os.waitstatus_to_exitcode(reaped[0]))
            removed = await self._engine.remove(self._name, looks=1 if program_ended else 2)
        finally:
            self._close()
        return ended if removed else replace(ended, survivors=f"the container {self._name} could not be removed")

    async def _cut_short(self) -> None:
        """A client killed while it is still making the container would leave it half made, so wait until that is done.
        One that is stuck writing what nobody reads any more keeps its engine from ending anything: it goes first."""
        for _ in range(_CUT_TRIES):
            _, said = await self._engine.ask("inspect", "--type", "container", "--format", _STATUS, self._name)
            if said.strip() in _BEGUN or has_ended(self._pid_fd):
                break
            await asyncio.sleep(_CUT_STEP_S)
        _os.send_signal(self._pid_fd, signal.SIGKILL)
        await readable(self._pid_fd)

    async def _judged(self, code: int) -> Ended:
        if code >= 0 and code not in _AMBIGUOUS:
            return Ended(exit_code=code)
        asked, said = await self._engine.ask("inspect", "--type", "container", "--format", _STATE, self._name)
        started, _, out_of_memory = said.strip().partition("|")
        if asked != 0 or started.startswith(_NEVER):
            return Ended(never_started=True)
        return Ended(exit_code=code if code >= 0 else None, out_of_memory=out_of_memory == "true")

    def _close(self) -> None:
        for fd in (*self._streams.values(), self._pid_fd):
            if fd >= 0:
                with contextlib.suppress(OSError):
                    os.close(fd)
        self._streams, self._pid_fd = dict.fromkeys(self._streams, -1), -1


def _start(plan: ProcessPlan, engine: Engine) -> _Container:
    name = f"palyra-{os.urandom(16).hex()}"
    ours: dict[str, int] = {}
    theirs: list[int] = []
    try:
        places = {}
        for number, (stream, child_reads) in enumerate((("stdin", True), ("stdout", False), ("stderr", False))):
            read, write = _os.pipe()
            places[number], ours[stream] = (read, write) if child_reads else (write, read)
            theirs.append(places[number])
        files: list[int] = []
        for data in plan.data:
            files.append(_os.memory_file(data))
            theirs.append(files[-1])
        argv = [*_ELSEWHERE, *_filled(plan, files, name), *plan.argv]
        pid = _os.spawn(argv, places=places, keep=files, env=engine.env)
        return _Container(engine, name, pid=pid, streams=ours)
    except BaseException:
        for fd in ours.values():
            os.close(fd)
        raise
    finally:
        for fd in theirs:
            os.close(fd)


def _filled(plan: ProcessPlan, files: Sequence[int], name: str) -> list[str]:
    def fill(hole: Hole) -> str:
        if hole == NAME:
            return name
        if hole == OWNER:
            return hole.before + _os.own_identity()
        return f"{hole.before}{'/proc/self/fd/' if hole.path else ''}{files[hole.index]}"

    return [fill(word) if isinstance(word, Hole) else word for word in plan.launcher]


async def _answer(pid: int, read: int) -> tuple[int, str]:
    pid_fd = os.pidfd_open(pid)
    said = b""
    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            while len(said) < _ANSWER_BYTES:
                await readable(read)
                chunk = os.read(read, 65536)
                if not chunk:
                    break
                said += chunk
            await readable(pid_fd)
    except TimeoutError:
        _os.send_signal(pid_fd, signal.SIGKILL)
        await readable(pid_fd)
        said = b""
    finally:
        os.close(read)
        os.close(pid_fd)
        ended = _os.reap(pid)
    code = os.waitstatus_to_exitcode(ended[0]) if ended else -1
    return (code if code >= 0 else -1), said.decode("utf-8", "replace")
