"""Rows that acts tell of, as the audit compares them: skills, witnesses, policies, tokens, labels, processes, logins.

Whatever stands in a column may have been put there by somebody else. Not here: what is found (journal/standings),
entries and calls (state/rows).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import orjson

from palyra.errors import TrustError
from palyra.journal.checkpoint import parse_checkpoint
from palyra.journal.label_standing import Label
from palyra.journal.lookup import as_bytes
from palyra.journal.policy_standing import PolicyRows
from palyra.journal.process_standing import ProcessRow, cgroups_sha256
from palyra.journal.session_standing import SessionRow, session_name
from palyra.journal.skill_standing import SkillRow
from palyra.journal.standings import StandingRows
from palyra.journal.token_standing import TokenRow, token_row_sha256
from palyra.journal.witness_standing import WitnessRow, place_sha256
from palyra.state.database import Cursor

_STARTED = ("principal", "call_id", "lifetime", "started_unix_ms", "expires_unix_ms", "pid", "start_ticks")
_ENDED = ("status", "exit_code", "signal", "reason", "stopped_by", "ended_unix_ms")
_KEEPER = ("boot_id", "pid", "start_ticks")
_USED = ("wall_us", "cpu_us", "max_rss_bytes", "output_bytes")
_KEEPER_AT, _RUN_AT = len(_USED), len(_USED) + len(_KEEPER)
_PROCESSES = f"""SELECT p.process_id, p.cgroups, c.intent_index, d.data, p.stdout_bytes, p.stderr_bytes,
                        {", ".join(f"p.{name}" for name in _USED)},
                        {", ".join(f"p.keeper_{name}" for name in _KEEPER)},
                        {", ".join(f"p.{name}" for name in ("run_id", *_STARTED, *_ENDED))}
                 FROM processes p LEFT JOIN calls c
                      ON c.call_id = p.call_id AND c.run_id = p.run_id AND c.principal = p.principal
                      LEFT JOIN blobs d ON d.sha256 = c.details"""  # noqa: S608


class Reading(Protocol):
    """A connection with one unchanging view."""

    def execute(self, sql: str, parameters: tuple[Any, ...] = (), /) -> Cursor: ...


def read_standing(source: Reading) -> StandingRows:
    return StandingRows(
        skills=_skills(source),
        witnesses=_witnesses(source),
        policies=_policies(source),
        tokens=_tokens(source),
        vault=_meta(source, "vault_sha256"),
        config=_meta(source, "config_sha256"),
        labels=_labels(source),
        processes=_processes(source),
        sessions=_sessions(source),
    )


def _skills(source: Reading) -> Iterator[SkillRow]:
    """Standings of skills, and pinned keys."""
    for sha256, status, entry in source.execute("SELECT sha256, status, entry FROM skills"):
        yield SkillRow(what=sha256, said=status, entry=entry)
    sql = "SELECT publisher, key_id, revoked_unix_ms, replaced_by, entry FROM skill_publishers"
    for publisher, key_id, revoked, replaced_by, entry in source.execute(sql):
        said = "revoked" if revoked is not None else "retired" if replaced_by else "trusted"
        yield SkillRow(what=f"{publisher} {key_id}", said=said, entry=entry)


def _witnesses(source: Reading) -> Iterator[WitnessRow]:
    """Those of this journal, and what it saw of others."""
    for name, kind, place in source.execute("SELECT name, kind, place FROM witnesses"):
        yield WitnessRow(what=f"witness/{name}", said={"kind": kind, "place_sha256": place_sha256(place)})
    for origin, vkey, size, note in source.execute("SELECT origin, vkey, size, note FROM seen_heads"):
        yield WitnessRow(what=f"origin/{origin}", said={"vkey": vkey, **_seen(origin, size, note)})


def _seen(origin: object, size: object, note: object) -> dict[str, object]:
    """By the note: the next head is held against that, whatever size stands beside it."""
    try:
        head = parse_checkpoint(note if isinstance(note, str) else "")
    except TrustError:
        return {"size": None}
    return {"size": head.size if (head.origin, head.size) == (origin, size) else None, "root": head.root.hex()}


def _policies(source: Reading) -> PolicyRows:
    """Every use of policies, and which one is in force."""
    uses = source.execute("SELECT number, version, by, parent FROM policy_uses").fetchall()
    pointer = source.execute("SELECT number FROM policy_pointer").fetchone()
    by_number = {number: (version, parent) for number, version, _, parent in uses}
    steps: list[object] = []
    at = pointer[0] if pointer is not None else None
    while at in by_number and len(steps) < len(uses):  # a circle of them is not gone round for ever
        version, at = by_number[at]
        steps.append(version)
    told = [(version, by) for number, version, by, _ in uses if number != 0]
    return PolicyRows(uses=told, in_use=steps[0] if steps else "", before=steps[1:])


def _tokens(source: Reading) -> Iterator[TokenRow]:
    sql = "SELECT token_id, digest, workspace, principal, operator, expires_unix_ms, revoked_unix_ms FROM tokens"
    for token_id, digest, workspace, principal, operator, expires, revoked in source.execute(sql):
        said = {
            "principal": principal,
            "operator": bool(operator),
            "expires_at_unix_ms": expires,
            "row_sha256": token_row_sha256(as_bytes(digest), workspace),
        }
        yield TokenRow(token_id=token_id, said=said, is_revoked=revoked is not None)


def _meta(source: Reading, name: str) -> str:
    """A digest of what lies beside the database; empty where there is none."""
    row = source.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return "" if row is None else str(row[0])


def _labels(source: Reading) -> Iterator[Label]:
    yield from source.execute("SELECT run_id, principal, label FROM run_labels")


def _processes(source: Reading) -> Iterator[ProcessRow]:
    for process_id, cgroups, call_index, details, stdout_bytes, stderr_bytes, *rest in source.execute(_PROCESSES):
        used, keeper, values = rest[:_KEEPER_AT], rest[_KEEPER_AT:_RUN_AT], rest[_RUN_AT:]
        said: dict[str, object] = dict(zip(("run_id", *_STARTED, *_ENDED), values, strict=True))
        is_running = said["status"] == "running"
        said |= {"keeper": dict(zip(_KEEPER, keeper, strict=True)), "cgroups_sha256": cgroups_sha256(cgroups)}
        if not is_running:
            said["output"] = {"stdout_bytes": stdout_bytes, "stderr_bytes": stderr_bytes}
            said["usage"] = None if used == [None] * len(_USED) else dict(zip(_USED, used, strict=True))
        yield ProcessRow(
            process_id=process_id,
            said=said,
            is_running=is_running,
            call_index=call_index,
            is_asked_for=None if details is None else _asks_for_background(as_bytes(details)),
        )


def _asks_for_background(details: bytes) -> bool:
    """By what is kept of the call; that it is what the call's entry commits to, the audit checks."""
    try:
        kept = orjson.loads(details)
    except orjson.JSONDecodeError:
        return False
    said = [kept.get(name) for name in ("input", "facts")] if isinstance(kept, dict) else []
    return any(isinstance(one, dict) and one.get("background") is True for one in said)


def _sessions(source: Reading) -> Iterator[SessionRow]:
    sql = "SELECT digest, principal, credential_id, expires_unix_ms FROM sessions"
    for digest, principal, credential_id, expires in source.execute(sql):
        said = {"principal": principal, "credential_id": credential_id, "expires_at_unix_ms": expires}
        yield SessionRow(name=session_name(as_bytes(digest)), said=said)
