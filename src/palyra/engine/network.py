"""What of the network a run is granted, in its egress mode: the configured hosts it keeps, and the operator's own."""

from __future__ import annotations

from palyra.config.tool_call import ProcessRunnerConfig
from palyra.egress.asked import in_order
from palyra.egress.hosts import parse_grant, parse_pattern
from palyra.engine.runs import Run
from palyra.model.net import NetGrant


def granted_network(run: Run, runner: ProcessRunnerConfig) -> NetGrant:
    if run.grant.block_all:
        return NetGrant(run.egress)
    configured = () if runner.blocks_all else runner.allowed_egress_hosts
    hosts = tuple(map(parse_grant, configured))
    own = run.narrowing.allowed_egress_hosts
    if own is not None:
        from palyra.egress.overlap import overlap  # few runs are narrowed

        hosts = overlap(hosts, map(parse_pattern, own))
    return NetGrant(run.egress, in_order((*hosts, *run.grant.hosts)))
