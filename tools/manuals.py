"""Manual pages and shell completions, made from the commands themselves.

    python tools/manuals.py FOLDER

Writes FOLDER/man/man1/palyra*.1, one page a command, and FOLDER/completions/{bash,zsh,fish}. What a page says is what
`--help` says: there is no second text to keep.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from palyra.cli.main import cli
from palyra.version import __version__

SHELLS = {"bash": "palyra.bash", "zsh": "_palyra", "fish": "palyra.fish"}


def every_command(group: click.Command, name: str, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield name, group
    if isinstance(group, click.Group):
        for word in group.list_commands(context):
            inner = group.get_command(context, word)
            if inner is not None and not inner.hidden:
                yield from every_command(inner, f"{name} {word}", context)


def manual(name: str, command: click.Command) -> str:
    """One page of roff."""
    title = name.replace(" ", "-")
    usage = click.Context(command, info_name=name).get_usage().removeprefix("Usage: ")
    lines = [
        f'.TH "{title.upper()}" 1 "" "palyra {__version__}" "Palyra"',
        ".SH NAME",
        f"{_roff(title)} \\- {_roff(command.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        f".B {_roff(' '.join(usage.split()))}",
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
        *_options(command),
        *_commands(command, name),
    ]
    if command.epilog:
        lines += [".SH NOTES", ".nf", *(_roff(line) for line in command.epilog.replace("\b\n", "").splitlines()), ".fi"]
    lines += [".SH SEE ALSO", ".BR palyra (1), palyra explain, palyra doctor"]
    return "\n".join(lines) + "\n"


def _options(command: click.Command) -> Iterator[str]:
    yield ".SH OPTIONS"
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            metavar = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
            yield ".TP"
            yield f".B {_roff(', '.join(parameter.opts) + metavar)}"
            yield _roff(parameter.help or "")
    yield ".TP"
    yield ".B \\-h, \\-\\-help"
    yield "Show this."


def _commands(command: click.Command, name: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        yield ".SH COMMANDS"
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            if inner is not None and not inner.hidden:
                yield ".TP"
                yield f".BR {_roff(f'{name} {word}'.replace(' ', '-'))} (1)"
                yield _roff(inner.get_short_help_str(200))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ".PP"
        yield _roff(" ".join(paragraph.split()))


def _roff(text: str) -> str:
    """A line that begins with a dot or a quote would be a command to roff."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def completion(shell: str) -> str:
    kind = get_completion_class(shell)
    assert kind is not None
    return kind(cli, {}, "palyra", "_PALYRA_COMPLETE").source()


def write(folder: Path) -> list[Path]:
    pages = folder / "man" / "man1"
    shells = folder / "completions"
    for place in (pages, shells):
        place.mkdir(parents=True, exist_ok=True)
    written = []
    for name, command in every_command(cli, "palyra", click.Context(cli)):
        written.append(pages / f"{name.replace(' ', '-')}.1")
        written[-1].write_text(manual(name, command), encoding="utf-8")
    for shell, file in SHELLS.items():
        written.append(shells / file)
        written[-1].write_text(completion(shell), encoding="utf-8")
    return written


if __name__ == "__main__":
    print(f"{len(write(Path(sys.argv[1])))} files in {sys.argv[1]}")
