"""Jobs and hosts that no machine has, for plans that no machine need run."""

from __future__ import annotations

from typing import Any

from palyra.model.call import Tier
from palyra.model.host import BubblewrapFacts, HostFacts, Platform
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK, NetGrant
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import needs_for


def make_host(**changes: Any) -> HostFacts:
    facts: dict[str, Any] = {
        "platform": Platform.LINUX,
        "machine": "x86_64",
        "kernel": "6.18.0",
        "uid": 1001,
        "gid": 1001,
        "shell": "/usr/bin/dash",
        "nsenter": "/usr/bin/nsenter",
        "setpriv": "/usr/bin/setpriv",
        "bubblewrap": BubblewrapFacts(path="/usr/bin/bwrap", version="0.8.0", disable_userns=True),
        "home": "/home/alice",
        "state_home": "/home/alice/.local/state/palyra",
    }
    return HostFacts(**(facts | changes))


def make_job(
    *, tier: Tier = Tier.C, net: NetGrant = NO_NETWORK, workspace: WorkspaceSight | None = None, **changes: Any
) -> Job:
    needs, wants = needs_for(tier, net)
    place = workspace or WorkspaceSight(path="/home/alice/project", owner_uid=1001, owner_gid=1001)
    facts: dict[str, Any] = {
        "program": "/usr/bin/git",
        "program_sha256": "0" * 64,
        "argv": ("git", "status"),
        "env": (("PATH", "/usr/bin:/bin"), ("HOME", "/home/agent")),
        "cwd": place.path,
        "workspace": place,
        "read_roots": (),
        "limits": Limits(),
        "net": net,
        "tier": tier,
        "needs": needs,
        "wants": wants,
    }
    return Job(**(facts | changes))
