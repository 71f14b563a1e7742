"""`palyra policy explain`: why a call was or would be decided as it is, and what would allow it.

A call of the journal is decided again from its recorded facts; one that has not been made is assessed as it would be,
and flags and settings are tried on it. Nothing runs. Exit 0 when policy had its say, 1 when the call never came so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.errors import Rejected
    from palyra.policy.explain import Explanation
    from palyra.wiring.embedded import Installation
    from palyra.wiring.explaining import Told

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
@click.option("--workspace", metavar="DIR", help="Its workspace (default: the current folder).")
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
        from palyra.wiring.explaining import explain_recorded

        if call_id is not None:
            told = await explain_recorded(installation, call_id)
        else:
            assert tool is not None
            told = await _imagined(installation, tool, input, principal, workspace)
        return _print(settings, told)

    return with_installation(settings, work)


async def _imagined(
    installation: Installation, tool: str, input: str | None, principal: str | None, workspace: str | None
) -> Told:
    from palyra.cli.call import read_input
    from palyra.cli.session import make_run
    from palyra.engine.trip import CallRequest
    from palyra.wiring.explaining import explain_imagined

    run = make_run(installation, workspace=workspace, principal=principal)
    return await explain_imagined(installation, CallRequest(tool=tool, input=read_input(input), run=run))


def _print(settings: Settings, told: Told) -> int:
    refusal, explained = told.refusal, told.explained
    if settings.json:
        click.echo(orjson.dumps(told.as_json()))
    else:
        for line in [*(_lines(explained) if explained else ()), *_then_lines(told), *_refusal_lines(refusal)]:
            say(line)
        for change in told.tried:
            say(f"  would {change.effect}: {change.text}")
    return 0 if explained is not None else 1


def _then_lines(told: Told) -> list[str]:
    then, explained = told.then, told.explained
    if then is None or explained is None:
        return []
    lines = [] if then.exact else ["its record is redacted, so this may not match the call exactly"]
    if then.effect != explained.decision.effect:
        lines += [f"then it was decided: {then.effect} ({', '.join(then.policies) or 'no policy'})"]
    return lines


def _refusal_lines(refusal: Rejected | None) -> list[str]:
    if refusal is None:
        return []
    return [f"refused: {refusal.reason}: {refusal.detail}", *([f"hint: {refusal.hint}"] if refusal.hint else [])]


def _lines(explained: Explanation) -> list[str]:
    from palyra.policy.exceptions import SCOPES
    from palyra.policy.explain import explanation_json

    value = explanation_json(explained)
    lines = [f"{value['effect']} ({value['kind']}), bundle {value['bundle']} {str(value['policy_sha256'])[:16]}"]
    if value["reason"]:
        lines += [f"{value['reason']}: {value['message']}"]
    exceptions = [change for change in value["changes"] if change["scope"]]
    if exceptions:
        lines += ["an operator's exception allows it (--dry-run shows what else it would change):"]
        lines += [f"  {change['text']}  # {SCOPES[change['scope']]}" for change in exceptions]
    lines += [f"  decided by {p['id']} ({p['file']}:{p['line']}): {p['reason']}" for p in value["policies"]]
    for near in value["nearest"]:
        lines += [f"  nearest permit {near['id']}: failed {'; '.join(near['failed'])}"]
    for change in value["changes"]:
        if not change["scope"]:
            lines += [f"  would {change['effect']}: {change['text']}"]
    return lines
