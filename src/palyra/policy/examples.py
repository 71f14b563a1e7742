"""Examples that stand beside the policies: what must be allowed, asked or denied, checked when a bundle loads.

    [[example]]
    name = "an agent lists files"
    expect = "allow"                     # allow | ask | deny
    principal = "agent:demo"
    tool = "palyra.process.run"
    facts = { program = "ls" }           # any attribute of the context; the rest as for an ordinary good call
    input = { command = "ls" }           # the record context.input; empty when it is left out

A denial may also say `code = "INTERPRETER_DENIED"`, and any example `policy = "guard.10-interpreter"`: the first
determining policy. Not here: evaluating them (bundle).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palyra.errors import Reason, Rejected
from palyra.model.call import PrincipalKind, parse_principal
from palyra.model.tool import Capability
from palyra.policy.inputs import INPUTS, Input, Scalar, read_input
from palyra.policy.request import ATTRIBUTES, EXECUTE, Request, roles_of
from palyra.policy.scan import PolicyError
from palyra.policy.verdict import Verdict
from palyra.values import dataclass

MAX_EXAMPLES = 1000
_PLUGIN = "palyra.plugin.run"
_KEYS = frozenset("name expect code policy principal roles tool groups action facts input".split())
_PROCESS_CAPABILITIES = frozenset({Capability.PROCESS_EXEC, Capability.FILESYSTEM_READ, Capability.FILESYSTEM_WRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    name: str
    expect: str
    request: Request
    code: Reason | None = None
    policy: str = ""

    def differs(self, verdict: Verdict) -> str:
        """Empty when the verdict is as written, else what came instead."""
        if verdict.effect != self.expect:
            why = verdict.error or ", ".join(verdict.policies) or "no policy permits it"
            return f"expected {self.expect}, decided {verdict.effect} ({why})"
        if self.code is not None and verdict.code is not self.code:
            return f"expected code {self.code}, decided {verdict.code}"
        if self.policy and self.policy not in verdict.policies[:1]:
            return f"expected policy {self.policy}, decided by {', '.join(verdict.policies) or 'none'}"
        return ""


def ordinary_context(*, process: bool) -> dict[str, Scalar]:
    """A call nobody would object to: a listed program in tier C with strict egress, or a built-in tool."""
    values: dict[str, Scalar] = {name: kind() for name, kind in ATTRIBUTES.items()}
    values |= {"door": "python", "calls_max": 200, "hour": 12}
    if process:
        values |= {"tier": "C", "egress": "strict", "program": "ls", "effective_program": "ls"}
        values |= {"listed": True, "found": True}
        values |= {f"cap_{capability}": True for capability in _PROCESS_CAPABILITIES}
    return values


def ordinary_request(principal: str = "agent:demo", tool: str = "palyra.process.run", **facts: Scalar) -> Request:
    who = parse_principal(principal)
    process, inside = tool == "palyra.process.run", tool.startswith(("palyra.fs.", "palyra.http."))
    group = "process" if process else "inside" if inside else "plugin" if tool == _PLUGIN else "builtin"
    groups = ("palyra", group) if tool.startswith("palyra.") else ("skill",)
    context = ordinary_context(process=process) | ({"tier": "C", "egress": "strict"} if inside else {}) | facts
    if "program" in facts and "effective_program" not in facts:
        context["effective_program"] = facts["program"]
    return Request(principal=who, roles=roles_of(who), action=EXECUTE, tool=tool, groups=groups, context=context)


def sample_requests() -> tuple[Request, ...]:
    """One request of each shape that Palyra sends, for checking a schema against."""
    everything = read_input({name: kind() for name, kind in INPUTS.items()})
    return tuple(
        replace(ordinary_request(f"{kind}:sample"), input=everything if kind is PrincipalKind.AGENT else ())
        for kind in PrincipalKind
    )


def parse_examples(file: str, text: str) -> tuple[Example, ...]:
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise PolicyError(f"This is not TOML: {error}.", file=file) from None
    items = document.pop("example", [])
    if document or not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise PolicyError("The file holds [[example]] tables and nothing else.", file=file)
    if len(items) > MAX_EXAMPLES:
        raise PolicyError(f"A bundle has at most {MAX_EXAMPLES} examples.", file=file)
    return tuple(_parse(file, number, item) for number, item in enumerate(items, 1))


def _parse(file: str, number: int, item: Mapping[str, Any]) -> Example:
    name = item.get("name")
    if not isinstance(name, str) or not name:
        raise PolicyError(f"Example {number} has no name.", file=file)
    try:
        return _read(name, item)
    except (Rejected, ValueError) as error:
        detail = error.detail if isinstance(error, Rejected) else str(error)
        raise PolicyError(f"Example {name!r}: {detail}", file=file) from None


def _read(name: str, item: Mapping[str, Any]) -> Example:
    unknown = sorted(item.keys() - _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}")
    if item.get("expect") not in ("allow", "ask", "deny"):
        raise ValueError("expect is allow, ask or deny")
    facts = item.get("facts", {})
    odd = sorted(facts.keys() - ATTRIBUTES.keys()) if isinstance(facts, dict) else ["facts"]
    if odd:
        raise ValueError(f"{odd[0]!r} is not an attribute of the context")
    request = ordinary_request(
        _text(item, "principal", "agent:demo"), _text(item, "tool", "palyra.process.run"), **facts
    )
    code = _text(item, "code", "")
    if code and code not in Reason.__members__:
        raise ValueError(f"{code!r} is not a reason")
    return Example(
        name=name,
        expect=item["expect"],
        request=_placed(request, item),
        code=Reason(code) if code else None,
        policy=_text(item, "policy", ""),
    )


def _placed(request: Request, item: Mapping[str, Any]) -> Request:
    """The request with the example's own roles, groups and action, where it names any."""
    return Request(
        principal=request.principal,
        roles=_names(item, "roles", request.roles),
        action=_text(item, "action", request.action),
        tool=request.tool,
        groups=_names(item, "groups", request.groups),
        context=request.context,
        input=_input(item),
    )


def _input(item: Mapping[str, Any]) -> Input:
    given = item.get("input", {})
    if not isinstance(given, dict):
        raise ValueError("input is a table")
    record = read_input(given)
    odd = sorted(given.keys() - dict(record).keys())
    if odd:
        raise ValueError(f"{odd[0]!r} is not an argument that policies see, or not of its type")
    return record


def _text(item: Mapping[str, Any], key: str, default: str) -> str:
    value = item.get(key, default)
    if not isinstance(value, str):
        raise ValueError(f"{key} is a string")
    return value


def _names(item: Mapping[str, Any], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    value = item.get(key, default)
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise ValueError(f"{key} is a list of names")
    return tuple(value)
