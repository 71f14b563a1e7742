"""Writes an operator's exception for one refused call: a permit of its own that lifts the forbids of that refusal.

- An exception binds what the verdict rested on: principal, tool, tier, egress, skill and every program by its place;
  `--for call` also the whole input. `bash -c A` says nothing about `bash -c B`.
- It lifts only the forbids that determined the refusal, and none that is @final.
- A wider scope covers calls that do no more: where nothing but this exception permits, no guard would ask about more.
- The wider scopes are there only where each of those forbids looks at nothing but what they bind: of a call that
  leads out of the workspace the facts say that it does, not where.

Not here: how Cedar comes to obey it (lifting), its file and its journal entry (wiring/exceptions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal

from palyra.errors import PalyraError
from palyra.late import late
from palyra.policy.bundle import LOCAL, PolicyBundle, with_local
from palyra.policy.cedar import parse_tree
from palyra.policy.decide import program_name, verdict_of
from palyra.policy.request import ATTRIBUTES, EXECUTE, EXECUTE_UNSANDBOXED, Request
from palyra.policy.scan import PolicyError
from palyra.policy.slices import attributes_used
from palyra.values import dataclass

Scope = Literal["call", "program", "run", "always"]
SCOPES: Mapping[Scope, str] = MappingProxyType(
    {
        "call": "exactly this input, from this principal, in any run",
        "program": "every call of the same programs (of a tool without one: of the tool), from this principal",
        "run": "the same, within this call's run only",
        "always": "the same as program, from every principal",
    }
)
"""How much an exception covers, the narrowest first."""
_EXAMPLE = "allow.example"
_ID = late(r"allow\.[0-9A-HJKMNP-TV-Z]{26}")
_BOUND = frozenset("tier egress skill programs program effective_program".split())
_OF_THE_PROGRAM = frozenset(
    "interpreter runs_code inline_code listed found agent_writable approved sensitive "
    "granted granted_interpreters granted_egress granted_tier".split()
)
"""What is the same for each call of the same programs, or is the operator's or a person's own word."""
_SETTLED = _BOUND | _OF_THE_PROGRAM | {name for name in ATTRIBUTES if name.startswith("cap_")}
_NOT_BY_POLICY = frozenset({"outside_workspace", "hosts_denied"})
"""What the sandbox refuses too: an exception lets the program start, and shows it no more files and no more hosts."""

_MORE = {
    "writes_obeyed": "!context.writes_obeyed",
    "background": "!context.background",
    "network": "(!context.network || context.granted_egress)",
    "egress_raw": "(!context.egress_raw || context.granted_egress)",
}
"""What another call of the same programs or tool may do beyond the one that a person looked at, and who may say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exempted:
    """An exception that was tried."""

    scope: Scope
    lifts: tuple[str, ...]
    text: str
    note: str = ""
    """What it does not give."""


def is_exception_id(name: str) -> bool:
    return _ID.fullmatch(name) is not None


def check_exception(name: str, text: str) -> None:
    """Raise PolicyError unless the file holds one permit that bears the file's name as its @id.

    A forbid in such a file would be lost when the file is left out, as one that is broken is.
    """
    try:
        trees = [*parse_tree(text).values()]
    except ValueError as error:
        raise PolicyError(f"This is not valid Cedar: {error}.", file=LOCAL + name) from None
    if len(trees) != 1 or trees[0]["effect"] != "permit" or trees[0]["annotations"].get("id") != name[: -len(".cedar")]:
        raise PolicyError(
            "A file of this name holds one permit with the file's name as its @id.",
            "Put policies of your own into another file.",
            file=LOCAL + name,
        )


def is_liftable(bundle: PolicyBundle, request: Request, policies: Iterable[str]) -> bool:
    """Return whether an exception can make this refused call run, as far as the facts tell."""
    shut = any(request.context[name] for name in _NOT_BY_POLICY)
    return not shut and not why_not_liftable(bundle, request, policies)


def why_not_liftable(bundle: PolicyBundle, request: Request, policies: Iterable[str]) -> str:
    """Return why no exception can lift this refusal; empty when one can."""
    for name in policies:
        info = bundle.index.get(name)
        if info is not None and info.final:
            return f"{name} cannot be lifted: {info.final}"
    if request.action == EXECUTE_UNSANDBOXED:
        return "No exception lets a program run without a sandbox."
    if "process" in request.groups and not request.context["found"]:
        return "The program was not found: install it, or add its folder to path in [tool_call.process_runner]."
    if "process" in request.groups and not request.context["programs"]:
        return "Its record does not say which programs it starts. Make the call again."
    return ""


def write_exception(
    bundle: PolicyBundle,
    request: Request,
    scope: Scope,
    *,
    name: str = _EXAMPLE,
    head: str = "",
    then: frozenset[str] | None = None,
) -> Exempted:
    """Return the exception that makes this bundle allow this request. Raise PolicyError when there is none.

    `then`: the policies that refused the call when it was made. Others that refuse it now are not lifted.
    """
    verdict = verdict_of(bundle, request)
    if verdict.effect == "allow":
        by = ", ".join(verdict.policies)
        raise PolicyError(f"The policies of now allow this call ({by}).", "Make it again, under a fresh call id.")
    if verdict.effect == "error":
        raise PolicyError(f"Policy could not be evaluated: {verdict.error}.", "Fix the policy it names.")
    forbids = tuple(sorted(policy for policy in verdict.policies if bundle.index[policy].effect == "forbid"))
    if why := why_not_liftable(bundle, request, forbids):
        raise PolicyError(why, "palyra policy explain CALL_ID names what else would allow it.")
    if then is not None and (new := sorted({*forbids} - then)):
        raise PolicyError(f"Since this call was refused, {new[0]} forbids it too.", "Make the call again.")
    _check_scope(bundle, request, forbids, scope)
    text = head + _text(request, scope, name, forbids)
    if verdict_of(with_local(bundle, {f"{name}.cedar": text}), request).effect != "allow":
        raise PolicyError("No exception lifts this refusal.", "palyra policy explain CALL_ID shows what would.")
    return Exempted(scope=scope, lifts=forbids, text=text, note=_note(request))


def scopes_for(bundle: PolicyBundle, request: Request, *, then: frozenset[str] | None = None) -> tuple[Scope, ...]:
    """Return the scopes that an exception for this call can have, the narrowest first."""
    found: list[Scope] = []
    for scope in SCOPES:
        try:
            write_exception(bundle, request, scope, then=then)
        except PalyraError:
            continue
        found.append(scope)
    return tuple(found)


def _check_scope(bundle: PolicyBundle, request: Request, forbids: Iterable[str], scope: Scope) -> None:
    if scope == "call":
        return
    if request.action != EXECUTE:
        raise PolicyError("Each module in a call's input is other code.", "Use --for call.")
    for name in forbids:
        (tree,) = parse_tree(bundle.text_of(name)).values()
        other = sorted(attributes_used(tree["conditions"]) - _SETTLED)
        if other:
            what = f"{name} looks at {other[0]}, which is not the same for every call of a program"
            raise PolicyError(f"An exception for more than this call would be too wide: {what}.", "Use --for call.")


def _note(request: Request) -> str:
    if not any(request.context[name] for name in _NOT_BY_POLICY):
        return ""
    return "The sandbox still shows no other folder and reaches no other host: --read PATH, --allow-host HOST do that."


def _text(request: Request, scope: Scope, name: str, forbids: tuple[str, ...]) -> str:
    uid = request.principal_uid
    who = "principal" if scope == "always" else f"principal == {uid['type']}::{quote(uid['id'])}"
    conditions = [f"context.{attribute} == {quote(value)}" for attribute, value in _binds(request, scope)]
    if scope != "call":
        conditions += [condition for more, condition in _MORE.items() if not request.context[more]]
    what = program_name(request, ()) if request.context["program"] else "this tool"
    covers = {"call": f"one exact call of {what}", "run": f"{what} in one run"}.get(scope, what)
    lifts = f"@lifts({quote(' '.join(forbids))})\n" if forbids else ""
    when = " &&\n  ".join(conditions)
    return (
        f"@id({quote(name)})\n"
        f"@reason({quote(f'An exception by an operator, for {covers}.')})\n"
        f"{lifts}"
        f"permit (\n  {who},\n  action == Action::{quote(request.action)},\n"
        f"  resource == Tool::{quote(request.tool)}\n)"
        f"\nwhen {{\n  {when}\n}};\n"
    )


def _binds(request: Request, scope: Scope) -> Iterator[tuple[str, str]]:
    if scope == "call":
        yield "input_sha256", str(request.context["input_sha256"])
    if scope == "run":
        yield "run", str(request.context["run"])
    for name in ("programs", "effective_program", "tier", "egress", "skill"):
        yield name, str(request.context[name])


_ESCAPED = {'"': '\\"', "\\": "\\\\"}
_PLAIN = re.compile(r"[ -~]")


def quote(text: str) -> str:
    """Return a Cedar string literal. All but plain ASCII is written as \\u{…}, so nothing in it can end the string."""
    return '"' + "".join(_ESCAPED.get(c) or (c if _PLAIN.fullmatch(c) else f"\\u{{{ord(c):x}}}") for c in text) + '"'
