"""`python -m tests.fuzz --seconds N [target …]`: random bytes against every parser, so long for each target.

With atheris (coverage-guided, requirements/fuzz.txt) where this Python has it, otherwise with Hypothesis, which knows
nothing of coverage; the first line says which. Exit 1: a promise is broken; the bytes are printed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

MAX_BYTES = 2048


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def run_atheris(name: str, seconds: int, corpus: str) -> None:
    """Never returns: libFuzzer ends the process."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["palyra"]):
        targets = importlib.import_module("tests.fuzz.targets")
    for at, seed in enumerate(targets.SEEDS[name]):
        Path(corpus, str(at)).write_bytes(seed)
    options = [f"-max_total_time={seconds}", f"-max_len={MAX_BYTES}", f"-artifact_prefix={corpus}/", "-verbosity=0"]
    counted = _Counted(targets.TARGETS[name], name, time.monotonic() + seconds - 1)
    atheris.Setup([sys.argv[0], *options, "-print_final_stats=1", corpus], counted)
    atheris.Fuzz()


class _Counted:
    """The target, and one line of figures near the end: libFuzzer leaves no other moment for it."""

    def __init__(self, target, name: str, until: float) -> None:
        self._target, self._name, self._until = target, name, until
        self._runs = 0

    def __call__(self, data: bytes) -> None:
        try:
            self._target(data)
        except BaseException:
            say(f"{self._name}: broken by {data!r}")
            raise
        self._runs += 1
        if time.monotonic() > self._until:
            say(f"{self._name}: {self._runs} inputs, nothing broken")
            self._until = float("inf")


def run_hypothesis(name: str, seconds: int) -> None:
    targets = importlib.import_module("tests.fuzz.targets")
    pieces = st.sampled_from([seed[at : at + 16] for seed in targets.SEEDS[name] for at in range(0, len(seed), 16)])
    inputs = st.lists(pieces | st.binary(max_size=16) | st.sampled_from(targets.SEEDS[name]), max_size=12)
    runs = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:

        @settings(
            max_examples=500,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @given(inputs.map(b"".join))
        def attempt(data: bytes) -> None:
            targets.TARGETS[name](data)

        attempt()
        runs += 500
    say(f"{name}: {runs} inputs, nothing broken")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        run_atheris(asked.one, asked.seconds, asked.corpus)
    known = list(importlib.import_module("tests.fuzz.targets").TARGETS)
    unknown = set(asked.targets) - set(known)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    has_atheris = importlib.util.find_spec("atheris") is not None
    say(f"fuzzing with {'atheris' if has_atheris else 'Hypothesis, for atheris is not installed'}")
    for name in asked.targets or known:
        if not has_atheris:
            run_hypothesis(name, asked.seconds)
            continue
        with tempfile.TemporaryDirectory(prefix="palyra-fuzz-") as corpus:
            command = [sys.executable, "-m", "tests.fuzz", "--one", name, "--seconds", str(asked.seconds)]
            done = subprocess.run([*command, "--corpus", corpus], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            say(f"{name}: broken\n{done.stderr[-4000:]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
