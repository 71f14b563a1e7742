"""`python -m bench [ROW …] [--rounds N]`: runs the rows, prints them, writes bench/results and docs/bench.

A row whose own side is missing is printed too, and makes the exit code 1: a benchmark without us is no benchmark.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from bench.growth import measure_growth
from bench.harness import Ratio, Result, measure
from bench.installation import open_ground
from bench.machine import MEMORY_FILE_SYSTEMS, read_machine
from bench.plot import draw, draw_growth

ROWS = (
    "tier_b",
    "tier_c",
    "tier_c_srt",
    "tier_c_cold",
    "cedar",
    "cedar_cached",
    "cedar_growth",
    "journal",
    "journal_single",
    "journal_verify",
    "journal_page",
    "egress",
    "wasm",
    "wasm_jailed",
    "cli_version",
    "cli_run",
    "skills",
    "http",
)
GROWTH = "growth"
PROJECT = Path(__file__).parents[1]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench", description="Palyra beside its peers, as ratios.")
    names = (*ROWS, GROWTH)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"any of {', '.join(names)}; all when none is named")
    parser.add_argument("--rounds", type=int, default=60)
    args = parser.parse_args(argv)
    unknown = [row for row in args.rows if row not in names]
    if unknown or args.rounds < 1:
        parser.error(f"no such row: {' '.join(unknown)}" if unknown else "--rounds must be at least 1")
    wanted = args.rows or names
    results = [run_row(name, args.rounds) for name in wanted if name != GROWTH]
    if GROWTH in wanted:
        run_growth()
    return 0 if all(result.ratios for result in results) else 1


def run_growth() -> None:
    with open_ground() as ground:
        machine = read_machine(ground.home)
        steps, idle = measure_growth(ground)
    print("Tier C calls at once, end to end")
    for step in steps:
        print(
            f"  {step.parallel:>3} at once: p50 {step.p50_ms:8.2f} ms   p95 {step.p95_ms:8.2f} ms   "
            f"{step.calls_per_s:7.1f} calls/s"
        )
    print(
        f"  an idle warm sandbox: {idle.pss_kib_each:.0f} KiB of its own (PSS), {idle.unavailable_kib_each:.0f} KiB "
        f"less available on the machine (mean of {idle.sandboxes})",
        end="\n\n",
    )
    record = {
        "row": GROWTH,
        "machine": dict(machine),
        "steps": [asdict(step) for step in steps],
        "idle_warm_sandbox": asdict(idle),
    }
    write(GROWTH, record, draw_growth(steps, idle))


def run_row(name: str, rounds: int) -> Result:
    module = importlib.import_module(f"bench.{name}")
    with open_ground() as ground:
        machine = read_machine(ground.home)
        with module.open_row(ground) as row:
            result = measure(row, rounds)
    print("\n".join(describe(result, machine)), end="\n\n")
    if result.ratios:
        keep(result, machine)
    return result


def describe(result: Result, machine: Mapping[str, str | int | float]) -> Iterator[str]:
    yield f"{result.row.title}  ({result.rounds} rounds, interleaved)"
    for timing in result.timings:
        yield f"  {timing.name:<18} p50 {timing.p50_ns / 1e6:8.2f} ms   p95 {timing.p95_ns / 1e6:8.2f} ms"
    for name, why in result.missing:
        yield f"  {name:<18} missing: {why}"
    for ratio in result.ratios:
        yield f"  ours is {describe_ratio(ratio)}"
    yield f"  {result.row.note}"
    yield (
        f"  {machine['processor']}, {machine['cores']} cores, kernel {machine['kernel']}, {machine['python']}, "
        f"bubblewrap {machine['bubblewrap']}; started by {machine['started_by']}; state on "
        f"{machine['state_file_system']}"
    )
    if float(machine["load_1m"]) > float(machine["cores"]):
        yield f"  the machine was busy (load {machine['load_1m']}): other work ran between these rounds"
    if machine["state_file_system"] in MEMORY_FILE_SYSTEMS:
        yield "  the state lies in memory: durable writes were free, read these ratios with care"


def describe_ratio(ratio: Ratio) -> str:
    aim = ratio.aim if ratio.aim is None or ratio.aim >= 0.1 else _times(ratio.aim)
    verdict = {None: "", True: f"; aim ≤ {aim}: holds", False: f"; aim ≤ {aim}: MISSED"}[ratio.holds]
    middle = f"{_times(ratio.p25)}–{_times(ratio.p75)}"
    return f"{_times(ratio.of_medians)} × {ratio.peer} (middle half {middle}){verdict}"


def _times(value: float) -> str:
    """Two digits that mean something: 0.42, and 1/42 for what is far less."""
    return f"{value:.2f}" if value >= 0.1 else f"1/{1 / value:.0f}"


def keep(result: Result, machine: Mapping[str, str | int | float]) -> None:
    """The record as JSON, and its picture."""
    record = {
        "row": result.row.name,
        "title": result.row.title,
        "note": result.row.note,
        "rounds": result.rounds,
        "machine": dict(machine),
        "timings": [
            {"name": t.name, "p50_us": t.p50_ns // 1000, "p95_us": t.p95_ns // 1000, "least_us": t.least_ns // 1000}
            for t in result.timings
        ],
        "ratios": [
            {"peer": r.peer, "of_medians": round(r.of_medians, 5), "p25": round(r.p25, 5), "p75": round(r.p75, 5),
             "aim_at_most": r.aim, "holds": r.holds}
            for r in result.ratios
        ],
        "missing": [{"name": name, "why": why} for name, why in result.missing],
    }  # fmt: skip
    write(result.row.name, record, draw(result))


def write(name: str, record: Mapping[str, object], picture: str) -> None:
    for folder in ("bench/results", "docs/bench"):
        (PROJECT / folder).mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (PROJECT / "bench/results" / f"{name}.json").write_text(text, encoding="utf-8")
    (PROJECT / "docs/bench" / f"{name}.svg").write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
