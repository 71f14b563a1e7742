"""`palyra console`: a link that opens the console, asked of the home's own daemon over its Unix socket.

Who can connect to that socket as the home's owner is its operator; the link works once and for a minute. Nothing is
opened or started here.
"""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_failure

PATIENCE_S = 10.0
MAX_ANSWER_BYTES = 1 << 16


@click.command("console", epilog="\b\nExamples:\n  palyra console\n  palyra console --json")
@click.option("--socket", "place", metavar="PATH", help="The daemon's Unix socket (default: HOME/run/palyrad.sock).")
@with_settings
def command(settings: Settings, place: str | None) -> int:
    """Print a link that opens the operator's console. It works once, within a minute; palyra serve must be running."""
    from palyra.config.load import find_home, load_config
    from palyra.daemon.places import socket_path

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    path = Path(place) if place else socket_path(home.root, config.daemon)
    try:
        status, answer = _ask(path)
    except (OSError, http.client.HTTPException, orjson.JSONDecodeError) as error:
        say_failure(
            "UNREACHABLE",
            f"No daemon answers at {path}: {getattr(error, 'strerror', None) or error}.",
            "Start it first: palyra serve",
        )
        return 1
    if status != 200:
        told = answer.get("error", {})
        say_failure(str(told.get("code", "REFUSED")), str(told.get("message", "The daemon refused.")), told.get("hint"))
        return 1
    if settings.json:
        click.echo(orjson.dumps(answer))
    else:
        say(str(answer["url"]))
        if not settings.quiet:
            say("It works once, within a minute.", err=True)
    return 0


class _Local(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        self.sock.connect(str(self._path))


def _ask(path: Path) -> tuple[int, dict[str, dict[str, str]]]:
    line = _Local(path)
    try:
        line.request("POST", "/console/v1/links")
        reply = line.getresponse()
        return reply.status, orjson.loads(reply.read(MAX_ANSWER_BYTES))
    finally:
        line.close()
