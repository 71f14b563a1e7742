"""`palyra call TOOL JSON`: any tool, with the input an agent would send."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.grant_flags import grant_of, grant_words, with_grant_flags
from palyra.cli.options import Settings, with_settings

if TYPE_CHECKING:
    from palyra.model.outcome import Outcome
    from palyra.wiring.embedded import Installation

MAX_READ_BYTES = 16 << 20
MAX_WAIT_S = 86400
MAX_SENT_BYTES = 2 << 20
"""More than any tool takes, and than a daemon reads: what is larger is refused here."""

EPILOG = """\b
Examples:
  palyra call palyra.echo '{"hello": "world"}'
  palyra call palyra.process.run '{"command": "ls", "args": ["-la"]}'
  palyra call palyra.http.fetch '{"url": "https://example.org"}' --allow-host example.org
  palyra call palyra.echo @input.json --json
  echo '{}' | palyra call palyra.echo -

Exit codes: 0 success, 1 the tool failed, 75 waits for an approval, 125 Palyra's own error, 126 refused.
"""


def parse_wait(ctx: click.Context, param: click.Parameter, value: float) -> float:
    # Written so that nan, which is neither above nor below anything, is refused too.
    if not 0 <= value <= MAX_WAIT_S:
        raise click.BadParameter(f"write seconds from 0 to {MAX_WAIT_S}")
    return value


@click.command("call", epilog=EPILOG)
@click.argument("tool")
@click.argument("input", required=False, metavar="[JSON | @FILE | -]")
@click.option("--workspace", metavar="DIR", help="The folder tools may work in (default: the current folder).")
@click.option("--run", "run_id", metavar="ID", help="Share the budget of this run (a ULID).")
@click.option("--as", "principal", metavar="PRINCIPAL", help="Who asks: user:NAME or agent:NAME.")
@click.option("--device", default="", metavar="ID", help="The calling device, as policies see it.")
@click.option("--channel", default="", metavar="NAME", help="The channel it came through, as policies see it.")
@click.option(
    "--wait",
    "wait_s",
    type=float,
    callback=parse_wait,
    default=0.0,
    metavar="S",
    help="Seconds to wait for a decision.",
)
@with_grant_flags
@with_settings
def command(settings: Settings, tool: str, input: str | None, **flags: Any) -> int:
    """Call any tool with JSON input; the result is shown, with --json the whole outcome."""
    from palyra.cli.session import with_installation
    from palyra.cli.through_daemon import find_daemon

    data = read_input(input)
    daemon = find_daemon(settings) if len(data) <= MAX_SENT_BYTES else None
    if daemon is not None:
        code = _call_through(daemon, settings, tool, data, flags)
        if code is not None:
            return code
    return with_installation(settings, lambda installation: _call(settings, installation, tool, data, flags))


async def _call(settings: Settings, installation: Installation, tool: str, data: bytes, flags: dict[str, Any]) -> int:
    from palyra.cli.confirm import at_terminal
    from palyra.cli.render import call_exit_code
    from palyra.cli.session import call_until_signal, make_run, print_outcome, run_or_refusal
    from palyra.engine.trip import CallRequest

    words = {name: flags[name] for name in ("workspace", "principal", "run_id", "device", "channel")}
    run, refusal = run_or_refusal(installation, lambda: make_run(installation, **words, grant=grant_of(flags)))
    request = CallRequest(
        tool=tool,
        input=data,
        run=run,
        call_id=installation.ports.ids.ulid(),
        confirm=at_terminal(),
        wait_s=flags["wait_s"],
        refusal=refusal,
    )
    outcome = await call_until_signal(installation, request)
    if not settings.json:
        show_output(outcome)
    print_outcome(settings, outcome)
    return call_exit_code(outcome)


def _call_through(daemon: Any, settings: Settings, tool: str, data: bytes, flags: dict[str, Any]) -> int | None:
    """The same by a daemon that is up; its engine judges the same bytes. None: these words cannot be sent."""
    import base64

    from palyra.cli.render import call_exit_code
    from palyra.cli.through_daemon import attend, is_sendable, own_words, print_outcome

    body = own_words(flags["workspace"], flags["principal"]) | {
        "tool": tool,
        "input_base64": base64.b64encode(data).decode(),
        "run_id": flags["run_id"],
        "device": flags["device"],
        "channel": flags["channel"],
        "approval_wait_ms": int(flags["wait_s"] * 1000),
        "quiet": True,
        **grant_words(flags),
    }
    if not is_sendable(body):
        return None
    outcome = attend(daemon, body, shown=None, with_stdin=False)
    if not settings.json:
        show_output(outcome)
    print_outcome(settings, outcome)
    return call_exit_code(outcome)


def read_input(given: str | None) -> bytes:
    """The bytes as they are: the engine judges them, so that malformed input is journaled like any other refusal."""
    if given is None:
        return b"{}"
    if given == "-":
        return sys.stdin.buffer.read(MAX_READ_BYTES)
    if given.startswith("@"):
        try:
            with open(given[1:], "rb") as file:
                return file.read(MAX_READ_BYTES)
        except OSError as error:
            raise click.UsageError(f"{given[1:]}: {error.strerror}") from error
    return os.fsencode(given)


def show_output(outcome: Outcome) -> None:
    """A program's own streams, or the result as JSON; on a terminal with control characters made visible."""
    import orjson

    output = dict(outcome.output)
    if "stdout" in output and "stderr" in output:
        _show(str(output["stdout"]), err=False)
        _show(str(output["stderr"]), err=True)
    elif output or outcome.success:
        _show(orjson.dumps(output, option=orjson.OPT_INDENT_2).decode() + "\n", err=False)


def _show(text: str, *, err: bool) -> None:
    from palyra.cli.render import visible

    target = sys.stderr if err else sys.stdout
    click.echo(visible(text) if target.isatty() else text.encode("utf-8"), nl=False, err=err)
