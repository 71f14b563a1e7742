"""The host as commands that open no state see it: a probe with the configured PATH."""

from __future__ import annotations

from palyra.cli.options import Settings
from palyra.config.load import find_home, load_config, user_home
from palyra.model.host import HostFacts
from palyra.sandbox.probe import probe


def probe_host(settings: Settings, *, fresh: bool = False) -> HostFacts:
    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    return probe(
        home=user_home(),
        state_home=str(home.root),
        search_path=config.tool_call.process_runner.path,
        owns_process=True,
        fresh=fresh,
    )
