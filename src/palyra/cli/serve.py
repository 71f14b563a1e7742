"""`palyra serve`: the daemon. Joins the doors: the HTTP application, and what others mount beside it."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.interrupts import heard
from palyra.cli.light import stay
from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.cli.serve_ready import READY, STOPPING, tell_manager

if TYPE_CHECKING:
    from palyra.config.daemon import DaemonConfig
    from palyra.daemon.server import Server
    from palyra.wiring.daemon_note import Stamp

EPILOG = """\b
Examples:
  palyra serve
  palyra serve --port 0 --json
  palyra serve --socket /run/palyra/palyrad.sock

SIGTERM shuts it down cleanly: running calls finish or are ended, everything is recorded, exit 0.
"""


@click.command("serve", epilog=EPILOG)
@click.option(
    "--host", metavar="ADDR", help="Listen on this address (default: 127.0.0.1). Any other than loopback needs TLS."
)
@click.option("--port", type=click.IntRange(0, 65535), metavar="N", help="Default: 7142; 0 picks a free port.")
@click.option("--socket", metavar="PATH", help="The Unix socket (default: HOME/run/palyrad.sock).")
@with_settings
def command(settings: Settings, host: str | None, port: int | None, socket: str | None) -> int:
    """Serve agents and operators over HTTP, on loopback and on a Unix socket."""
    from palyra import loops

    _log_to_stderr(settings)
    given = {"host": host, "port": port, "socket": socket}
    return loops.run(serve(settings, {name: value for name, value in given.items() if value is not None}))


async def serve(settings: Settings, given: dict[str, object]) -> int:
    from palyra.config.load import find_home, load_config
    from palyra.daemon.places import take_home
    from palyra.wiring.daemon_note import config_stamp
    from palyra.wiring.embedded import open_installation

    home = find_home(settings.home)
    stamp = config_stamp(home.root, settings.config)
    config, _ = load_config(home, settings.config)
    lock = take_home(home.root)
    try:
        installation = await open_installation(home, config_file=settings.config, owns_process=True)
        try:
            await _until_signal(settings, installation, replace(config.daemon, **given), stamp)  # type: ignore[arg-type]
        finally:
            await installation.close()
    finally:
        lock.close()
    return 0


async def _until_signal(settings: Settings, installation: object, daemon: DaemonConfig, stamp: Stamp) -> None:
    import asyncio
    import signal

    from palyra.cli.serve_mcp import mounted
    from palyra.daemon.server import Server
    from palyra.daemon.state import make_state
    from palyra.daemon.table import ROUTES
    from palyra.wiring.embedded import Installation

    assert isinstance(installation, Installation)
    state = make_state(installation, daemon)
    async with mounted(state) as mounts:
        server = Server(state, ROUTES, mounts, config=stamp, config_file=settings.config)
        loop = asyncio.get_running_loop()
        for number in heard(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a terminal that is closed ends it, too
            loop.add_signal_handler(number, lambda: _begin_to_end(server))
        await server.serve(on_ready=lambda: _begin_to_serve(settings, server))


def _begin_to_serve(settings: Settings, server: Server) -> None:
    gc.collect()
    stay()
    _say_where(settings, server)


def _begin_to_end(server: Server) -> None:
    tell_manager(STOPPING)
    server.end()


def _log_to_stderr(settings: Settings) -> None:
    """One JSON line a call as it is; anything else as text. Nothing of a call's input or output is in either."""
    import logging

    calls, own = logging.getLogger("palyra.calls"), logging.getLogger("palyra")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("palyra: %(name)s: %(message)s"))
    own.addHandler(handler)
    own.setLevel(logging.INFO if settings.verbose else logging.WARNING)
    own.propagate = False
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(message)s"))
    calls.addHandler(lines)
    calls.setLevel(logging.CRITICAL if settings.quiet else logging.INFO)
    calls.propagate = False


def _say_where(settings: Settings, server: Server) -> None:
    tell_manager(READY)
    listening = server.state.listening
    if settings.json:
        click.echo(orjson.dumps({"listening": listening}))
    elif not settings.quiet:
        for place in listening:
            say(f"palyra listens on {place}", err=True)
