"""A run's own lists, beside the configuration's: what they leave out is refused before any policy is asked.

Rules: the operator's flags for one call stand beside these lists as they stand beside the configured ones. A program
behind a wrapper counts as well. Hosts of native programs and fetches are narrowed where the network is granted
(engine/network); a skill's are judged here, because it comes with hosts of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palyra.egress.hosts import parse_pattern
from palyra.egress.rules import judge_host
from palyra.engine.listing import is_named
from palyra.errors import Reason, Rejected
from palyra.model.narrowing import AS_CONFIGURED, Narrowing
from palyra.model.net import EgressMode, NetGrant

if TYPE_CHECKING:
    from palyra.engine.trip import Trip

HINT = "This run was made with fewer than are configured: make another, or leave {} out."


def check_narrowing(trip: Trip) -> None:
    lists = trip.run.narrowing
    if lists == AS_CONFIGURED:
        return
    assert trip.tool is not None
    spec = trip.tool.spec
    if lists.allowed_tools is not None and not is_named(spec, lists.allowed_tools):
        raise _refused(Reason.POLICY_DENIED, f"{spec.name} is not a tool of this run.", "allowed_tools")
    wanted = sorted(capability.value for capability in spec.capabilities)
    if lists.allowed_capabilities is not None and (
        missing := [name for name in wanted if name not in lists.allowed_capabilities]
    ):
        why = f"{spec.name} needs the capability {missing[0]}, which this run does not have."
        raise _refused(Reason.CAPABILITY_DENIED, why, "allowed_capabilities")
    _check_programs(trip, lists)
    _check_skill_hosts(trip, lists)


def _check_programs(trip: Trip, lists: Narrowing) -> None:
    if lists.allowed_executables is None or trip.process is None or trip.look is None:
        return
    allowed = {*lists.allowed_executables, *trip.run.grant.executables}
    for program in (trip.look.command, *trip.look.also):
        if program not in allowed:
            why = f"{program} is not a program of this run."
            raise _refused(Reason.EXECUTABLE_DENIED, why, "allowed_executables")


def _check_skill_hosts(trip: Trip, lists: Narrowing) -> None:
    skill = trip.guest.skill if trip.guest is not None else None
    if lists.allowed_egress_hosts is None or skill is None:
        return
    from palyra.engine.guest_http import host_of

    patterns = (*map(parse_pattern, lists.allowed_egress_hosts), *trip.run.grant.hosts)
    granted = NetGrant(EgressMode.STRICT, patterns)
    for host in skill.grants.http:
        if not judge_host(granted, *host_of(host)).allowed:
            why = f"{skill.skill_id} reaches {host}, which is not a host of this run."
            raise _refused(Reason.EGRESS_DENIED, why, "allowed_egress_hosts")


def _refused(reason: Reason, why: str, name: str) -> Rejected:
    return Rejected(reason, why, HINT.format(name))
