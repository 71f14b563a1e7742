"""docs/reference/cli.md, from the click objects: every command with its usage, arguments, options and examples.

Tables instead of click's own help text: that wraps by the terminal's width and by the version of click.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import cleandoc

import click

from palyra.cli.main import cli
from palyra.cli.options import Settings

GLOBAL = frozenset(Settings.__slots__)
EXIT_CODES = """## Exit codes

| code | `palyra run` | `palyra call` | other commands |
|---|---|---|---|
| 0 | the program ended with 0 | success | done; what was asked holds |
| 1 | the program's own | the tool failed | what was asked does not hold, or there is no such thing |
| 2 | the program's own | – | wrong usage |
| 75 | waits for an approval | waits for an approval | – |
| 124 | time-out | – | – |
| 125 | Palyra's own error, or wrong usage | Palyra's own error, or wrong usage | Palyra's own error |
| 126 | refused | refused | – |
| 127 | allowed, but not found | – | – |
| 128 + n | signal n ended the program | – | – |
| 130 | cancelled (Ctrl-C, SIGTERM, SIGHUP) | – | – |
| 137 | the output quota was exceeded | – | – |

Any other code of `palyra run` is the program's own. 75 means that policy asks for a person and nobody has decided yet:
`palyra approvals show ID`, then repeat the call. On a terminal `run` and `call` ask there. A refusal writes two lines
to stderr, with `--json` and `--quiet` too: `palyra: CODE: sentence` and `hint: …`; a call that waits does the same with
`pending_approval` for its code."""


def make_cli() -> Iterator[str]:
    context = click.Context(cli, info_name="palyra")
    yield "# Command line"
    yield cli.help or ""
    yield "Every command also takes these, before or after its name:"
    yield _table([p for p in cli.params if isinstance(p, click.Option) and p.name in GLOBAL])
    yield (
        'With `--json` stdout carries exactly one JSON value; lists are `{"items": […], "next": CURSOR or null}`, and '
        'what ends a command early is `{"error": {"code", "message", "hint"}}`. `palyra --version` and `-h`/`--help` '
        "need nothing else."
    )
    yield (
        'The words complete in a shell: `eval "$(_PALYRA_COMPLETE=bash_source palyra)"` in `.bashrc`, '
        '`eval "$(_PALYRA_COMPLETE=zsh_source palyra)"` in `.zshrc`, '
        "`_PALYRA_COMPLETE=fish_source palyra | source` in fish's configuration."
    )
    yield EXIT_CODES
    for name in cli.list_commands(context):
        yield from _describe(cli, name, context)


def _describe(group: click.Group, name: str, parent: click.Context) -> Iterator[str]:
    command = group.get_command(parent, name)
    assert command is not None, name
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * min(2 + context.command_path.count(' ') - 1, 4)} {context.command_path}"
    if isinstance(command, click.Group):
        yield cleandoc(command.help or "")
        for child in command.list_commands(context):
            yield from _describe(command, child, context)
        return
    own = [p for p in command.params if p.name not in GLOBAL]
    options = [p for p in own if isinstance(p, click.Option)]
    pieces = " ".join(["[OPTIONS]"] * bool(options) + [_argument(p) for p in own if isinstance(p, click.Argument)])
    yield f"```text\n{context.command_path} {pieces}".rstrip() + "\n```"
    yield cleandoc(command.help or "")
    if options:
        yield _table(options)
    if command.epilog:
        yield f"```text\n{_plain(command.epilog)}\n```"


def _argument(argument: click.Argument) -> str:
    name = argument.metavar or str(argument.name).upper()
    return name if argument.metavar or argument.required else f"[{name}]"


def _table(options: list[click.Option]) -> str:
    return "\n".join(["| option | meaning |", "|---|---|", *map(_row, options)])


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in option.opts)
    value = "" if option.is_flag else f" `{_value(option)}`"
    default = f" Default: `{option.default}`." if option.show_default or _is_word(option) else ""
    return f"| {names}{value} | {_cell(option.help or '')}{default} |".replace("|  Default", "| Default")


def _is_word(option: click.Option) -> bool:
    """A choice with a default that its help does not name."""
    return isinstance(option.type, click.Choice) and isinstance(option.default, str)


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "\\|".join(str(word) for word in option.type.choices)
    return _cell(option.metavar or "N")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _plain(epilog: str) -> str:
    return "\n".join(line for line in epilog.strip().splitlines() if line.strip() != "\b").strip("\b\n")
