"""`palyra skills …`: the group. Each command lives in a file beside this one and is imported when it is run."""

from __future__ import annotations

from importlib import import_module

import click

from palyra.cli.options import NounGroup

# command -> (module, attribute, one line for the list), in the order of a skill's life
COMMANDS: dict[str, tuple[str, str, str]] = {
    "new": ("palyra.cli.skills_new", "command", "Write a project for a new skill."),
    "build": ("palyra.cli.skills_build", "command", "Compile a project in a sandbox, pack it and sign it."),
    "test": ("palyra.cli.skills_test", "command", "Run a built package on its recorded inputs."),
    "sign": ("palyra.cli.skills_package", "sign", "Sign a package again with another key."),
    "verify": ("palyra.cli.skills_package", "verify", "Check that a package is intact and signed by a trusted key."),
    "show": ("palyra.cli.skills_look", "show", "Explain a package or an installed skill."),
    "audit": ("palyra.cli.skills_look", "audit", "Audit a package or an installed skill."),
    "install": ("palyra.cli.skills_install", "install", "Install a package, into quarantine."),
    "update": ("palyra.cli.skills_install", "update", "Install another version of a skill, into quarantine."),
    "list": ("palyra.cli.skills_look", "list_command", "List the installed skills and their states."),
    "review": ("palyra.cli.skills_life", "review", "Record that a person reviewed a version."),
    "enable": ("palyra.cli.skills_life", "enable", "Allow calls to a skill's tools."),
    "disable": ("palyra.cli.skills_life", "disable", "Stop allowing calls to a skill's tools."),
    "quarantine": ("palyra.cli.skills_life", "quarantine", "Take a skill out of use and stop its running calls."),
    "rollback": ("palyra.cli.skills_life", "rollback", "Return to the version that was enabled before."),
    "remove": ("palyra.cli.skills_life", "remove", "Remove a skill; its history is kept."),
    "trust": ("palyra.cli.skills_trust", "command", "Publishers' keys: add, list, revoke, rotate."),
    "propose": (
        "palyra.cli.skills_builder",
        "propose",
        "Propose a candidate from a description or from a run (experimental).",
    ),
    "candidates": ("palyra.cli.skills_builder", "candidates", "List the candidates."),
    "promote": ("palyra.cli.skills_builder", "promote", "Build a candidate and install it into quarantine."),
}


class SkillGroup(NounGroup):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute, _ = COMMANDS[cmd_name]
        loaded = getattr(import_module(module), attribute)
        assert isinstance(loaded, click.Command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.group("skills", cls=SkillGroup)
def command() -> None:
    """Signed packages of WebAssembly tools: write, build, trust, audit, enable, and remove."""
