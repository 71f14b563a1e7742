"""The probe, asked for what the configuration wants of this host. Every door sees the host through this one call."""

from __future__ import annotations

from palyra.config.load import Home, user_home
from palyra.config.schema import Config
from palyra.model.host import HostFacts
from palyra.sandbox.probe import probe


def look_at_host(home: Home, config: Config, *, owns_process: bool, fresh: bool = False) -> HostFacts:
    """`owns_process`: this process is Palyra's own, so it may collect orphans. `fresh`: trust nothing remembered."""
    runner = config.tool_call.process_runner
    return probe(
        home=user_home(),
        state_home=str(home.root),
        search_path=runner.path,
        owns_process=owns_process,
        cgroup_limits=runner.cgroup_limits,
        container_image=runner.container_image,
        backend=runner.backend,
        fresh=fresh,
    )
