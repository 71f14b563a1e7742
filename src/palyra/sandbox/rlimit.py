"""Tier B on Linux: a plain child with the kernel's limits. It sees the host's files and network as its uid does.

What is promised, and why no more: CPU time and private memory of each process (rlimits, set before the program
begins); the number of processes where the child is not uid 0, which the kernel does not count; that nothing
survives, only where a cgroup holds the tree *and* the child runs under another uid than the engine: a child of
the same uid may write itself out of a group that its uid owns. Everything else is said in `degraded`.

Not here: Landlock, which would let this tier promise more.
"""

from __future__ import annotations

from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts, Platform
from palyra.model.plan import Job, ProcessPlan
from palyra.sandbox.backend import absent, change_identity, identity, keeps_root


class RlimitBackend:
    name = "rlimit"
    tier = Tier.B
    executor = "sandbox_tier_b"

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]:
        if host.platform is not Platform.LINUX or not host.shell:
            return frozenset()
        given = frozenset({Guarantee.CPU_LIMIT, Guarantee.MEMORY_LIMIT})
        if host.uid != 0 or host.setpriv:
            given |= {Guarantee.PROCESS_LIMIT}
        if host.uid == 0 and host.setpriv and host.cgroup_kill:
            given |= {Guarantee.TREE_KILL}
        return given

    def plan(self, job: Job, host: HostFacts) -> ProcessPlan:
        run_as = identity(job, host)
        given = self._given(job, host)
        return ProcessPlan(
            backend=self.name,
            executor=self.executor,
            tier=self.tier,
            launcher=change_identity(run_as, host),
            program=job.program,
            program_sha256=job.program_sha256,
            argv=job.argv,
            env=job.env,
            cwd=job.cwd,
            limits=job.limits,
            net=job.net,
            run_as=run_as,
            cgroup_parent=host.cgroup_kill,
            guarantees=given,
            degraded=(*absent(job, given), *_notes(job, host)),
            stdin=job.stdin,
            stdin_streamed=job.stdin_streamed,
        )

    def _given(self, job: Job, host: HostFacts) -> frozenset[Guarantee]:
        given = self.guarantees(host)
        if keeps_root(job, host):
            given -= {Guarantee.PROCESS_LIMIT, Guarantee.TREE_KILL}
        return given


def _notes(job: Job, host: HostFacts) -> tuple[str, ...]:
    notes = []
    if keeps_root(job, host):
        notes.append("root_owned_workspace: the workspace is root's, so the program keeps uid 0, without capabilities")
    if job.workspace.protected or job.workspace.masked:
        notes.append("workspace_open: tier B cannot keep paths inside the workspace read-only or hidden")
    return tuple(notes)
