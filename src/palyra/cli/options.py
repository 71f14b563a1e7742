"""Options that every command takes, before or after its name, and how they become one value."""

from __future__ import annotations

import getpass
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar

import click

from palyra.cli.say import promise_detail, promise_json
from palyra.values import dataclass

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Settings:
    home: str | None = None
    config: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False

    @staticmethod
    def of(given: Mapping[str, Any]) -> Settings:
        return Settings(**{name: given[name] for name in Settings.__slots__ if given.get(name)})

    def over(self, other: Settings) -> Settings:
        """What was said after the command's name stands before what was said in front of it."""
        return Settings(
            home=self.home or other.home,
            config=self.config or other.config,
            json=self.json or other.json,
            quiet=self.quiet or other.quiet,
            verbose=self.verbose or other.verbose,
        )


SHORT_HELP = 120
_HOME = "State folder (default: $PALYRA_HOME or the XDG data folder)."
_OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("--home", {"metavar": "DIR", "help": _HOME}),
    ("--config", {"metavar": "FILE", "help": "Configuration file (default: HOME/palyra.toml)."}),
    ("--json", {"is_flag": True, "help": "One JSON value on stdout."}),
    ("--quiet", {"is_flag": True, "help": "Print only results and refusals."}),
    ("--verbose", {"is_flag": True, "help": "Print more on stderr."}),
)


def global_options(function: F) -> F:
    for name, how in reversed(_OPTIONS):
        function = click.option(name, **how)(function)
    return function


_OPTION_OF = {"help": "--help", "version": "--version"}
"""Commands elsewhere, options here."""


@contextmanager
def suggesting(ctx: click.Context, args: list[str], known: Iterable[str]) -> Iterator[None]:
    """Who mistypes a command is told the nearest ones."""
    try:
        yield
    except click.UsageError:
        if args[0].startswith("-"):
            raise
        from difflib import get_close_matches

        near = [_OPTION_OF[args[0]]] if args[0] in _OPTION_OF else get_close_matches(args[0], known, n=2)
        meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise click.UsageError(f"No such command {args[0]!r}.{meant}", ctx) from None


class NounGroup(click.Group):
    """Commands of one noun. `palyra tools --json list` is `palyra tools list --json`."""

    def __init__(self, *args: Any, **how: Any) -> None:
        super().__init__(*args, **how)
        self.params += [
            click.Option([name], expose_value=False, hidden=True, callback=_note, **how) for name, how in _OPTIONS
        ]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        with suggesting(ctx, args, self.list_commands(ctx)):
            return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences: click would cut them to one line of the terminal."""
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            shown = [(name, one) for name, one in found if one is not None and not one.hidden]
            formatter.write_dl([(name, one.get_short_help_str(SHORT_HELP)) for name, one in shown])


def _note(ctx: click.Context, option: click.Parameter, value: Any) -> None:
    if value and option.name is not None:
        ctx.obj = Settings(**{option.name: value}).over(ctx.find_object(Settings) or Settings())


def with_settings(function: F) -> F:
    """Give a command the global options and pass them on as one `Settings` value."""

    @click.pass_context
    @wraps(function)
    def command(ctx: click.Context, /, **given: Any) -> Any:
        outer = ctx.find_object(Settings) or Settings()
        settings = Settings.of(given).over(outer)
        set_up_logging(verbose=settings.verbose)
        if settings.json:
            promise_json()
        for name in Settings.__slots__:
            given.pop(name, None)
        return function(settings, **given)

    return global_options(command)  # type: ignore[return-value]  # click's own wrapping loses the type


def set_up_logging(*, verbose: bool) -> None:
    """Warnings and tracebacks only for who asked: without --verbose, stderr is the program's and our two lines'."""
    import logging

    root = logging.getLogger()
    if verbose:
        promise_detail()
        logging.basicConfig(level=logging.WARNING, format="palyra: %(name)s: %(message)s")
    elif not root.handlers:
        root.addHandler(logging.NullHandler())


def parse_id(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """For --before: any other word would quietly mean everything or nothing."""
    if value is not None and not (len(value) == 26 and value.isascii() and value.isalnum()):
        raise click.BadParameter(f"{value[:40]!r} is not an ID; list commands show IDs in their first column")
    return value


def login_principal() -> str:
    """`user:<login>`; a login with characters a principal cannot have is spelled with underscores."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return "user:" + (re.sub(r"[^A-Za-z0-9._@-]", "_", name).lstrip("._@-")[:128] or "unknown")
