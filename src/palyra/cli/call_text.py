"""How a call of the journal looks to a person: who, what, how it was decided, how it ended, where it stands. Pure.

Rules: tool output and everything a caller chose is hostile, so control characters are spelled out and long texts cut,
which is said; what was removed or never kept is named as such. Used by `palyra journal show`; all of it has `--json`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from palyra.canon import Json
from palyra.cli.approval_text import clock
from palyra.cli.plan_text import row
from palyra.cli.render import visible_line
from palyra.engine.hints import split_hint

MAX_TEXT_CHARS = 400
MAX_CALLED_CHARS = 48
MAX_OUTPUT_LINES = 12


def call_lines(shown: Mapping[str, Json]) -> list[str]:
    """Of what `palyra journal show ID --json` prints, for a call or for one entry."""
    lines: list[str] = []
    if "call_id" in shown:
        lines += [row("call", str(shown["call_id"]))]
        lines += _about(shown)
    for entry in shown.get("entries", ()):
        lines += _entry(entry)
    return lines


def _about(shown: Mapping[str, Json]) -> Iterator[str]:
    outcome: Mapping[str, Any] = shown.get("outcome") or {}
    details: Mapping[str, Any] = shown.get("details") or {}
    if "principal" in shown:
        door = f" through {details['door']}" if details.get("door") else ""
        yield row("who", f"{shown['principal']}{door}")
    if outcome.get("tool"):
        yield row("tool", str(outcome["tool"]))
    if "input" in details:
        yield row("input", _cut(_json(details["input"])))
    if "run_id" in shown:
        yield row("run", str(shown["run_id"]))
    yield row("ended", _ended(shown, outcome))
    if outcome.get("message"):
        yield row("", str(outcome["message"]))
    if outcome.get("hint"):
        agents, operators = split_hint(str(outcome["hint"]))
        yield from [row("hint", agents)] if agents else []
        yield from [row("operator", operators)] if operators else []
    if outcome.get("operator_hint"):
        yield row("allow", str(outcome["operator_hint"]))
    yield from _decided(details)
    yield from _output(outcome.get("output") or {})
    attestation = outcome.get("attestation") or {}
    if attestation:
        yield row("executor", f"{attestation['executor']}, signed by key {attestation['key_id']}")
    if not outcome:
        yield row("", _without_outcome(str(shown.get("status", ""))))


def called(details: Mapping[str, Any]) -> str:
    """Return what a call named, in a few words: its command line, URL or path, else its input."""
    given = details.get("input")
    if not isinstance(given, dict) or not given:
        return ""
    if isinstance(given.get("command"), str):
        args = given.get("args")
        return _brief(shlex.join(map(str, [given["command"], *(args if isinstance(args, list) else ())])))
    return _brief(next((str(given[name]) for name in ("url", "path") if given.get(name)), "") or _json(given))


def _brief(text: str) -> str:
    return text if len(text) <= MAX_CALLED_CHARS else text[: MAX_CALLED_CHARS - 1] + "…"


def _without_outcome(status: str) -> str:
    match status:
        case "":  # no row of its own
            return "It waits for a person, or did: palyra approvals list --state all names the request."
        case "open":
            return "It has no outcome yet: it runs, or the process that ran it died and the next start closes it."
        case _:
            return "Its outcome and details are no longer kept; its journal entries are."


def _ended(shown: Mapping[str, Json], outcome: Mapping[str, Any]) -> str:
    if shown.get("status", "open") == "open":
        return "not yet"
    code = f", {outcome['reason']}" if outcome.get("reason") else ""
    exit_code = (outcome.get("output") or {}).get("exit_code")
    exited = f", exit code {exit_code}" if exit_code is not None else ""
    usage = outcome.get("usage") or {}
    took = f", after {usage['wall_us'] / 1000:g} ms" if usage else ""
    return f"{shown['status']}{code}{exited}{took}"


def _decided(details: Mapping[str, Any]) -> Iterator[str]:
    decision = details.get("decision")
    if decision:
        bundle = f", bundle {str(details.get('policy_sha256'))[:16]}"
        yield row("decided", f"{decision['effect']} by {', '.join(decision['policies']) or 'no policy'}{bundle}")
    shadow = details.get("shadow")
    if shadow:
        by = f"{shadow['effect']} by {', '.join(shadow['policies']) or 'no policy'}" if "effect" in shadow else ""
        yield row("candidate", by or f"could not be used: {shadow.get('error')}")


def _output(output: Mapping[str, Any]) -> Iterator[str]:
    if "stdout" in output and "stderr" in output:
        for name in ("stdout", "stderr"):
            yield from _stream(name, str(output[name]))
    elif output:
        yield row("output", _cut(_json(output)))


def _stream(name: str, text: str) -> Iterator[str]:
    lines = text.splitlines()
    for at, line in enumerate(lines[:MAX_OUTPUT_LINES]):
        yield row(name if at == 0 else "", _cut(line))
    if len(lines) > MAX_OUTPUT_LINES:
        yield row("", f"… {len(lines) - MAX_OUTPUT_LINES} lines more: --json")


def _entry(entry: Mapping[str, Json]) -> Iterator[str]:
    body: Mapping[str, Any] = entry.get("entry") or {}
    predicate: Mapping[str, Any] = body.get("predicate") or {}
    kind = str(body.get("predicateType", "")).removeprefix("urn:palyra:").removesuffix(":v1")
    place = predicate.get("place") or {}
    said = " ".join(
        str(predicate[name])
        for name in ("act", "tool", "status", "reason", "principal", "by", "call_id")
        if predicate.get(name)
    )
    yield row("entry", f"{entry['index']}  {clock(place.get('at_unix_ms'))}  {kind}  {said}")
    if kind == "act":
        yield row("", _cut(_json({name: value for name, value in predicate.items() if name not in ("act", "place")})))
    yield row("", f"leaf {entry['leaf_hash']}")


def _json(value: Json) -> str:
    return orjson.dumps(value).decode()


def _cut(text: str) -> str:
    text = visible_line(text)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}… ({len(text)} characters; see --json)"
