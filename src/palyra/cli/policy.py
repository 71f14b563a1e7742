"""`palyra policy show | check | test | explain`: the policies in force, and why a call was or would be decided so.

`diff` and `replay` (policy_change), `use`, `rollback` and `versions` (policy_versions) live beside this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.policy_change import diff, replay
from palyra.cli.policy_versions import rollback, use, versions
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.errors import Rejected
    from palyra.policy.bundle import PolicyBundle
    from palyra.policy.explain import Explanation
    from palyra.wiring.embedded import Installation

EXPLAIN_EPILOG = """\b
Examples:
  palyra policy explain 01J…                      a call of the journal
  palyra policy explain --tool palyra.process.run --input '{"command": "bash"}'
"""


@click.group("policy")
def command() -> None:
    """Show, check and change the policies, and explain their decisions."""


@command.command("show", epilog="Example: palyra policy show --json")
@with_settings
def show(settings: Settings) -> int:
    """The bundle in force: its digest and every policy with its reason."""
    bundle, version = _in_force(settings)
    items = [
        {"id": p.id, "effect": p.effect, "code": p.code, "reason": p.reason, "file": p.file, "line": p.line}
        for p in bundle.index.values()
    ]
    if settings.json:
        head = {"bundle": bundle.name, "policy_sha256": bundle.digest, "version": version}
        click.echo(orjson.dumps({**head, "items": items, "next": None}))
        return 0
    say(f"{bundle.name}  {bundle.digest}" + (f"  (version {version[:16]})" if version else ""))
    for policy in bundle.index.values():
        say(f"  {policy.effect:6}  {policy.id}  ({policy.file}:{policy.line})\n          {policy.reason}")
    return 0


def _in_force(settings: Settings) -> tuple[PolicyBundle, str | None]:
    """The bundle and its version, read as they lie there: showing policies makes no home."""
    from palyra.config.load import find_home, load_config
    from palyra.policy.store import PolicyStore, load_posture
    from palyra.state.db import read_home, snapshot
    from palyra.wiring.versions import VersionRows

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    if (home.state / "palyra.db").is_file():
        with snapshot(read_home(home.root).database) as connection:
            kept = VersionRows(lambda sql, parameters: connection.execute(sql, parameters).fetchall())
            version = kept.pointer()
            if version is not None:
                return load_posture(config.posture, kept.files(version)), version
    return PolicyStore(config.posture, home.policies).current(), None


@command.command("check", epilog="Example: palyra policy check ./policies")
@click.argument("folder", required=False, metavar="[FILE|DIR]")
@with_settings
def check(settings: Settings, folder: str | None) -> int:
    """Parse and validate policies as a start would, without using them. Exit 1 with file, line and policy if not."""
    return _try(settings, folder, word="checked")


@command.command("test", epilog="Example: palyra policy test ./policies")
@click.argument("folder", required=False, metavar="[FILE|DIR]")
@with_settings
def test(settings: Settings, folder: str | None) -> int:
    """Run the examples beside the policies; each must decide as it is written."""
    return _try(settings, folder, word="tested")


def _try(settings: Settings, folder: str | None, *, word: str) -> int:
    """Loading does both: a folder whose examples fail is as unusable as one that does not parse."""
    from palyra.config.load import find_home, load_config
    from palyra.policy.bundle import check_examples
    from palyra.policy.load import read_folder, read_source
    from palyra.policy.scan import PolicyError
    from palyra.policy.store import load_posture, try_in_child

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    place = Path(folder) if folder else home.policies
    if folder and not place.exists():
        raise click.UsageError(f"{folder} is neither a file nor a folder.")
    try:
        local = read_source(place) if folder else read_folder(place)
        if local:
            try_in_child(config.posture, local)
        bundle = load_posture(config.posture, local)
        examples = check_examples(bundle, "examples.toml", bundle.examples)
    except PolicyError as error:
        value: dict[str, object] = {"ok": False, "error": error.detail, "hint": error.hint}
        _answer(settings, value, f"{error.detail}\nhint: {error.hint or 'mend the file'}")
        return 1
    value = {"ok": True, "bundle": bundle.name, "policies": len(bundle.index), "examples": examples}
    text = f"{word}: {bundle.name} with {place}, {len(bundle.index)} policies, {examples} examples decide as written"
    _answer(settings, value, text)
    return 0


def _answer(settings: Settings, value: dict[str, object], text: str) -> None:
    if settings.json:
        click.echo(orjson.dumps(value))
    else:
        say(text)


@command.command("explain", epilog=EXPLAIN_EPILOG)
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
            explained, refusal = await _recorded(installation, call_id)
        else:
            assert tool is not None
            explained, refusal = await _imagined(installation, tool, input, principal, workspace)
        return _print(settings, explained, refusal)

    return with_installation(settings, work)


async def _recorded(installation: Installation, call_id: str) -> tuple[Explanation | None, Rejected | None]:
    """A journaled call, decided again from its recorded facts by the policies of now."""
    from palyra.errors import Reason, Rejected
    from palyra.policy.request import parse_request

    stored = await installation.ports.journal.find_call(call_id)
    if stored is None:
        return None, Rejected(Reason.BAD_ARGUMENTS, f"The journal has no call {call_id[:40]!r}.")
    details = orjson.loads(stored.details) if stored.details else {}
    if not details.get("request"):
        outcome = orjson.loads(stored.outcome) if stored.outcome else {}
        reason = Reason(stored.reason) if stored.reason else Reason.INTERNAL
        return None, Rejected(reason, outcome.get("message") or "It never reached policy.", outcome.get("hint"))
    sentences = tuple((code, text) for code, text in (details.get("facts") or {}).get("details", ()))
    return _explain(installation, parse_request(details["request"]), sentences), None


async def _imagined(
    installation: Installation, tool: str, input: str | None, principal: str | None, workspace: str | None
) -> tuple[Explanation | None, Rejected | None]:
    from palyra.cli.call import read_input
    from palyra.cli.session import make_run
    from palyra.engine.trip import CallRequest

    run = make_run(installation, workspace=workspace, principal=principal)
    trip, refusal = await installation.engine.assess(CallRequest(tool=tool, input=read_input(input), run=run))
    if trip.cedar is None or trip.facts is None:
        return None, refusal
    explained = _explain(installation, trip.cedar, trip.facts.details)
    return explained, refusal if explained.kind in ("allowed", "ask") else None


def _explain(installation: Installation, request: object, details: tuple[tuple[str, str], ...]) -> Explanation:
    from palyra.policy.decide import decide
    from palyra.policy.explain import explain as explain_decision
    from palyra.policy.request import Request
    from palyra.policy.store import POSTURES, load_posture

    assert isinstance(request, Request)
    bundle = installation.policies.current()
    others = {name: load_posture(name) for name in POSTURES if name != bundle.name}
    return explain_decision(bundle, request, decide(bundle, request, details=details), postures=others)


def _print(settings: Settings, explained: Explanation | None, refusal: Rejected | None) -> int:
    """`refusal` is what stops the call outside policy: its shape, its budget, or a host that cannot enforce it."""
    from palyra.policy.explain import explanation_json

    refused = None
    if refusal is not None:
        refused = {"reason": refusal.reason.value, "message": refusal.detail, "hint": refusal.hint}
    if settings.json:
        click.echo(orjson.dumps((explanation_json(explained) if explained else {}) | {"refused": refused}))
    else:
        for line in [*(_lines(explained) if explained else ()), *_refusal_lines(refusal)]:
            say(line)
    return 0 if explained is not None else 1


def _refusal_lines(refusal: Rejected | None) -> list[str]:
    if refusal is None:
        return []
    return [f"refused: {refusal.reason}: {refusal.detail}", *([f"hint: {refusal.hint}"] if refusal.hint else [])]


def _lines(explained: Explanation) -> list[str]:
    from palyra.policy.explain import explanation_json

    value = explanation_json(explained)
    lines = [f"{value['effect']} ({value['kind']}), bundle {value['bundle']} {str(value['policy_sha256'])[:16]}"]
    if value["reason"]:
        lines += [f"{value['reason']}: {value['message']}"]
    lines += [f"  decided by {p['id']} ({p['file']}:{p['line']}): {p['reason']}" for p in value["policies"]]
    for near in value["nearest"]:
        lines += [f"  nearest permit {near['id']}: failed {'; '.join(near['failed'])}"]
    lines += [f"  would {c['effect']}: {c['text']}" for c in value["changes"]]
    return lines


for _further in (diff, replay, use, rollback, versions):
    command.add_command(_further)
