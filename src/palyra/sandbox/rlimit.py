"""Tier B on Linux: a plain child, without any namespace: limits of the kernel, Landlock and a system call filter.

What may be promised depends on the kernel and on who runs it.
  CPU and memory of each process  always (rlimits)
  the number of processes         where the child is not uid 0, which the kernel does not count; else by a cgroup
  system calls                    on machines the filter knows
  files                           with Landlock version 3 *and* the filter (a Unix socket with a path is a way round
                                  any file wall); not for uid 0, which owns the system's files and their modes
  no network                      with Landlock version 4 *and* the filter: its TCP rule alone is bypassed
  nothing survives                with Landlock version 6, whose domain can be killed whole; else by a cgroup that
                                  the child cannot leave, because it runs as another uid or Landlock keeps it in
Everything else is said in `degraded`, also what Landlock cannot do: it keeps nothing inside the workspace read-only,
and modes and times of the same user's files outside can be changed.

Not here: the rules (landlock), the filter (seccomp_b), entering them (launch/_os).
"""

from __future__ import annotations

from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts, Platform
from palyra.model.job import Job
from palyra.model.net import EgressMode
from palyra.model.plan import LandlockRules, ProcessPlan
from palyra.sandbox import starter
from palyra.sandbox.backend import KEEP_ROOT, absent, change_identity, identity, keeps_root, own_code_notes
from palyra.sandbox.landlock import LOWEST_ABI, SCOPE_ABI, TCP_ABI, rules_for, shows
from palyra.sandbox.seccomp import MACHINES


class RlimitBackend:
    name = "rlimit"
    tier = Tier.B
    executor = "sandbox_tier_b"

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]:
        if host.platform is not Platform.LINUX or not host.shell:
            return frozenset()
        return _given(host, other_uid=host.uid == 0 and bool(host.setpriv), uid_0=host.uid == 0 and not host.setpriv)

    def plan(self, job: Job, host: HostFacts) -> ProcessPlan:
        """Raises Unenforceable where the user that the program would have to be cannot enter the workspace."""
        from palyra.sandbox.seccomp_b import assemble_b

        run_as = _identity(job, host)
        rules = rules_for(job, host) if host.landlock_abi >= LOWEST_ABI else None
        given = self._promised(job, host, rules)
        limits = host.cgroup_limits if _keeps_group(host, other_uid=run_as is not None) else None
        return ProcessPlan(
            backend=self.name,
            executor=self.executor,
            tier=self.tier,
            launcher=(*change_identity(run_as, host), *([starter.START_DATA] if host.starter else [])),
            data=(starter.assemble(host.machine, first=False),) if host.starter else (),
            program=job.program,
            program_sha256=job.program_sha256,
            argv=job.argv,
            env=_environment(job, rules),
            cwd=job.cwd,
            limits=job.limits,
            net=job.net,
            run_as=run_as,
            landlock=rules,
            seccomp=assemble_b(host.machine, network=_shares_network(job)) if host.machine in MACHINES else b"",
            cgroup_parent="" if _kills_domain(host) else host.cgroup_kill,
            cgroup_memory=limits.memory if limits else "",
            cgroup_pids=limits.pids if limits else "",
            guarantees=given,
            degraded=(*absent(job, given), *_notes(job, host, given, rules), *own_code_notes(job, host)),
            stdin=job.stdin,
            stdin_streamed=job.stdin_streamed,
        )

    def _promised(self, job: Job, host: HostFacts, rules: LandlockRules | None) -> frozenset[Guarantee]:
        given = _given(host, other_uid=identity(job, host) is not None, uid_0=keeps_root(job, host))
        if _shares_network(job):
            given -= {Guarantee.NET_ISOLATED}
        if rules is not None and _shows_state(rules, host):
            given -= {Guarantee.FS_ISOLATED}
        return given


def _identity(job: Job, host: HostFacts) -> tuple[int, int] | None:
    run_as = identity(job, host)
    if run_as is not None and job.workspace.owner_uid == 0 and not job.workspace.open_to_all:
        raise Unenforceable(
            (Guarantee.FS_ISOLATED.value,),
            f"The workspace {job.workspace.path} is root's and closed to others, so a program of tier B, which runs as "
            "nobody there, cannot enter it.",
            f"Use --tier c, or {KEEP_ROOT}.",
        )
    return run_as


def _given(host: HostFacts, *, other_uid: bool, uid_0: bool) -> frozenset[Guarantee]:
    """`other_uid`: the child runs as someone else than the engine; `uid_0`: as root."""
    group = _keeps_group(host, other_uid=other_uid)
    limits = host.cgroup_limits if group else None
    claims = {
        Guarantee.CPU_LIMIT: True,
        Guarantee.MEMORY_LIMIT: True,
        Guarantee.MEMORY_LIMIT_TREE: bool(limits and limits.memory),
        Guarantee.PROCESS_LIMIT: not uid_0 or bool(limits and limits.pids),
        Guarantee.SYSCALL_FILTER: host.machine in MACHINES,
        Guarantee.FS_ISOLATED: _walled(host) and not uid_0,
        Guarantee.NET_ISOLATED: _walled(host) and host.landlock_abi >= TCP_ABI,
        Guarantee.TREE_KILL: _kills_domain(host) or (group and bool(host.cgroup_kill)),
    }
    return frozenset(guarantee for guarantee, holds in claims.items() if holds)


def _walled(host: HostFacts) -> bool:
    return host.landlock_abi >= LOWEST_ABI and host.machine in MACHINES


def _kills_domain(host: HostFacts) -> bool:
    return host.landlock_abi >= SCOPE_ABI


def _keeps_group(host: HostFacts, *, other_uid: bool) -> bool:
    """A child of the engine's own uid could write itself out of a group, unless it can open no file outside."""
    return other_uid or _walled(host)


def _shares_network(job: Job) -> bool:
    return job.net.mode is not EgressMode.STRICT


def _shows_state(rules: LandlockRules, host: HostFacts) -> bool:
    return bool(host.state_home) and shows(rules, host.state_home)


def _environment(job: Job, rules: LandlockRules | None) -> tuple[tuple[str, str], ...]:
    """Nothing but the workspace can be written, so that is where temporary files go."""
    if rules is None:
        return job.env
    return tuple((key, rules.writable if key == "TMPDIR" else value) for key, value in job.env)


def _notes(job: Job, host: HostFacts, given: frozenset[Guarantee], rules: LandlockRules | None) -> tuple[str, ...]:
    notes = []
    if keeps_root(job, host):
        notes.append("root_owned_workspace: uid 0 stays, without capabilities, as an operator allowed in tier B")
    elif host.uid == 0 and job.workspace.owner_uid == 0:
        notes.append("root_owned_workspace: the program runs as nobody and writes only what everybody may")
    if rules is None:
        notes.append("no_landlock: the program sees the host's files as its user does")
    elif _shows_state(rules, host):
        notes.append("state_visible: Palyra's own state lies in a folder that the program may use")
    if Guarantee.FS_ISOLATED in given:
        notes.append("file_metadata: modes, owners and times of this user's files outside can be changed")
    if _shares_network(job):
        notes.append(f"network_shared: egress mode {job.net.mode.value} leaves the host's network reachable")
    if job.workspace.protected or job.workspace.masked:
        notes.append("workspace_open: tier B cannot keep paths inside the workspace read-only or hidden")
    return tuple(notes)
