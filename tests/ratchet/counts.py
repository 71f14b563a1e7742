"""Measures a story in a process of its own and compares it with the recorded numbers, which may only fall."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ratchet.measure import BEGIN, END, Counts, lower_tenth

RECORD = Path(__file__).with_name("counts.json")
PROJECT = Path(__file__).parents[2]
STORIES = ("append", "call", "connection")
TRACED = frozenset({"append", "call"})
"""Stories whose system calls are counted; those of a connection depend on how the bytes arrive."""


def read_record() -> dict[str, Counts]:
    record: dict[str, Counts] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    return record


def measure(story: str) -> Counts:
    """Return calls, hand-overs and modules by area, and the engine thread's system calls."""
    with open_folder() as folder:
        counts: Counts = json.loads(run_measure(story, folder))
    if story in TRACED:
        counts["system_calls"] = {"engine": count_system_calls(story)}
    return counts


def combine(one: Counts, other: Counts, choose: Callable[[int, int], int]) -> Counts:
    """Return `choose` (min or max) of two measurements, number by number."""
    return {
        kind: {area: choose(one[kind].get(area, 0), other[kind].get(area, 0)) for area in {**one[kind], **other[kind]}}
        for kind in one
    }


def count_system_calls(story: str) -> int:
    """Return the lower tenth of the system calls of the engine's thread in a round, as strace shows them."""
    with open_folder() as folder:
        log = folder / "strace"
        run_measure(story, folder, "--rounds", before=("strace", "-qq", "-o", str(log)))
        lines = log.read_text(encoding="ascii", errors="replace").splitlines()
    begins = [at for at, line in enumerate(lines) if BEGIN.decode() in line]
    ends = [next(at for at in range(begin, len(lines)) if END.decode() in lines[at]) for begin in begins]
    return lower_tenth([end - begin - 1 for begin, end in zip(begins, ends, strict=True)])


def run_measure(story: str, folder: Path, *options: str, before: tuple[str, ...] = ()) -> str:
    argv = [*before, sys.executable, "-m", "tests.ratchet.measure", story, str(folder), *options]
    env = {**os.environ, "PYTHONPATH": f"{PROJECT}/src:{PROJECT}"}
    done = subprocess.run(argv, env=env, cwd=PROJECT, capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{story} could not be measured: {done.stderr[-2000:]}")
    return done.stdout


@contextmanager
def open_folder() -> Iterator[Path]:
    """Yield a folder with a workspace that the sandbox's user may write, outside of any private folder."""
    folder = Path(tempfile.mkdtemp(prefix="palyra-ratchet-", dir="/var/tmp"))
    try:
        folder.chmod(0o755)
        (folder / "workspace").mkdir()
        (folder / "workspace").chmod(0o755)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


NOISE = {"system_calls": 1.05}
"""How many times the record a busy machine may add: a reply in two pieces is one more read and one more wait."""


def rises(record: dict[str, Counts], measured: dict[str, Counts]) -> Iterator[str]:
    """Yield a line for each number of an area that is higher than the recorded one."""
    for story, kinds in measured.items():
        for kind, by_area in kinds.items():
            before = record.get(story, {}).get(kind, {})
            for area, now in by_area.items():
                if now > before.get(area, 0) * NOISE.get(kind, 1):
                    yield f"{story}: {kind} of {area} rose from {before.get(area, 0)} to {now}"
