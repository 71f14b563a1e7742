"""`palyra policy explain`: why a call was or would be decided as it is, and what would allow it.

A call of the journal is decided again from its recorded facts; one that has not been made is assessed as it would be,
and flags and settings are tried on it. Nothing runs. Exit 0 when policy had its say, 1 when the call never came so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.engine.replay import RecordedDecision
    from palyra.errors import Rejected
    from palyra.policy.explain import Change, Explanation
    from palyra.wiring.embedded import Installation

EXPLAIN_EPILOG = """\b
Examples:
  palyra policy explain 01J…                      a call of the journal
  palyra policy explain --tool palyra.process.run --input '{"command": "bash"}'
"""


@click.command("explain", epilog=EXPLAIN_EPILOG)
@click.argument("call_id", required=False)
@click.option("--tool", metavar="TOOL", help="Explain a call that has not been made.")
@click.option("--input", "input", metavar="JSON|@FILE|-", help="Its input.")
@click.option("--as", "principal", metavar="PRINCIPAL", help="Who would ask.")
@click.option("--workspace", metavar="DIR", help="Its workspace (default: this folder).")
@with_settings
def explain(
    settings: Settings,
    call_id: str | None,
    tool: str | None,
    input: str | None,
    principal: str | None,
    workspace: str | None,
) -> int:
    """Why: the determining policies, the clauses that failed, and the smallest change that would allow the call."""
    if (call_id is None) == (tool is None):
        raise click.UsageError("Name either a CALL_ID or --tool TOOL.")
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        if call_id is not None:
            told = await _recorded(installation, call_id)
        else:
            assert tool is not None
            told = await _imagined(installation, tool, input, principal, workspace)
        return _print(settings, told)

    return with_installation(settings, work)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """Everything there is to say."""

    explained: Explanation | None = None
    """None when the call never came before policy."""
    refusal: Rejected | None = None
    """What stops the call outside policy: its shape, its budget, or a host that cannot enforce it."""
    tried: tuple[Change, ...] = ()
    """Settings that would bring it before policy."""
    then: RecordedDecision | None = None
    """Of a journaled call: what was decided then."""


async def _recorded(installation: Installation, call_id: str) -> _Told:
    """A journaled call, decided again from its recorded facts by the policies of now."""
    from palyra.engine.replay import read_decision
    from palyra.errors import Reason, Rejected
    from palyra.wiring.policy_acts import explain_request

    stored = await installation.ports.journal.find_call(call_id)
    if stored is None:
        return _Told(refusal=Rejected(Reason.BAD_ARGUMENTS, f"The journal has no call {call_id[:40]!r}."))
    try:
        then = read_decision(stored.details)
    except ValueError as error:
        return _Told(refusal=Rejected(Reason.INTERNAL, f"{error}.", "Run: palyra journal verify"))
    if then is None:
        outcome = orjson.loads(stored.outcome) if stored.outcome else {}
        reason = Reason(stored.reason) if stored.reason else Reason.INTERNAL
        return _Told(
            refusal=Rejected(reason, outcome.get("message") or "It never reached policy.", outcome.get("hint"))
        )
    return _Told(explained=explain_request(installation, then.request, then.details), then=then)


async def _imagined(
    installation: Installation, tool: str, input: str | None, principal: str | None, workspace: str | None
) -> _Told:
    from palyra.cli.call import read_input
    from palyra.cli.session import make_run
    from palyra.engine.advice import advise
    from palyra.engine.trip import CallRequest
    from palyra.wiring.policy_acts import explain_request

    run = make_run(installation, workspace=workspace, principal=principal)
    request = CallRequest(tool=tool, input=read_input(input), run=run)
    trip, refusal = await installation.engine.assess(request)
    tried = await advise(installation.engine, request, trip, refusal)
    if trip.cedar is None or trip.facts is None:
        return _Told(refusal=refusal, tried=tried)
    explained = explain_request(installation, trip.cedar, trip.facts.details, tried)
    return _Told(explained=explained, refusal=refusal if explained.kind in ("allowed", "ask") else None)


def _print(settings: Settings, told: _Told) -> int:
    from palyra.policy.explain import change_json, explanation_json

    refusal, explained, then = told.refusal, told.explained, told.then
    if settings.json:
        value: dict[str, Json] = (
            explanation_json(explained) if explained else {"changes": [*map(change_json, told.tried)]}
        )
        refused = refusal and {"reason": refusal.reason.value, "message": refusal.detail, "hint": refusal.hint}
        recorded = then and {"effect": then.effect, "policies": list(then.policies), "exact": then.exact}
        click.echo(orjson.dumps(value | {"refused": refused, "recorded": recorded}))
    else:
        for line in [*(_lines(explained) if explained else ()), *_then_lines(told), *_refusal_lines(refusal)]:
            say(line)
        for change in told.tried:
            say(f"  would {change.effect}: {change.text}")
    return 0 if explained is not None else 1


def _then_lines(told: _Told) -> list[str]:
    then, explained = told.then, told.explained
    if then is None or explained is None:
        return []
    lines = [] if then.exact else ["its record is redacted: what is said here may not fit the call itself"]
    if then.effect != explained.decision.effect:
        lines += [f"then it was decided: {then.effect} ({', '.join(then.policies) or 'no policy'})"]
    return lines


def _refusal_lines(refusal: Rejected | None) -> list[str]:
    if refusal is None:
        return []
    return [f"refused: {refusal.reason}: {refusal.detail}", *([f"hint: {refusal.hint}"] if refusal.hint else [])]


_SCOPES = {
    "call": "a policy for exactly this call",
    "program": "a policy for this program in this sandbox",
    "tool": "a policy for this tool",
}


def _lines(explained: Explanation) -> list[str]:
    from palyra.policy.explain import explanation_json

    value = explanation_json(explained)
    lines = [f"{value['effect']} ({value['kind']}), bundle {value['bundle']} {str(value['policy_sha256'])[:16]}"]
    if value["reason"]:
        lines += [f"{value['reason']}: {value['message']}"]
    lines += [f"  decided by {p['id']} ({p['file']}:{p['line']}): {p['reason']}" for p in value["policies"]]
    for near in value["nearest"]:
        lines += [f"  nearest permit {near['id']}: failed {'; '.join(near['failed'])}"]
    for change in value["changes"]:
        scope = f" ({_SCOPES[change['scope']]})" if change["scope"] else ""
        lines += [f"  would {change['effect']}{scope}: {change['text']}"]
    return lines
