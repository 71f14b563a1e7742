"""Counts what one warm call, one append and one granted connection do, in a process of its own.

`python -m tests.ratchet.measure STORY FOLDER` prints one JSON object. With `--rounds` it only plays the rounds and
marks each in the system call log of strace. Of many rounds the lower tenth counts: a reply that comes in two pieces on
a busy machine does not change it, nor does one round whose work a background thread had just done.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import palyra
from tests.servers import web

WARM_UP, ROUNDS = 10, 60
BEGIN, END = b"round begins", b"round ends"
"""Written to descriptor -1: the write fails, and strace shows it."""
PACKAGE = str(Path(palyra.__file__).parent) + "/"
ENTERED_BY_COMPREHENSION = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})
Counts = dict[str, dict[str, int]]
Work = Callable[[], Awaitable[object]]
Round = tuple[Work, Work]
"""What is counted, and what brings the installation to rest after it."""
GET = """\
import http.client
line = http.client.HTTPConnection("granted.test", {port})
line.request("GET", "/")
line.getresponse().read()
"""


class CallCounter:
    """Counts the functions of Palyra that start while it is active, in every thread."""

    def __init__(self) -> None:
        self.is_active = False
        self.frames: list[FrameType] = []
        self.seen: set[int] = set()

    def profile(self, frame: FrameType, event: str, _: object) -> None:
        """Note a frame the first time it runs; a coroutine that is resumed is not another call."""
        if not self.is_active or event != "call" or id(frame) in self.seen:
            return
        if frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name not in ENTERED_BY_COMPREHENSION:
            self.seen.add(id(frame))
            self.frames.append(frame)  # kept alive, so that no other frame gets its id
            self.hand_overs[area_of(frame)] += is_hand_over(frame)

    def start(self) -> None:
        self.frames.clear()
        self.seen.clear()
        self.hand_overs: Counter[str] = Counter()
        self.is_active = True

    def stop(self) -> Counts:
        """Return calls, hand-overs between modules, and modules entered, each by area."""
        self.is_active = False
        modules = {module_of(frame): area_of(frame) for frame in self.frames}
        return {
            "calls": dict(Counter(area_of(frame) for frame in self.frames)),
            "hand_overs": dict(+self.hand_overs),
            "modules": dict(Counter(modules.values())),
        }


def module_of(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(PACKAGE)


def area_of(frame: FrameType) -> str:
    return module_of(frame).split("/")[0].removesuffix(".py")


def is_hand_over(frame: FrameType) -> bool:
    """Return whether the nearest caller of Palyra's own stands in another module, or there is none."""
    caller = frame.f_back
    while caller is not None and not caller.f_code.co_filename.startswith(PACKAGE):
        caller = caller.f_back
    return caller is None or caller.f_code.co_filename != frame.f_code.co_filename


@asynccontextmanager
async def open_call(folder: Path) -> AsyncIterator[Round]:
    """One warm `palyra.process.run` of `true`, through the Python API."""
    async with open_run(folder) as (home, run):

        async def call() -> None:
            outcome = await run.call("palyra.process.run", {"command": "true"})
            assert outcome.success, outcome

        async def settle() -> None:
            await home.installation.executor.pool.settled()
            await rest()

        yield call, settle


@asynccontextmanager
async def open_append(folder: Path) -> AsyncIterator[Round]:
    """One durable act in the journal."""
    from palyra.journal.acts import Act, ActKind

    act = Act(kind=ActKind.POLICY_USED, actor="user:ratchet", subject="policy", details={"policy_sha256": "0" * 64})
    async with open_run(folder) as (home, _):
        yield lambda: home.installation.journal.record_act(act, at_unix_ms=1), rest


@asynccontextmanager
async def open_connection(folder: Path) -> AsyncIterator[Round]:
    """One GET of a granted host by a program in the sandbox; counted are the areas of egress alone."""
    with web() as server:
        config = f"""
[tool_call.process_runner]
allow_interpreters = true
allowed_egress_hosts = ["granted.test:{server.port}", "127.0.0.1:{server.port}"]
[egress]
resolve = ["granted.test=127.0.0.1"]
"""
        async with open_run(folder, config) as (_, run):

            async def connect() -> None:
                words = {"command": "python3", "args": ["-c", GET.format(port=server.port)]}
                outcome = await run.call("palyra.process.run", words)
                assert outcome.success, outcome

            yield connect, rest


@asynccontextmanager
async def open_run(folder: Path, config: str = "") -> AsyncIterator[tuple[Any, Any]]:
    """Yield an open installation of its own and one run in it."""
    home, workspace = folder / "home", folder / "workspace"
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text(f"[tool_call]\nmax_calls_per_run = 100000\n{config}", encoding="utf-8")
    async with palyra.AsyncPalyra.open(home=str(home)) as opened:
        yield opened, opened.run(principal="user:ratchet", workspace=workspace)


STORIES = {"call": open_call, "append": open_append, "connection": open_connection}
ONLY_AREAS = {"connection": ("egress",)}


async def rest() -> None:
    """Let the loop do what it does ahead of the next round, such as parts of the next journal entry."""
    await asyncio.sleep(0.02)


async def count_calls(story: str, folder: Path, counter: CallCounter) -> Counts:
    """Return the lower tenth of each kind and area over all rounds."""
    rounds = []
    async with STORIES[story](folder) as (play, settle):
        for number in range(WARM_UP + ROUNDS):
            counter.start()
            await play()
            counts = counter.stop()
            await settle()
            if number >= WARM_UP:
                rounds.append(counts)
    only = ONLY_AREAS.get(story)
    return {
        kind: {
            area: lower_tenth([counts[kind].get(area, 0) for counts in rounds])
            for area in sorted({area for counts in rounds for area in counts[kind]})
            if not only or area in only
        }
        for kind in rounds[0]
    }


def lower_tenth(numbers: Sequence[int]) -> int:
    return sorted(numbers)[len(numbers) // 10]


async def play_rounds(story: str, folder: Path) -> None:
    """Play the rounds with a mark before and after each, for the log of strace."""
    async with STORIES[story](folder) as (play, settle):
        for number in range(WARM_UP + ROUNDS):
            if number >= WARM_UP:
                mark(BEGIN)
            await play()
            mark(END)
            await settle()


def mark(text: bytes) -> None:
    with suppress(OSError):
        os.write(-1, text)


def main(story: str, folder: str, *options: str) -> int:
    if options == ("--rounds",):
        asyncio.run(play_rounds(story, Path(folder)))
        return 0
    counter = CallCounter()
    threading.setprofile(counter.profile)
    sys.setprofile(counter.profile)
    counts = asyncio.run(count_calls(story, Path(folder), counter))
    sys.setprofile(None)
    sys.stdout.write(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
