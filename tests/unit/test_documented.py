"""Nothing that users can say is undocumented: no flag, no route, no reason, no setting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import get_type_hints

import click
import pytest

from palyra.cli.main import COMMANDS, cli
from palyra.config.schema import Config
from palyra.daemon.table import ROUTES
from palyra.errors import Reason
from palyra.model.reasons import REASONS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def every_command(group: click.Command, name: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield name, group
    if isinstance(group, click.Group):
        for word in group.list_commands(context):
            inner = group.get_command(context, word)
            assert inner is not None
            yield from every_command(inner, f"{name} {word}", context)


ALL = list(every_command(cli, "palyra", click.Context(cli)))


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_flag_says_what_it_does_and_is_in_the_reference(name: str, command: click.Command) -> None:
    assert command.help, f"{name} has no help"
    reference = page("cli.md")
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"
            assert max(parameter.opts, key=len) in reference, f"{name} {parameter.opts[0]} is not in cli.md"


def test_every_command_has_its_line_and_an_example() -> None:
    assert [name for name, (_, line) in COMMANDS.items() if not line.endswith(".")] == []
    leaves = [(name, command) for name, command in ALL if not (isinstance(command, click.Group) or command.hidden)]
    without = [name for name, command in leaves if "Example" not in (command.epilog or "")]
    assert without == []


def test_every_route_is_in_the_reference() -> None:
    reference = page("http.md")
    assert [one.path for one in ROUTES if f"`{one.method} {one.path}`" not in reference] == []
    assert [one.path for one in ROUTES if not one.summary.endswith((".", "?"))] == []


def test_every_reason_is_in_the_reference() -> None:
    reference = page("reasons.md")
    assert [reason for reason in Reason if f"`{reason}`" not in reference] == []
    assert set(REASONS) == set(Reason)


def every_key(kind: type, path: str = "") -> Iterator[str]:
    hints = get_type_hints(kind)
    for field in fields(kind):
        inner = hints[field.name]
        if is_dataclass(inner):
            yield from every_key(inner, f"{path}{field.name}.")  # type: ignore[arg-type]
        else:
            yield f"{path}{field.name}"


def test_every_setting_is_in_the_reference() -> None:
    reference = page("config.md")
    assert [key for key in every_key(Config) if f"`{key.rpartition('.')[2]}`" not in reference] == []


def test_the_profile_in_the_guide_is_the_one_among_the_examples() -> None:
    project = REFERENCE.parents[1]
    guide = (project / "docs" / "guide" / "harden-the-host.md").read_text(encoding="utf-8")
    profile = (project / "examples" / "apparmor" / "bwrap").read_text(encoding="utf-8")
    lines = [line.strip() for line in profile.splitlines() if not line.startswith("#")]
    assert [line for line in lines if line not in guide and not line.lstrip().startswith(("#", "include if"))] == []


def test_every_extra_that_a_command_can_miss_is_one_of_the_packages() -> None:
    import tomllib

    from palyra.cli.main import EXTRAS

    extras = tomllib.loads((REFERENCE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) <= set(extras)


def test_every_command_has_a_manual_page(tmp_path: Path) -> None:
    import manuals

    written = {file.name for file in manuals.write(tmp_path)}
    shown = {f"{name.replace(' ', '-')}.1" for name, command in ALL if not command.hidden}
    assert shown <= written
    assert {"palyra.bash", "_palyra", "palyra.fish"} <= written
