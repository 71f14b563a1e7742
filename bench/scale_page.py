"""The tables of docs/scale.md, written from the record, so that the page says what was measured last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BEGIN, END = "<!-- from bench/results/scale.json -->", "<!-- until here -->"
AIM_MS, AIM_TIMES = 4.0, 1.6


def put_tables(page: str, record: Mapping[str, Any]) -> str:
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{tables(record)}\n\n{END}{after}"


def tables(record: Mapping[str, Any]) -> str:
    parts = [_costs(record), _throughput(record), _aim(record), _model(record)]
    return "\n\n".join(parts)


def _costs(record: Mapping[str, Any]) -> str:
    cpu = [row["daemon_cpu_ms"] for row in record["throughput"]]
    here, there = (
        f"{record[f'call_{name}_p50_ms']:.1f} ms (least {record[f'call_{name}_least_ms']:.1f})"
        for name in ("here", "there")
    )
    rows = [
        ("a durable entry on PostgreSQL, alone", f"{record['commit_alone_ms']:.1f} ms (the least of many)"),
        ("the same with 64 callers at once", f"{record['entry_of_64_ms']:.1f} ms an entry"),
        ("a tier C call where the daemon is, warm", here),
        ("the same call on a node", f"{there}: {record['added_p50_ms']:.1f} ms more in the median"),
        ("the daemon's own processor time for a dispatched call", f"{min(cpu):.1f}–{max(cpu):.1f} ms"),
        ("looking at a workspace of 1000 files again", f"{record['look_again_1000_files_ms']:.0f} ms"),
        (
            "laying 1000 files out on a node for the first time",
            f"{record['lay_out_1000_files_ms']:.0f} ms; later calls bring only what differs",
        ),
    ]
    if "call_asked_p50_ms" in record:
        asked = f"{record['call_asked_p50_ms']:.1f} ms (least {record['call_asked_least_ms']:.1f})"
        rows.insert(4, ("a question to the node by Ray that it answers at once", asked))
    if "call_by_ray_p50_ms" in record:
        by_ray = f"{record['call_by_ray_p50_ms']:.1f} ms (least {record['call_by_ray_least_ms']:.1f})"
        rows.insert(4, ("the same with its order carried by Ray (`lines = false`)", by_ray))
    return "\n".join(["| part | cost |", "|---|---|", *(f"| {name} | {cost} |" for name, cost in rows)])


def _throughput(record: Mapping[str, Any]) -> str:
    found = {(row["nodes"], row["program"]): row["calls_per_s"] for row in record["throughput"]}
    lines = ["| nodes (two slots each) | calls a second, programs that wait 100 ms | programs that end at once |"]
    lines.append("|---|---|---|")
    counts = sorted({nodes for nodes, _ in found})
    return "\n".join(lines + [f"| {n} | {found[n, 'waiting']:.1f} | {found[n, 'busy']:.1f} |" for n in counts])


def _aim(record: Mapping[str, Any]) -> str:
    said = [f"on its line {_judged(record, 'there')}"]
    if "call_by_ray_p50_ms" in record:
        said.append(f"with Ray carrying the order {_judged(record, 'by_ray')}")
    return f"The aim, a call on a node within {AIM_MS:.0f} ms of or {AIM_TIMES} × a call here: {'; '.join(said)}."


def _judged(record: Mapping[str, Any], name: str) -> str:
    here, there = record["call_here_p50_ms"], record[f"call_{name}_p50_ms"]
    is_met = there - here <= AIM_MS or there <= AIM_TIMES * here
    return f"{'met' if is_met else '**not met**'} in this record ({there - here:+.1f} ms, {there / here:.1f} ×)"


def _model(record: Mapping[str, Any]) -> str:
    head = "| nodes | daemons | a program runs | calls a second | busy: daemons | sequencer | slots | limit |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for row in record["model"]:
        if row["daemons"] == 3:
            busy = " | ".join(f"{100 * row[f'{name}_busy']:.0f} %" for name in ("daemons", "sequencer", "slots"))
            told = f"{row['program_ms'] / 1000:g} s"
            lines.append(f"| {row['nodes']} | 3 | {told} | {row['calls_per_s']:.0f} | {busy} | {row['limit']} |")
    return "\n".join(["With those costs, three daemons and 16 slots a node, simulated:", "", *lines])
