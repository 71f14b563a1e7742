"""`palyra`: the group of commands. Each lives in a file of its own and is imported only when it is run.

Rules: `palyra --version` imports click and nothing else of weight. Global options are accepted before and after the
command's name. Wrong usage exits 2, but 125 for `run` and `call`, whose other codes belong to the program they run.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

import palyra
from palyra.cli.options import Settings, global_options

# command -> (module, one line for the list); the attribute is always `command`
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("palyra.cli.run", "Run a program in a sandbox; transparent stdin, stdout and exit code."),
    "call": ("palyra.cli.call", "Call any tool with JSON input."),
    "tools": ("palyra.cli.tools", "List the tools, or show one with its schemas."),
    "sandbox": ("palyra.cli.sandbox", "What this host can enforce, and what would run where."),
    "policy": ("palyra.cli.policy", "Show the policies and explain their decisions."),
    "journal": ("palyra.cli.journal", "Read and verify the tamper-evident journal."),
    "verify": ("palyra.cli.verify", "Verify an outcome or attestation, offline."),
    "doctor": ("palyra.cli.doctor", "Check this machine; name what is missing and how to fix it."),
    "init": ("palyra.cli.init", "Write a commented palyra.toml and a policy folder into the home."),
    "explain": ("palyra.cli.explain", "What a reason code means and what to do about it."),
    "demo": ("palyra.cli.demo", "See in half a minute what Palyra does."),
}
CALLS = ("run", "call")


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        loaded = import_module(COMMANDS[cmd_name][0]).command
        assert isinstance(loaded, click.Command)
        return loaded

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    epilog="Try: palyra run -- ls -la    palyra run -- cat /etc/shadow    palyra doctor",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(palyra.__version__, prog_name="palyra", message="%(prog)s %(version)s")
@global_options
@click.pass_context
def cli(ctx: click.Context, **given: object) -> None:
    """Run AI agents' tool calls: decided by policy, enforced by the kernel, proven by a signed journal."""
    ctx.obj = Settings.of(given)


def main() -> None:
    """The entry point: wrong usage and our own errors get the exit codes of the contract, never a traceback."""
    called = next((word for word in sys.argv[1:] if word in COMMANDS), "")
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.UsageError as error:
        error.show()
        code = 125 if called in CALLS else 2
    except click.Abort:
        code = 130
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        code = 141
    except Exception as error:  # noqa: BLE001  # the last line before the user: a code and a sentence
        code = _own_error(error)
    sys.exit(code if isinstance(code, int) else 0)


def _own_error(error: Exception) -> int:
    from palyra.errors import ConfigError, PalyraError, Rejected, StateError

    if isinstance(error, Rejected):
        click.echo(f"palyra: {error.reason}: {error.detail}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return 126
    if isinstance(error, (ConfigError, StateError)):
        click.echo(f"palyra: {error.detail}", err=True)
        if error.hint:
            click.echo(f"hint: {error.hint}", err=True)
        return 125
    if isinstance(error, PalyraError):
        click.echo(f"palyra: {error}", err=True)
        return 125
    click.echo(f"palyra: internal error: {type(error).__name__}: {error}", err=True)
    click.echo("hint: run again with --verbose for where it happened, and report it.", err=True)
    if "--verbose" in sys.argv:
        import traceback

        traceback.print_exception(error)
    return 125
