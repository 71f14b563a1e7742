"""How an approval looks to a person: one line a fact, exactly as it would run. Pure: values in, lines out.

Rules: everything a caller chose (arguments, names, folders, variables) is spelled with its control, bidi and format
characters visible and every argument quoted on its own, so that no argument can look like another, like two, or like
the next line of this text. Used by `palyra approvals show` and by the question at a terminal.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import orjson

from palyra.canon import Json
from palyra.cli.render import visible_line
from palyra.model.approval import Approval, ApprovalState, Fatigue
from palyra.model.visible import spell_spaces

MAX_VALUE_CHARS = 2000


def quoted(text: str) -> str:
    """One argument: in quotes, with backslashes and quotes inside escaped before anything is spelled out."""
    return '"' + spell_spaces(visible_line(text.replace("\\", "\\\\").replace('"', '\\"'))) + '"'


def clock(unix_ms: int | None) -> str:
    if unix_ms is None:
        return "-"
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def lines(approval: Approval, shown: Mapping[str, Json]) -> list[str]:
    """Who, what exactly, where, with which network, and why somebody is asked."""
    out = [
        f"approval   {approval.approval_id} ({standing(approval)})",
        f"who        {approval.principal} through {_plain(shown.get('door'))}",
        f"tool       {visible_line(approval.tool)}",
    ]
    if "argv" in shown:
        out += _program_lines(shown)
    else:
        out += _input_lines(shown.get("input"))
    out += [f"risk       {visible_line(str(risk))}" for risk in shown.get("risks", ())]
    out += [f"asked by   {visible_line(p['id'])}: {visible_line(p['reason'])}" for p in shown.get("policies", ())]
    out.append(f"asked      {clock(approval.asked_unix_ms)}, expires {clock(approval.expires_unix_ms)}")
    return out


def _input_lines(given: Json) -> list[str]:
    """A line a field, each cut by itself: no content is so long that the path it goes to is out of sight."""
    if not isinstance(given, Mapping):
        return [f"input      {_json(given)}"]
    fields = sorted(given.items(), key=lambda item: len(str(item[1])))
    return [f"input      {quoted(name)}: {spell_spaces(_json(value))}" for name, value in fields]


def _program_lines(shown: Mapping[str, Json]) -> list[str]:
    network = shown.get("network") or {}
    hosts = ", ".join(str(host) for host in network.get("allowed_hosts", ())) or "none"
    named = ", ".join(str(host) for host in shown.get("hosts_named", ())) or "none"
    return [
        f"program    {quoted(str(shown.get('program')))} sha256 {str(shown.get('program_sha256'))[:16]}",
        f"argv       {' '.join(quoted(str(word)) for word in shown.get('argv', ()))}",
        f"cwd        {quoted(str(shown.get('cwd')))}",
        f"workspace  {quoted(str(shown.get('workspace')))}",
        f"network    {_plain(network.get('mode'))}; hosts granted: {visible_line(hosts)}; named: {visible_line(named)}",
        f"sandbox    tier {_plain(shown.get('tier'))}, {_plain(shown.get('backend'))}",
        f"stdin      {_stdin(shown)}",
        f"reads secrets  {'yes' if 'secrets_read' in shown.get('capabilities', ()) else 'no'}",
    ]


def env_lines(shown: Mapping[str, Json]) -> list[str]:
    """The program's whole environment: part of what is approved, and long, so it stands last."""
    return [f"env        {visible_line(str(name))}={quoted(str(value))}" for name, value in shown.get("env", ())]


def _stdin(shown: Mapping[str, Json]) -> str:
    """With what stands in it: for an interpreter that is the program."""
    stdin, given = shown.get("stdin") or {}, shown.get("input") or {}
    if stdin.get("streamed"):
        return "streamed"
    text = str(given.get("stdin") or "")
    return f"{stdin.get('bytes', 0)} bytes" + (f": {_cut(quoted(text))}" if text else "")


def standing(approval: Approval) -> str:
    if approval.state is ApprovalState.APPROVED:
        if approval.scope == "once" and approval.uses:
            return f"approved by {approval.decided_by}, used"
        return f"approved by {approval.decided_by}, {_covers(approval)}until {clock(approval.valid_until_unix_ms)}"
    if approval.state is ApprovalState.DENIED:
        return f"denied by {approval.decided_by}, until {clock(approval.expires_unix_ms)}"
    if approval.state is ApprovalState.REVOKED:
        return f"{'approved' if approval.scope else 'denied'} by {approval.decided_by}, revoked"
    return approval.state.value


def _covers(approval: Approval) -> str:
    """How much more than this one call: whoever looks at the grants sees the widest of them as what it is."""
    matching = f"for {_pattern(approval.pattern)}, " if approval.pattern else ""
    return matching + {"once": "once, ", "run": "for its run, "}.get(str(approval.scope), "")


def _pattern(pattern: str) -> str:
    return " ".join(quoted(word) for word in orjson.loads(pattern))


def decision_lines(approval: Approval) -> list[str]:
    out = []
    if approval.self_approved:
        out.append("decided    by who made the call, at its terminal (self-approved)")
    if approval.note:
        out.append(f"reason     {visible_line(approval.note)}")
    if approval.pattern:
        out.append(f"pattern    {_pattern(approval.pattern)}")
    return out


def history_lines(
    fatigue: Mapping[str, Fatigue], earlier: Approval | None, changes: list[dict[str, Json]]
) -> list[str]:
    names = {"same_call": "this very call", "same_program": "this program for this principal"}
    out = [
        f"history    {names[key]}: asked {f.asked}, approved {f.approved}, denied {f.denied}, expired {f.expired}"
        for key, f in fatigue.items()
    ]
    if earlier is None:
        return [*out, "earlier    nothing of this program was approved before"]
    out.append(f"earlier    {earlier.approval_id}, approved by {earlier.decided_by}, {clock(earlier.decided_unix_ms)}")
    out += [f"  {c['field']}: was {_json(c['before'])}, is {_json(c['now'])}" for c in changes]
    return out if changes else [*out, "  nothing differs from it"]


def _plain(value: Json) -> str:
    return visible_line(str(value))


def _json(value: Json) -> str:
    return _cut(visible_line(orjson.dumps(value).decode()))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE_CHARS else f"{text[:MAX_VALUE_CHARS]}… ({len(text)} characters; see --json)"
