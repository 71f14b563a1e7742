"""The facts about a call of Palyra's own programs: where a path really ends, which host is not granted.

The program of ours that does the work judges again, with the kernel's help, what it really opens; this is for clear
refusals and for policy. Not here: which arguments are paths (engine/inside), the disk (guard/look).
"""

from __future__ import annotations

from collections.abc import Sequence

from palyra.errors import Unenforceable
from palyra.guard.facts import check_places, tell_hosts, tell_outside
from palyra.guard.obeyed import hides_letters, is_obeyed
from palyra.guard.paths import judge_paths
from palyra.model.call import Tier
from palyra.model.job import Facts
from palyra.model.net import EgressMode, NamedHost
from palyra.model.sights import Sights


def guard_inside(sights: Sights, hosts_denied: Sequence[NamedHost] = (), *, written: Sequence[str] = ()) -> Facts:
    """`written`: the files that the call would change, relative to the workspace or absolute."""
    check_places(sights)
    _check_interpreter(sights)
    outside = judge_paths(sights, (), visible=())
    return Facts(
        tier=Tier.C.value,
        egress=EgressMode.STRICT.value,
        outside_workspace=bool(outside),
        writes_obeyed=any(is_obeyed(path) or hides_letters(path) for path in written),
        details=(*tell_outside(outside, sights, called="Path"), *tell_hosts(hosts_denied)),
    )


def _check_interpreter(sights: Sights) -> None:
    python = sights.executable
    if not python.path or not python.sha256:
        detail = "Palyra's own file programs need the system's python3, which was not found."
    elif python.agent_writable:
        detail = f"{python.path} could be written by the agent, so Palyra's own programs are not run with it."
    else:
        return
    raise Unenforceable((), detail, "Install python3 from the system's packages, below /usr/bin.")
