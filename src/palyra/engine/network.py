"""What of the network a run is granted: the configuration's hosts and the operator's own, in the run's egress mode."""

from __future__ import annotations

from palyra.config.schema import ProcessRunnerConfig
from palyra.egress.asked import in_order
from palyra.egress.hosts import parse_pattern
from palyra.engine.runs import Run
from palyra.model.net import NetGrant


def granted_network(run: Run, runner: ProcessRunnerConfig) -> NetGrant:
    if run.grant.block_all:
        return NetGrant(run.egress)
    configured = () if runner.blocks_all else runner.allowed_egress_hosts
    return NetGrant(run.egress, in_order((*(parse_pattern(text) for text in configured), *run.grant.hosts)))
