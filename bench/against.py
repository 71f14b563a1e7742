"""`python -m bench.against COMMIT [ROW …]`: measures this tree beside the tree of an earlier commit.

The earlier tree lies below .make/against with an environment of its own. Both trees run their own side of a row, in a
process each, round by round in a shuffled order, so that a noisy moment hits both. Each round gives one ratio, ours by
theirs. A gate is missed when the lower quartile of these ratios is above it. The peers of a row are not started.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.harness import Ratio, collect, make_ratio
from bench.peers import PROJECT, ask_worker

ROWS = (
    "tier_c",
    "tier_c_cold",
    "tier_b",
    "http",
    "cli_run",
    "cli_version",
    "cedar",
    "journal",
    "journal_single",
    "journal_verify",
    "journal_page",
    "egress",
    "wasm",
    "callers",
)
FOLDER = PROJECT / ".make" / "against"
WORKER = PROJECT / "bench" / "against_worker.py"
SLOW_ROWS = {"journal_verify": 5, "egress": 15, "journal": 20}
"""The most rounds of a row whose one round takes a second or more."""
TREES = ("this tree", "that commit")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.against", description="This tree beside an earlier commit.")
    parser.add_argument("commit")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"any of {', '.join(ROWS)}; all when none is named")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--gate", type=float, default=1.05, help="how many times as long a row may take")
    args = parser.parse_args(argv)
    unknown = [row for row in args.rows if row not in ROWS]
    if unknown or args.rounds < 1:
        parser.error(f"no such row: {' '.join(unknown)}" if unknown else "--rounds must be at least 1")
    base = prepare_tree(args.commit)
    verdicts = [report_row(row, base, args.rounds, args.gate) for row in args.rows or ROWS]
    return 0 if all(verdicts) else 1


def prepare_tree(commit: str) -> Path:
    """Return the folder of the commit's tree, with its own environment; made on first use."""
    git = ["git", "-C", str(PROJECT), "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"]
    sha = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    if not sha:
        raise SystemExit(f"bench: there is no commit {commit!r} here")
    folder = FOLDER / sha[:12]
    if not (folder / ".venv" / ".ready").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        archive = subprocess.run(["git", "-C", str(PROJECT), "archive", sha], capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
        subprocess.run(["make", "--no-print-directory", "-C", str(folder), "dev"], check=True)
    return folder


def report_row(row: str, base: Path, rounds: int, gate: float) -> bool:
    """Measure one row in both trees and print its ratio; False when the gate is missed or a side does not run."""
    try:
        ratio = measure_row(row, base, min(rounds, SLOW_ROWS.get(row, rounds)), gate)
    except RuntimeError as error:
        print(f"{row:<16} not measured: {error}", flush=True)
        return False
    missed = ratio.p25 > gate
    verdict = f"MISSED (gate {gate})" if missed else "holds"
    print(f"{row:<16} {ratio.of_medians:5.3f}   quartiles {ratio.p25:.3f} to {ratio.p75:.3f}   {verdict}", flush=True)
    return not missed


def measure_row(row: str, base: Path, rounds: int, gate: float) -> Ratio:
    ours, theirs = TREES
    with open_side(row, PROJECT) as this_run, open_side(row, base) as that_run:
        samples = collect([(ours, this_run), (theirs, that_run)], rounds, warm_up=1 if row in SLOW_ROWS else 5)
    return make_ratio(samples[ours], samples[theirs], peer=theirs, aim=gate)


@contextmanager
def open_side(row: str, tree: Path) -> Iterator[Callable[[], int]]:
    """Start the worker under a tree's own python; the value does one round and returns its nanoseconds."""
    argv = [str(tree / ".venv" / "bin" / "python"), str(WORKER), str(tree), row]
    env = {**os.environ, "PYTHONPATH": str(tree)}
    process = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, cwd=tree, env=env
    )
    try:
        yield lambda: ask_worker(process)
    finally:
        assert process.stdin
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
