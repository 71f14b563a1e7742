"""`palyra console`: a link that opens the console, asked of the home's own daemon over its Unix socket.

Who can connect to that socket as the home's owner is its operator; the link works once and for a minute. Nothing is
opened or started here, and a stranger who listens there is not believed: its link could lead anywhere.
"""

from __future__ import annotations

import http.client
import os
import socket
from pathlib import Path

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say, say_failure
from palyra.wiring.peers import is_believed

PATIENCE_S = 10.0
MAX_ANSWER_BYTES = 1 << 16
MAX_PATH_BYTES = 107
"""Of a Unix socket."""


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
            _hint(path, error),
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


class _Disbelieved(ConnectionError):
    """Somebody listens, and is not the daemon as far as the kernel tells."""


def _hint(path: Path, error: Exception) -> str:
    if isinstance(error, _Disbelieved):
        return (
            "Put the daemon's socket in a folder of its own; log in to one in a container by its address and a token."
        )
    is_long = len(os.fsencode(os.path.realpath(path))) > MAX_PATH_BYTES
    return f"Start it first: palyra serve{' --socket PATH, with a shorter path' if is_long else ''}"


class _Local(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(PATIENCE_S)
        path = os.path.realpath(self._path)  # behind a link that is itself too long a path there may be a shorter one
        self.sock.connect(path)
        if not is_believed(self.sock, path):
            raise _Disbelieved("another user, or a program in a sandbox, listens there")


def _ask(path: Path) -> tuple[int, dict[str, dict[str, str]]]:
    line = _Local(path)
    try:
        line.request("POST", "/console/v1/links")
        reply = line.getresponse()
        return reply.status, orjson.loads(reply.read(MAX_ANSWER_BYTES))
    finally:
        line.close()
