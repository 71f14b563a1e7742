"""How long an agent's host waits for its hook: beside a bare interpreter, with a daemon and without one.

    python -m bench.hook [--rounds 60]

Rows: `bare` is `python -I -S -c pass`, what any hook in Python costs at least; `daemon` is the hook with a daemon on
its Unix socket, decided by policy and journaled; `embedded` opens the home itself. Ratios are of medians, taken in
turns in one run; the aim is daemon ≤ 3 × bare.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

SRC = Path(__file__).parents[1] / "src"
ENTRY = SRC / "palyra" / "cli" / "hook_entry.py"
EVENT = {
    "session_id": "bench",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "git status && ls -la"},
}


def timed(words: Sequence[str], given: bytes) -> float:
    start = time.perf_counter()
    done = subprocess.run(words, input=given, capture_output=True)
    took = time.perf_counter() - start
    assert done.returncode == 0, done.stderr
    return took * 1000


@contextmanager
def daemon(home: Path) -> Iterator[None]:
    words = [sys.executable, "-m", "palyra", "--home", str(home), "serve", "--port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdout is not None
        running.stdout.readline()
        try:
            yield
        finally:
            running.terminate()
            running.wait(30)


def measure(rounds: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="palyra-bench-hook-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        home, workspace = place / "home", place / "workspace"
        workspace.mkdir()
        event = json.dumps(EVENT | {"cwd": str(workspace)}).encode()
        bare = [sys.executable, "-I", "-S", "-c", "pass"]
        hook = [sys.executable, "-I", "-S", str(ENTRY), "claude-code", str(home)]
        found: dict[str, list[float]] = {"bare": [], "daemon": [], "embedded": []}
        for _ in range(max(3, rounds // 10)):
            found["embedded"].append(timed(hook, event))
        with daemon(home):
            timed(hook, event)
            for _ in range(rounds):
                found["bare"].append(timed(bare, b""))
                found["daemon"].append(timed(hook, event))
        return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    found = measure(parser.parse_args().rounds)
    bare = statistics.median(found["bare"])
    for name, values in found.items():
        median = statistics.median(values)
        print(f"{name:>9}: {median:7.1f} ms   {median / bare:5.2f} × bare   ({len(values)} rounds)")
    return 0 if statistics.median(found["daemon"]) <= 3 * bare else 1


if __name__ == "__main__":
    sys.exit(main())
