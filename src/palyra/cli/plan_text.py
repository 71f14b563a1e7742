"""How a plan looks to a person: what would run, where, what it may touch. Pure: values in, lines out.

Rules: everything a caller chose is spelled with its control characters visible and quoted on its own; the launcher's
words are one line that a shell would read the same way, the last one, because it is long. Used by `palyra sandbox
explain`; every field as it is has `--json`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

from palyra.canon import Json
from palyra.cli.approval_text import quoted
from palyra.cli.render import visible_line

LABEL_CHARS = 12
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def row(label: str, text: str) -> str:
    return f"{label:{LABEL_CHARS}}{visible_line(text)}"


def size(count: int) -> str:
    unit = 0
    while count >= 1024 and count % 1024 == 0 and unit < len(_UNITS) - 1:
        count, unit = count // 1024, unit + 1
    return f"{count} {_UNITS[unit]}"


def seconds(count_ms: int) -> str:
    return f"{count_ms / 1000:g} s"


def plan_lines(shown: Mapping[str, Json]) -> list[str]:
    """Of what `palyra sandbox explain --json` prints."""
    refused, plan = shown.get("refused"), shown.get("plan")
    lines = []
    if refused is not None:
        lines += [row("refused", f"{refused['reason']}: {refused['message']}")]
        lines += [row("hint", str(refused["hint"]))] if refused["hint"] else []
    if plan is not None:
        lines += _program(plan) if plan.get("kind") == "process" else [row("runs", str(plan.get("kind")))]
    if "where" in shown:
        lines.append(row("where", str(shown["where"])))
    return lines


def _program(plan: Mapping[str, Json]) -> Iterator[str]:
    limits, net = plan["limits"], plan["net"]
    yield row("would run", " ".join(quoted(str(word)) for word in plan["argv"]))
    yield row("program", f"{plan['program']} sha256 {str(plan['program_sha256'])[:16]}")
    yield row("sandbox", f"tier {plan['tier']}, {plan['backend']} ({plan['executor']})")
    yield row("folder", str(plan["cwd"]))
    for kind, place in plan["closed"]:
        if kind in ("protected", "copied", "link"):
            yield row("a copy of" if kind == "copied" else "read-only", str(place))
    yield row("network", f"{net['mode']}; hosts granted: {', '.join(net['allowed_hosts']) or 'none'}")
    yield row(
        "limits",
        f"{seconds(limits['wall_ms'])}, {seconds(limits['cpu_ms'])} of processor time, {size(limits['memory_bytes'])} "
        f"of memory, {limits['processes']} processes, {size(limits['output_bytes'])} of output",
    )
    yield row("guaranteed", ", ".join(plan["guarantees"]) or "nothing")
    yield from (row("missing", str(text)) for text in plan["degraded"])
    yield row("environment", " ".join(f"{name}={quoted(str(value))}" for name, value in plan["env"]))
    if plan["launcher"]:
        yield row("started by", shlex.join(str(word) for word in plan["launcher"]))
