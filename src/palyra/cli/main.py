"""`palyra`: the group of commands. Each lives in a file of its own and is imported only when it is run.

Rules: `palyra --version` imports click and nothing else of weight. Global options are accepted before and after the
command's name. Wrong usage exits 2, but 125 for `run` and `call`, whose other codes belong to the program they run.
A reader that went away ends any command with 141, as SIGPIPE would.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import click

import palyra
from palyra.cli.light import leave
from palyra.cli.options import Settings, global_options, suggesting
from palyra.cli.say import (
    OWN_ERROR,
    PIPE_GONE,
    flush_streams,
    say,
    say_error,
    say_failure,
    say_json_error,
    say_refusal,
    say_unwritten,
    settle_streams,
    wants_detail,
)
from palyra.cli.shortage import MEMORY, MEMORY_HINT, find_low_limit, shortage_of, write_plainly

# command -> (module, one line for the list); the attribute is always `command`
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("palyra.cli.run", "Run a program in a sandbox; transparent stdin, stdout and exit code."),
    "call": ("palyra.cli.call", "Call any tool with JSON input."),
    "ps": ("palyra.cli.ps", "List background processes."),
    "logs": ("palyra.cli.logs", "Show what a background process wrote."),
    "stop": ("palyra.cli.stop", "Stop a background process."),
    "tools": ("palyra.cli.tools", "List the tools, or show one with its schemas."),
    "sandbox": ("palyra.cli.sandbox", "What this host can enforce, and what would run where."),
    "policy": ("palyra.cli.policy", "Explain a refusal (explain ID), allow it (allow ID), show the policies."),
    "approvals": ("palyra.cli.approvals", "See what is waiting for a person; approve, deny, list and revoke grants."),
    "secrets": ("palyra.cli.secrets", "Keep secrets: encrypted, redacted, bound to hosts."),
    "serve": ("palyra.cli.serve", "Serve agents and operators over HTTP and a Unix socket."),
    "console": ("palyra.cli.console", "Print a link that opens the operator's console."),
    "token": ("palyra.cli.token", "Make, list and revoke the daemon's tokens."),
    "skills": ("palyra.cli.skills", "Signed packages of tools: build, trust, audit, enable, remove."),
    "runs": ("palyra.cli.runs", "List runs, show what one has used of its budget, extend it."),
    "journal": ("palyra.cli.journal", "Read and verify the tamper-evident journal."),
    "verify": ("palyra.cli.verify", "Verify an outcome or attestation, offline."),
    "doctor": ("palyra.cli.doctor", "Check this machine; name what is missing and how to fix it."),
    "hook": ("palyra.cli.hook", "Let the policies decide what Claude Code, Codex or Cursor run themselves."),
    "mcp": ("palyra.cli.mcp", "Serve the tools to an MCP client over stdin and stdout."),
    "cluster": ("palyra.cli.cluster", "Many machines: nodes that run calls for every daemon."),
    "init": ("palyra.cli.init", "Write a commented palyra.toml and a policy folder into the home."),
    "explain": ("palyra.cli.explain", "What a reason code such as INTERPRETER_DENIED means, and what to do."),
    "gc": ("palyra.cli.gc", "Remove old artifacts and logs, and what dead processes left."),
    "demo": ("palyra.cli.demo", "See what Palyra does, in half a minute."),
    "bench": ("palyra.cli.bench", "Measure Palyra beside its peers, as ratios."),
}
SECTIONS: dict[str, tuple[str, ...]] = {
    "Begin": ("demo", "doctor", "init", "explain"),
    "Run": ("run", "call", "ps", "logs", "stop"),
    "Decide": ("tools", "sandbox", "policy", "approvals", "secrets", "runs"),
    "Look back": ("journal", "verify"),
    "Let agents in": ("mcp", "hook", "serve", "console", "token", "skills", "cluster"),
    "Care": ("gc", "bench"),
}
"""The same commands as a person looks for them."""
CALLS = ("run", "call")


EXTRAS = {
    **dict.fromkeys(("jinja2", "pydantic", "starlette", "uvicorn"), "daemon"),
    "mcp": "mcp",
    "cyclonedx": "skills",
    "keyring": "keyring",
    **dict.fromkeys(("ray", "psycopg"), "cluster"),
}
"""Whose module belongs to which extra of the package."""
INSTALL = "In a checkout of Palyra: pip install '.[{}]'"
NO_THREAD = "can't start new thread"
"""All that Python says when the user has no more processes."""
_KINDS = {"integer range": "whole number", "integer": "whole number", "float range": "number", "float": "number"}
MEND_STATE = "palyra doctor and palyra journal verify say more."
MEND_POLICY = "Fix the file in the home's policies folder; palyra policy check tests it without using it."


@contextmanager
def _pipe_gone_is_141() -> Iterator[None]:
    """Before click sees it: its own handling of a broken pipe exits 1, which in our contract is an answer."""
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(PIPE_GONE) from None


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        loaded = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(loaded, click.Command)
        return loaded

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with _pipe_gone_is_141():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _pipe_gone_is_141():
            return super().invoke(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        with suggesting(ctx, args, COMMANDS):
            return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), COMMANDS[name][1]) for name in names])


@click.group(
    cls=LazyGroup,
    epilog="Try: palyra run -- ls -la    palyra run -- cat /etc/shadow    palyra doctor",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(palyra.__version__, prog_name="palyra", message="%(prog)s %(version)s")
@global_options
@click.pass_context
def cli(ctx: click.Context, /, **given: object) -> None:
    """Run an AI agent's commands in a sandbox: your rules decide, and every call leaves a signed record."""
    ctx.obj = Settings.of(given)


def main() -> None:
    """The entry point: wrong usage and our own errors get the exit codes of the contract, never a traceback."""
    settle_streams()
    usage_code = 125 if called_command(sys.argv[1:]) in CALLS else 2
    low = find_low_limit(called_command(sys.argv[1:]))
    code = _guarded(usage_code) if low is None else _say_short(*low)
    unwritten = flush_streams()
    if unwritten is not None and code == 0:
        code = say_unwritten(unwritten, "Send it somewhere else.")
    leave(code)


def serve_main() -> None:
    """`palyrad`: `palyra serve` under the name a system's own list of services knows it by. Its help names itself
    `palyrad serve`, so that works, too."""
    if sys.argv[1:2] not in (["serve"], ["--version"]):
        sys.argv.insert(1, "serve")
    main()


def called_command(words: list[str]) -> str:
    """The command's name, also where click stops before it: the first word that is no option and no option's value."""
    rest = iter(words)
    for word in rest:
        if word in ("--home", "--config"):
            next(rest, None)
        elif not word.startswith("-"):
            return word
    return ""


def _guarded(usage_code: int) -> int:
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        with suppress(OSError):  # the code says it too, where stderr cannot be written
            _show_usage(error)
        return usage_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001  # the last line before the user: a code and a sentence
        try:
            if shortage_of(error) == errno.ENOMEM:
                return _say_short(MEMORY, MEMORY_HINT)
            return _own_error(_innermost(error), usage_code)
        except (MemoryError, ImportError):
            return _say_short(MEMORY, MEMORY_HINT)
        except OSError as unsaid:  # nobody reads stderr either, or its disk is full
            return PIPE_GONE if isinstance(unsaid, BrokenPipeError) else OWN_ERROR
    return code if isinstance(code, int) else 0


def _say_short(sentence: str, hint: str) -> int:
    try:
        if "--json" in _own_words():
            say_json_error("FAILED", sentence, hint)
        say_error(sentence, hint)
    except (OSError, MemoryError, ImportError):
        write_plainly(sentence, hint)
    return OWN_ERROR


def _show_usage(error: click.UsageError) -> None:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        say(error.format_message(), err=True)
        return
    message = _plain(error.format_message())
    if error.ctx is not None:
        say(error.ctx.get_usage() + f"\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    if "--json" in _own_words():
        say_json_error("USAGE", message, None)
    say(f"Error: {message}", err=True)


def _plain(message: str) -> str:
    """click calls the kind of an option by its own name for it."""
    for theirs, ours in _KINDS.items():
        message = message.replace(f"is not a valid {theirs}.", f"is not a {ours}.")
    return message


def _own_words() -> list[str]:
    """What was said to Palyra: after `--` come the words of the program that is run."""
    words = sys.argv[1:]
    return words[: words.index("--")] if "--" in words else words


def _innermost(error: Exception) -> Exception:
    """A task group wraps what ends it: a port in use under `palyra serve` is that, not a group of one error."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _own_error(error: Exception, usage_code: int) -> int:
    from palyra.config.load import HomeError
    from palyra.errors import ConfigError, PalyraError, Rejected, StateError
    from palyra.model.reasons import SHORTAGES
    from palyra.policy.scan import PolicyError

    if isinstance(error, Rejected):
        say_refusal(error.reason.value, error.detail, error.hint)
        return 1 if usage_code == 2 else 126  # a refused call, or an answer that is no
    if isinstance(error, (ConfigError, StateError)):
        # A call whose record cannot be kept is not made: that has a code, as every refusal of a call.
        mend = {PolicyError: MEND_POLICY, StateError: MEND_STATE}
        kind = "JOURNAL_DOWN" if isinstance(error, StateError) else "CONFIG"
        refused = kind == "JOURNAL_DOWN" and usage_code != 2
        (say_refusal if refused else say_failure)(kind, error.detail, error.hint or mend.get(type(error)))
        return 126 if refused else usage_code if isinstance(error, HomeError) else 125
    if isinstance(error, (PalyraError, click.ClickException)):
        say_failure("FAILED", str(error), error.hint if isinstance(error, PalyraError) else None)
        return 125
    if isinstance(error, ModuleNotFoundError) and (extra := EXTRAS.get((error.name or "").partition(".")[0])):
        say_failure("MISSING_EXTRA", f"This needs {error.name}, which is not installed.", INSTALL.format(extra))
        return 125
    if isinstance(error, RuntimeError) and str(error) == NO_THREAD:
        say_failure("FAILED", "No more threads can be started.", SHORTAGES[errno.EAGAIN])
        return 125
    if isinstance(error, UnicodeEncodeError) and (word := _no_text(sys.argv[1:])) is not None:
        say_failure(
            "USAGE", f"{word[:40]!r} is not text in UTF-8.", "Give names and IDs as the list commands show them."
        )
        return usage_code
    if not isinstance(error, OSError) and shortage_of(error) == errno.EMFILE:
        say_failure("FAILED", "Too many files are open.", SHORTAGES[errno.EMFILE])
        return 125
    if isinstance(error, OSError):
        about = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        hint = SHORTAGES.get(error.errno or 0, "Check that file or folder.")
        say_failure("FAILED", f"{about}{error.strerror or error}.", hint)
        if wants_detail():  # a daemon's log would have it otherwise: nobody needs it for a folder that is read-only
            _show_where(error)
        return 125
    say_failure(
        "INTERNAL",
        f"internal error: {type(error).__name__}: {error}",
        "run it again with --verbose to see where it happened, and report it.",
    )
    _show_where(error)
    return 125


def _no_text(words: list[str]) -> str | None:
    """The first whose bytes are not UTF-8: a path may be that, an ID or a name that is looked up cannot."""
    return next((word for word in words if any("\ud800" <= sign <= "\udfff" for sign in word)), None)


def _show_where(error: Exception) -> None:
    """With --verbose, as the command itself took it: a `--verbose` of the program that is run is not ours."""
    import logging

    if logging.getLogger().handlers:
        logging.getLogger("palyra").warning("where it happened:", exc_info=error)
