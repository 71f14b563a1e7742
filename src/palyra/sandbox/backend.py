"""The Backend protocol, and what every backend for native programs must decide the same way.

Rules: `guarantees(host)` is the most a backend can promise on a host; `plan(job, host).guarantees` is what it
promises for this job, and only that is claimed, attested and tested. Both are functions of values, so the plan
for any machine can be made on any other. A root engine never starts a program as uid 0 in a workspace that
belongs to someone else.

Not here: the table of backends and the choice (planner), starting anything (launch).
"""

from __future__ import annotations

from typing import Protocol

from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts
from palyra.model.job import Job
from palyra.model.plan import Hole, ProcessPlan, Word
from palyra.sandbox.view import is_within

INFO = Hole(-1)
"""Where a launcher writes which process is the first one inside: the number of a descriptor, not of data."""

BLOCK = Hole(-2)
"""Where a launcher waits, every mount made and nothing run, until it is told to go on: a descriptor's number too."""

KEEP_ROOT = (
    "give the workspace to a plain user with chown -R USER DIR; uid 0 stays with palyra run --allow-root-tier-b, for "
    "good with allow_root_tier_b = true in [tool_call.process_runner]"
)
"""What an operator does about a program of tier B that root starts in a workspace of root's."""
NOBODY = 65534
"""uid and gid of `nobody` and its group on every Linux: they own no file."""

LOWEST_PID_MAX = 301
"""The kernel keeps pids below 300 for the first turn and refuses a smaller pid_max."""
_SPARE_PIDS = 64


class Backend(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tier(self) -> Tier: ...
    @property
    def executor(self) -> str:
        """The label attestations carry when this backend ran the program."""

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]: ...
    def plan(self, job: Job, host: HostFacts) -> ProcessPlan: ...


def identity(job: Job, host: HostFacts) -> tuple[int, int] | None:
    """(uid, gid) to change to before anything foreign runs; None means the engine's own.

    A plain child of root's would own the system's files, so in tier B it becomes nobody in a workspace of root's,
    unless an operator allowed root there."""
    if host.uid != 0:
        return None
    if job.workspace.owner_uid != 0:
        return job.workspace.owner_uid, group_of(job)
    return (NOBODY, NOBODY) if job.tier is Tier.B and not job.allow_root else None


def group_of(job: Job) -> int:
    """The group for a workspace that is not root's: never group 0, which reads what root shares with it alone."""
    return job.workspace.owner_gid or NOBODY


def keeps_root(job: Job, host: HostFacts) -> bool:
    """The engine is root and so is the workspace's owner: containers, CI. Said in every plan's `degraded`."""
    return host.uid == 0 and identity(job, host) is None


def change_identity(to: tuple[int, int] | None, host: HostFacts) -> tuple[Word, ...]:
    """The words that go before a launcher. `setpriv` does it in one exec, without a thread of ours ever holding
    the other uid, which that uid's own processes could then signal."""
    if to is None:
        return ()
    if not host.setpriv:
        raise Unenforceable(
            (Guarantee.FS_ISOLATED.value,),
            f"This engine is root and the program has to run as uid {to[0]}, but setpriv, which changes to that user, "
            "is missing.",
            "Install util-linux (setpriv), or run Palyra as a plain user who owns the workspace.",
        )
    uid, gid = str(to[0]), str(to[1])
    return (host.setpriv, "--reuid", uid, "--regid", gid, "--clear-groups", "--inh-caps=-all", "--")


def absent(job: Job, given: frozenset[Guarantee]) -> tuple[str, ...]:
    """What the job wanted and does not get, for the plan's `degraded`."""
    return tuple(sorted(g.value for g in job.wants - given))


def own_code_notes(job: Job, host: HostFacts) -> tuple[str, ...]:
    """Palyra installed into a project's own environment: what a program writes there runs with the next command of
    Palyra's, outside of every sandbox, with its keys. It cannot be closed: programs install their packages there."""
    places = [place for place in host.own_code if is_within(place, job.workspace.path)]
    if not places or not job.workspace_writable:
        return ()
    return (f"palyra_in_workspace: Palyra itself runs from {places[0]}, which the program can change",)


def namespace_pid_max(processes: int) -> int:
    """pid_max of a sandbox's own PID namespace.

    After the first turn the kernel hands out only pids from 300 up, so a limit near 300 would leave a build
    with room for one process; hence the spare ones. `degraded` says so where the result is above the limit.
    """
    return max(processes, LOWEST_PID_MAX - 1 + min(processes, _SPARE_PIDS))
