"""docs/benchmarks.md from the records in bench/results: every row with its ratios and picture, and for every aim that
is missed why, and what would come next.

A missed aim of the published records without a reason here fails a test: no figure is published in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "bench" / "results"
ORDER = (
    *(
        "tier_c",
        "tier_c_srt",
        "tier_c_cold",
        "tier_b",
        "wasm",
        "wasm_jailed",
        "skills",
        "cedar",
        "cedar_cached",
        "cedar_growth",
    ),
    *("journal", "journal_single", "journal_verify", "journal_page", "http", "egress", "cli_version", "cli_run"),
)
_CALL = (
    "of a call the program itself is a third (much of that is its loader, asking a virtual processor what it can do), "
    "the writing of two durable commits a quarter, their statements and three signatures a sixth; the rest is some 600 "
    "steps of Python that find their caches cold: each takes two to three times what it takes when it is repeated at "
    "once. A processor that never sleeps, no garbage collection, and a core for the program alone changed nothing"
)
WHY: Mapping[tuple[str, str], tuple[str, str]] = {
    ("tier_c", "cold bwrap true"): (
        _CALL,
        "starting the program while the intent is written, stopped before its first instruction, may save a tenth; "
        "going through the last steps ahead while it runs was tried, and took more processor time than it saved",
    ),
    ("tier_c", "sandlock"): (
        "sandlock's child has no namespaces, no policy and no journal. A bare Popen between two fsyncs, in the same "
        "table, takes most of what the aim leaves room for; a warm launch between two appends to the journal, which "
        "decides, keeps and attests nothing, takes more than all of it",
        "nothing: the aim needs a call that is not durable before it runs, which is not offered",
    ),
    ("tier_c", "bare Popen"): (
        f"a warm launch between two appends to the journal, in the same table, takes about as much as the aim; {_CALL}",
        "as above",
    ),
    ("tier_c_cold", "cold bwrap true"): (
        "for every bind and remount the launcher reads the whole mount table, a tenth of a millisecond each: the plan "
        "has six where the least sandbox has four; its filter is tried by the kernel with every call there is; a "
        "start program comes before the program; then every mount is verified while the launcher waits",
        "nothing of that size: what is verified before it goes on is a seventh of a millisecond of Python by now",
    ),
    ("tier_b", "bare asyncio"): (
        "as in tier C, without namespaces: two durable commits and three signatures are a third of it",
        "the same steps as for tier C",
    ),
    ("wasm", "extism, compiled plugin"): (
        "held by a hair or missed by one, from day to day; a store of its own and its bounds are all that is left",
        "nothing: the bounds stay",
    ),
    ("journal_single", "raw fsync"): (
        "what an append adds to the disk's own sync is about a tenth of a millisecond of a processor whose caches are "
        "cold after each wait, however long the disk takes: the aim holds where a sync takes 0.17 ms or more (it was "
        "chosen for one of 0.25 to 0.3) and is missed on a faster disk. Two rows through SQLite and a signature (some "
        "20 µs, by libsodium), in the same table, take most of it; hashing, writing the entry, locks and the look at "
        "the folder are the rest. As one flat function without any structure it took 1.5 to 1.6",
        "a faster Ed25519, if a well-kept library offers one (AWS-LC's takes half as long). Signing while the disk "
        "writes needs another seal of the head in the transaction and leaves the newest entries without a checkpoint "
        "for a moment: not done, because everything that lies on the disk is signed",
    ),
    ("http", "bare Starlette echo"): (
        "a quarter is the server, the same for both; an eighth are statements, a tenth what a daemon checks and makes "
        "before a call, a twentieth each the signature and the pages of a shared commit; the rest is the walk, some "
        "hundreds of small steps in Python",
        "the openings of an entry in one row; a connection of its own that is kept for copying the log back",
    ),
    ("cli_run", "cold bwrap true"): (
        "half of it is Python importing what a call needs, anew in each process; with a daemon most of that is done "
        "already, and `palyra run` goes through it by itself",
        "fewer modules on the way of one call",
    ),
}

UNKNOWN = ("not looked into yet", "a profile")


def make_bench() -> Iterator[str]:
    records = {name: _record(name) for name in ORDER}
    machine = records["tier_c"]["machine"]
    yield "# Benchmarks"
    yield (
        "`make bench` measures each pair in one process run, interleaved round by round, and writes these records; the "
        "pictures and this page are made from them. A ratio is that of the medians; in brackets the middle half of the "
        "rounds. Peers run without policy, journal and signature, so ours is measured against less work. No test "
        "asserts a time. A peer that cannot be installed is reported as missing, never invented."
    )
    yield (
        f"The machine of these figures: {machine['processor']}, {machine['cores']} cores, kernel {machine['kernel']}, "
        f"{machine['python']}, bubblewrap {machine['bubblewrap']}; started by {machine['started_by']}, state on "
        f"{machine['state_file_system']}. A virtual machine among others: run it on yours."
    )
    yield _table(records)
    yield from _missed(records)
    for record in records.values():
        yield from _row(record)
    yield from _growth(_record("growth"))
    yield "Many machines have a page of their own: [what a cluster costs](scale.md)."


def _record(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _table(records: Mapping[str, Any]) -> str:
    rows = ["| row | beside | ratio | aim | |", "|---|---|---|---|---|"]
    for record in records.values():
        rows += [
            f"| {_plain(record['title'])} | {ratio['peer']} | {_times(ratio['of_medians'])} | "
            f"≤ {_times(ratio['aim_at_most'])} | {'holds' if ratio['holds'] else '**missed**'} |"
            for ratio in record["ratios"]
            if ratio["aim_at_most"] is not None
        ]
    return "\n".join(rows)


def _missed(records: Mapping[str, Any]) -> Iterator[str]:
    missed = [
        (name, ratio) for name, record in records.items() for ratio in record["ratios"] if ratio["holds"] is False
    ]
    if not missed:
        return
    yield "## What is missed, why, and what comes next"
    lines = []
    for name, ratio in missed:
        why, then = WHY.get((name, ratio["peer"]), UNKNOWN)
        lines.append(
            f"- **{_plain(records[name]['title'])}**, {_times(ratio['of_medians'])} × {ratio['peer']} instead of "
            f"{_times(ratio['aim_at_most'])}: {why}. Next: {then}."
        )
    yield "\n".join(lines)


def _row(record: Any) -> Iterator[str]:
    yield f"## {_plain(record['title'])}"
    yield f"![{_plain(record['title'])}](bench/{record['row']}.svg)"
    rows = ["| | median | 95 of 100 |", "|---|---|---|"]
    rows += [f"| {one['name']} | {_shown(one['p50_us'])} | {_shown(one['p95_us'])} |" for one in record["timings"]]
    yield "\n".join(rows)
    said = [
        f"{_times(one['of_medians'])} × {one['peer']} ({_times(one['p25'])}–{_times(one['p75'])})"
        for one in record["ratios"]
    ]
    absent = [f"{one['name']} is missing: {one['why']}." for one in record["missing"]]
    yield " ".join([f"Ours is {', '.join(said)}; {record['rounds']} rounds.", record["note"], *absent])


def _growth(record: Any) -> Iterator[str]:
    yield "## Calls at once, tier C"
    yield "![Calls at once](bench/growth.svg)"
    rows = ["| at once | median | 95 of 100 | calls a second |", "|---|---|---|---|"]
    rows += [
        f"| {step['parallel']} | {step['p50_ms']:.1f} ms | {step['p95_ms']:.1f} ms | {step['calls_per_s']:.0f} |"
        for step in record["steps"]
    ]
    yield "\n".join(rows)
    idle = record["idle_warm_sandbox"]
    yield f"A warm sandbox that waits costs {idle['pss_kib_each']:.0f} KiB of its own (PSS)."


def _plain(title: str) -> str:
    return title.replace("|", "/")


def _shown(microseconds: int) -> str:
    return f"{microseconds / 1000:.2f} ms" if microseconds < 100_000 else f"{microseconds / 1000:.0f} ms"


def _times(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"1/{1 / value:.0f}"
