"""A decision in the words of each agent's host: what its hook prints, and the code it exits with. Pure.

Rules: a no is never said by silence. Where a host cannot ask its user at that moment (Codex; Cursor when it reads a
file), ask becomes no, and the reason says how a person allows it. `NONE` says nothing: the host goes on as without us.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import orjson

from palyra.canon import Json
from palyra.protocol.agent_events import Agent

BLOCK = 2
"""All three hosts take this exit code for a no, with stderr as its reason; any other failure lets the tool through."""


class Permission(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    stdout: bytes = b""
    stderr: bytes = b""
    code: int = 0


def answer(agent: Agent, event: str, permission: Permission, reason: str) -> Answer:
    if permission is Permission.ASK and not _can_ask(agent, event):
        permission = Permission.DENY
    if permission is Permission.NONE:
        return Answer(stdout=b"{}\n")
    if agent is Agent.CURSOR:
        return _print({"permission": permission.value, "user_message": reason, "agent_message": reason})
    if permission is Permission.ALLOW and agent is Agent.CODEX:
        return Answer(stdout=b"{}\n")  # it has no yes that goes before its own rules, and needs none
    decision: dict[str, Json] = {
        "hookEventName": "PreToolUse",
        "permissionDecision": permission.value,
        "permissionDecisionReason": reason,
    }
    return _print({"hookSpecificOutput": decision})


def refusal(reason: str) -> Answer:
    """For when there is no event to answer: whatever the host, it stops."""
    return Answer(stderr=f"palyra: {reason}\n".encode("utf-8", "replace"), code=BLOCK)


def _can_ask(agent: Agent, event: str) -> bool:
    return agent is Agent.CLAUDE_CODE or (agent is Agent.CURSOR and event != "beforeReadFile")


def _print(value: dict[str, Json]) -> Answer:
    return Answer(stdout=orjson.dumps(value) + b"\n")
