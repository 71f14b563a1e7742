"""MCP ↔ our values: names, listings, results, questions for a person. Pure: no transport, no engine, no clock.

Rules: several model APIs refuse dots in a tool's name, so `palyra.process.run` is listed as `palyra_process_run` and
the dotted name stands in `_meta`. An outcome is `structuredContent`, whole but for the long half of its attestation,
which stands in `_meta` beside the receipt: a model has no use for a signature and pays for every byte of it. The text
block is what a model needs to go on: output, or reason and hint.

Not here: calling (calls), tasks (tasks), transports (server).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import mcp_types as types
import orjson

from palyra.canon import Json
from palyra.engine.hints import split_hint
from palyra.mcp.outcome_schema import outcome_schema
from palyra.model.outcome import Outcome, Status
from palyra.model.tool import Capability, Parallelism, ToolSpec
from palyra.model.visible import spell_spaces, visible_line
from palyra.protocol.wire import outcome_json

META_TOOL = "palyra/tool"
META_RECEIPT = "palyra/receipt"
META_ATTESTATION = "palyra/attestation"
META_RUN = "palyra/run_id"
META_PROCESS = "palyra/process"
META_EXPLANATION = "palyra/explanation"

MAX_NAME_CHARS = 64
"""What the strictest of the model APIs take."""
_BRIEF = ("attestation_id", "executor", "execution_sha256")
_FOR_MODELS = ("status", "success", "reason", "message", "hint", "operator_hint", "policy_stale", "output", "approval")


# ── names ────────────────────────────────────────────────────────────────────


def listed_names(specs: Iterable[ToolSpec]) -> dict[str, str]:
    """Listed name → dotted name. Two tools that would be listed alike are told apart by a digest; our own never are."""
    dotted = [spec.name for spec in specs]
    plain: dict[str, list[str]] = {}
    for name in dotted:
        plain.setdefault(name.replace(".", "_"), []).append(name)
    return {_listed(name, alone=len(plain[name.replace(".", "_")]) == 1): name for name in dotted}


def _listed(dotted: str, *, alone: bool) -> str:
    name = dotted.replace(".", "_")
    if len(name) <= MAX_NAME_CHARS and (alone or dotted.startswith("palyra.")):
        return name
    tag = hashlib.sha256(dotted.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{name[: MAX_NAME_CHARS - 9]}_{tag}"


def dotted_name(listed: str, names: Mapping[str, str]) -> str:
    """A dotted name is taken as it is: clients that read `_meta` may use it."""
    return names.get(listed, listed)


# ── listing ──────────────────────────────────────────────────────────────────


def list_tools(specs: Iterable[ToolSpec]) -> list[types.Tool]:
    known = tuple(specs)
    by_dotted = {dotted: listed for listed, dotted in listed_names(known).items()}
    return [_tool(spec, by_dotted[spec.name]) for spec in known]


def _tool(spec: ToolSpec, listed: str) -> types.Tool:
    reads = spec.parallelism is Parallelism.READ_ONLY
    return types.Tool(
        name=listed,
        title=spec.name,
        description=spec.description,
        input_schema=dict(spec.input_schema),
        output_schema=outcome_schema(spec),
        annotations=types.ToolAnnotations(
            read_only_hint=reads,
            destructive_hint=not reads and Capability.FILESYSTEM_WRITE in spec.capabilities,
            idempotent_hint=spec.parallelism in (Parallelism.READ_ONLY, Parallelism.IDEMPOTENT),
            open_world_hint=Capability.NETWORK in spec.capabilities,
        ),
        _meta={META_TOOL: spec.name, "palyra/capabilities": sorted(c.value for c in spec.capabilities)},
    )


# ── results ──────────────────────────────────────────────────────────────────


def call_result(outcome: Outcome, explanation: Mapping[str, Json] | None = None) -> types.CallToolResult:
    """`explanation`: of what policy denied, as policy/explain tells it."""
    whole = outcome_json(outcome)
    brief = {name: outcome.attestation.get(name) for name in _BRIEF}
    told = {name: whole[name] for name in _FOR_MODELS}
    agents, operators = split_hint(outcome.hint or "")
    if outcome.operator_hint:
        operators = f"An operator can allow this call: {outcome.operator_hint}. {operators}".rstrip()
    told |= {"hint": agents or None, "operator_hint": operators or None}
    return types.CallToolResult(
        content=[types.TextContent(text=_text(told))],
        structured_content=whole | {"attestation": brief},
        is_error=not outcome.success and outcome.status is not Status.PENDING_APPROVAL,
        _meta=result_meta(outcome) | ({META_EXPLANATION: _explained(explanation)} if explanation else {}),
    )


def _explained(told: Mapping[str, Json]) -> dict[str, Json]:
    """Why, and what would allow it; not the request, which the client made, nor in which file a policy stands."""
    policies = [{name: policy.get(name) for name in ("id", "effect", "reason")} for policy in told["policies"]]
    nearest = [{name: near.get(name) for name in ("id", "failed")} for near in told["nearest"]]
    return {"kind": told["kind"], "policies": policies, "nearest": nearest, "changes": told["changes"]}


def result_meta(outcome: Outcome) -> dict[str, Any]:
    return {
        META_TOOL: outcome.tool,
        META_RUN: outcome.run_id,
        META_RECEIPT: None if outcome.receipt is None else dict(outcome.receipt),
        META_ATTESTATION: dict(outcome.attestation),
    }


def whole_outcome(result: Mapping[str, Any]) -> dict[str, Json]:
    """The outcome of the contract again, from a result as it went over the wire. ValueError for anything else."""
    content, meta = result.get("structuredContent"), result.get("_meta")
    if not isinstance(content, Mapping) or not isinstance(meta, Mapping) or META_ATTESTATION not in meta:
        raise ValueError("this is not the result of a Palyra tool")
    return {**content, "attestation": meta[META_ATTESTATION], "receipt": meta.get(META_RECEIPT)}


def error_data(outcome: Outcome) -> dict[str, Json]:
    """For what the protocol answers with an error instead of a result; it is journaled like every refusal."""
    return {
        "reason": outcome.reason.value if outcome.reason else None,
        "hint": outcome.hint,
        "call_id": outcome.call_id,
        "receipt": outcome.receipt,
    }


def _text(value: Mapping[str, Json]) -> str:
    shown = {name: item for name, item in value.items() if item is not None}
    return orjson.dumps(shown).decode("utf-8")


# ── questions for a person ───────────────────────────────────────────────────

YES = "approve"
MAX_SHOWN_CHARS = 4000
_SHOWN = tuple("principal tool argv cwd input network hosts_named workspace tier risks policies".split())


def question(shown: Mapping[str, Json]) -> types.ElicitRequestFormParams:
    """One word decides: an empty form that a client submits by itself is no yes."""
    return types.ElicitRequestFormParams(
        message=describe(shown),
        requested_schema={
            "type": "object",
            "properties": {
                "decision": {
                    "type": "string",
                    "title": "Run it, once?",
                    "enum": [YES, "deny"],
                }
            },
            "required": ["decision"],
        },
    )


def console_question(shown: Mapping[str, Json], *, url: str, approval_id: str) -> types.ElicitRequestURLParams:
    tool = str(shown.get("tool", "a tool"))
    message = f"Policy asks for an operator's approval of {visible_line(tool)}. It is decided in Palyra's console."
    return types.ElicitRequestURLParams(message=message, url=url, elicitation_id=approval_id)


def describe(shown: Mapping[str, Json]) -> str:
    lines = ["Palyra's policy asks a person before this runs."]
    for name in _SHOWN:
        value = shown.get(name)
        if value not in (None, "", [], {}):
            lines.append(f"{name}: {spell_spaces(visible_line(_plain(value)))}")
    return "\n".join(lines)


def fits_question(shown: Mapping[str, Json]) -> bool:
    """Whether a client can show all of it: nobody is asked about a part."""
    return len(describe(shown)) <= MAX_SHOWN_CHARS


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode("utf-8")


def said(answer: Mapping[str, Any] | types.ElicitResult | None) -> bool | None:
    """True or False when a person chose; None when they dismissed the question or the answer is not one."""
    if answer is None:
        return None
    value = answer.model_dump(by_alias=True) if isinstance(answer, types.ElicitResult) else answer
    match value.get("action"):
        case "accept":
            content = value.get("content")
            word = content.get("decision") if isinstance(content, Mapping) else None
            return {YES: True, "deny": False}.get(word) if isinstance(word, str) else None
        case "decline":
            return False
        case _:
            return None
