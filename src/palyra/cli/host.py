"""The host as commands that open no state see it: a probe with the configured PATH."""

from __future__ import annotations

from palyra.cli.options import Settings
from palyra.config.load import find_home, load_config
from palyra.model.host import HostFacts
from palyra.wiring.host import look_at_host


def probe_host(settings: Settings, *, fresh: bool = False) -> HostFacts:
    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    return look_at_host(home, config, owns_process=True, fresh=fresh)
