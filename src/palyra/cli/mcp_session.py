"""What `palyra mcp` does once its options are read: opens the home, serves, and closes it however it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from palyra import loops
from palyra.cli.interrupts import heard
from palyra.cli.light import stay
from palyra.cli.options import Settings
from palyra.cli.say import say_error
from palyra.config.load import find_home
from palyra.mcp.server import serve_stdio
from palyra.wiring.embedded import open_installation
from palyra.wiring.places import resolve_workspace


def serve(settings: Settings, *, principal: str, workspace: str | None) -> int:
    loops.run(_serve(settings, principal=principal, workspace=workspace))
    return 0


async def _serve(settings: Settings, *, principal: str, workspace: str | None) -> None:
    """Until the client closes our stdin, or a signal comes: both end what is under way, with its record."""
    installation = await open_installation(find_home(settings.home), config_file=settings.config, owns_process=True)
    stay()
    if installation.policies.current().stale:
        say_error("The policy files need repair; the last that could be used stay in force.", "palyra policy check")
    try:
        folder = resolve_workspace(workspace or installation.config.tool_call.process_runner.workspace_root or ".")
        serving = asyncio.create_task(serve_stdio(installation, principal=principal, workspace=folder))
        loop = asyncio.get_running_loop()
        for number in heard(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, serving.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await serving
    finally:
        await installation.close()
