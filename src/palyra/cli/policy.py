"""`palyra policy show | check | test`: the policies in force, and trying others without using them.

`explain` (policy_explain), `allow` and `disallow` (policy_exceptions), `diff` and `replay` (policy_change), `use`,
`rollback` and `versions` (policy_versions) live beside this file.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.policy_change import diff, replay
from palyra.cli.policy_exceptions import allow, disallow
from palyra.cli.policy_explain import explain
from palyra.cli.policy_versions import located, rollback, use, versions
from palyra.cli.say import say, say_error
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.policy.bundle import PolicyBundle
    from palyra.policy.scan import PolicyError


@click.group("policy", cls=NounGroup)
def command() -> None:
    """Show, check and change the policies, and explain their decisions."""


@command.command("show", epilog="Example: palyra policy show --json")
@with_settings
def show(settings: Settings) -> int:
    """The bundle in force: its digest and every policy with its reason."""
    bundle, version = in_force(settings)
    items = [
        {"id": p.id, "effect": p.effect, "code": p.code, "reason": p.reason, "file": p.file, "line": p.line,
         "lifts": list(p.lifts)}
        for p in bundle.index.values()
    ]  # fmt: skip
    if bundle.stale:
        say_error(f"The policy files need repair: {bundle.stale}", "These are the last that could be used.")
    if settings.json:
        stale = bundle.stale or None
        head = {"bundle": bundle.name, "policy_sha256": bundle.digest, "version": version, "stale": stale}
        click.echo(orjson.dumps({**head, "items": items, "next": None}))
        return 0
    say(
        f"{bundle.name}  {bundle.digest}"
        + (f"  (version {version[:16]}; the policies folder is a draft)" if version else "")
    )
    for policy in bundle.index.values():
        lifts = f" Lifts {', '.join(policy.lifts)}." if policy.lifts else ""
        say(f"  {policy.effect:6}  {policy.id}  ({policy.file}:{policy.line})\n          {policy.reason}{lifts}")
    return 0


def in_force(settings: Settings) -> tuple[PolicyBundle, str | None]:
    """The bundle and its version, read as they lie there: showing policies makes no home."""
    from contextlib import nullcontext

    from palyra.config.load import find_home, load_config
    from palyra.policy.store import PolicyStore
    from palyra.state.connection import snapshot
    from palyra.state.db import read_home
    from palyra.wiring.versions import KeptVersions

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    has_state = (home.state / "palyra.db").is_file()
    with snapshot(read_home(home.root).database) if has_state else nullcontext() as connection:
        versions = None if connection is None else KeptVersions(connection)
        strict = config.policy.strict
        bundle = PolicyStore(config.posture, home.policies, versions=versions, strict=strict).current()
        return bundle, None if versions is None else versions.pointer()


@command.command("check", epilog="Example: palyra policy check ./policies")
@click.argument("folder", required=False, metavar="[FILE|DIR]")
@with_settings
def check(settings: Settings, folder: str | None) -> int:
    """Parse and validate policies as at a start, without using them. On an error: exit 1 with file, line and policy."""
    from palyra.policy.load import read_source

    tried = _try(settings, folder, read_source)
    if tried is None:
        return 1
    _answer(settings, _json_of(tried), f"checked: {_text_of(tried)}")
    return 0


@command.command("test", epilog="Example: palyra policy test ./policies")
@click.argument("folder", required=False, metavar="[FILE|DIR]")
@with_settings
def test(settings: Settings, folder: str | None) -> int:
    """Run the examples beside the policies; each must be decided as it says. What policies of your own change of the
    posture's examples is told, and is no failure."""
    from palyra.policy.bundle import EXAMPLES_FILE, decided_otherwise
    from palyra.policy.load import read_tested
    from palyra.policy.store import read_posture

    tried = _try(settings, folder, read_tested)
    if tried is None:
        return 1
    count, otherwise = decided_otherwise(tried.bundle, EXAMPLES_FILE, read_posture(tried.posture)[EXAMPLES_FILE])
    items = [{"name": name, "problem": problem} for name, problem in otherwise]
    lines = [f"tested: {_text_of(tried)}"]
    if tried.bundle.name != tried.posture:
        lines.append(f"of the {count} examples of {tried.posture}, decided otherwise: {len(otherwise)}")
        lines += [f"  {name!r}: {problem}" for name, problem in otherwise]
    posture = {"name": tried.posture, "examples": count, "otherwise": items}
    _answer(settings, _json_of(tried) | {"posture": posture}, "\n".join(lines))
    if not tried.examples and not settings.quiet:
        say(f"hint: {_NO_EXAMPLES}", err=True)
    return 0


_NO_EXAMPLES = "Say in examples.toml beside your policies what they must do: docs/guide/first-policy.md shows how."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    posture: str
    bundle: PolicyBundle
    place: Path
    examples: int


def _json_of(tried: _Tried) -> dict[str, object]:
    bundle = tried.bundle
    return {"ok": True, "bundle": bundle.name, "policies": len(bundle.index), "examples": tried.examples}


def _text_of(tried: _Tried) -> str:
    of = f"{len(tried.bundle.index)} policies, {tried.examples} examples decide as written"
    return f"{tried.bundle.name} with {tried.place}, {of}"


def _try(settings: Settings, folder: str | None, read: Callable[[Path], dict[str, str]]) -> _Tried | None:
    """Loading does both: a folder whose examples fail is as unusable as one that does not parse. None when it has been
    said what is wrong."""
    from palyra.config.load import find_home, load_config
    from palyra.policy.bundle import check_examples
    from palyra.policy.load import read_folder
    from palyra.policy.scan import PolicyError
    from palyra.policy.store import load_posture, try_in_child

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    place = Path(folder) if folder else home.policies
    if folder and not place.exists():
        raise click.UsageError(f"{folder} is neither a file nor a folder.")
    try:
        local = read(place) if folder else read_folder(place)
        if local:
            try_in_child(config.posture, local)
        bundle = load_posture(config.posture, local)
        examples = check_examples(bundle, "examples.toml", bundle.examples)
    except PolicyError as error:
        _say_wrong(settings, error, place)
        return None
    return _Tried(posture=config.posture, bundle=bundle, place=place, examples=examples)


def _say_wrong(settings: Settings, error: PolicyError, place: Path) -> None:
    detail, hint = located(error, place), error.hint
    if "examples.toml: Example " in detail and place.is_file() and len([*place.parent.glob("*.cedar")]) > 1:
        hint = f"They speak of all policies there: palyra policy test {shlex.quote(str(place.parent))}"
    value = {"ok": False, "error": detail, "hint": hint}
    _answer(settings, value, f"{detail}\nhint: {hint or 'Mend the file, and check it again.'}")


def _answer(settings: Settings, value: dict[str, object], text: str) -> None:
    if settings.json:
        click.echo(orjson.dumps(value))
    else:
        say(text)


for _further in (explain, allow, disallow, diff, replay, use, rollback, versions):
    command.add_command(_further)
