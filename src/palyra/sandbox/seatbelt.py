"""Tier C on macOS: `sandbox-exec` with a profile that refuses by default, its folders as parameters.

The profile's text is data (profiles/*.sbpl, read by the probe that saw it isolate); what is added here for a call are
lines that name parameters of ours, `READ_0`, `CLOSED_1` …; a path is only ever the value of a `-D`. Of two rules the
last counts, so what is closed comes last: parents of closed paths cannot be renamed away, protected paths not written,
masked ones not even read, and Palyra's state never.

Not claimed, so that tier C fails closed here and a container serves it: memory limits (macOS does not enforce them on a
process), a tree kill (there is no namespace and no group that a process cannot leave), a system call filter.

Not here: starting it (launch), whether it isolates on a host (probe_foreign).
"""

from __future__ import annotations

import posixpath

from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts, Platform, SeatbeltFacts
from palyra.model.job import Job
from palyra.model.net import EgressMode
from palyra.model.plan import ProcessPlan
from palyra.sandbox.backend import absent
from palyra.sandbox.view import View, is_within, view_of

_SYSTEM = ("/Applications", "/Library", "/System", "/bin", "/cores", "/dev", "/private/etc", "/private/var/db", "/sbin",
           "/usr")  # fmt: skip


class SeatbeltBackend:
    name = "seatbelt"
    tier = Tier.C
    executor = "sandbox_tier_c_macos_sandbox_exec"

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]:
        if host.platform is not Platform.MACOS or host.seatbelt is None or not host.shell:
            return frozenset()
        given = frozenset({Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED, Guarantee.CPU_LIMIT})
        return given | {Guarantee.PROCESS_LIMIT} if host.uid != 0 else given

    def plan(self, job: Job, host: HostFacts) -> ProcessPlan:
        """Raises Unenforceable where the workspace or a granted folder would open the sandbox."""
        assert host.seatbelt is not None, "the planner asks for guarantees first"
        given = self.guarantees(host) - ({Guarantee.NET_ISOLATED} if _shares_network(job) else frozenset())
        return ProcessPlan(
            backend=self.name,
            executor=self.executor,
            tier=self.tier,
            launcher=_words(job, host, host.seatbelt),
            program=job.program,
            program_sha256=job.program_sha256,
            argv=job.argv,
            env=_environment(job),
            cwd=job.cwd,
            limits=job.limits,
            net=job.net,
            no_new_privileges=False,
            guarantees=given,
            degraded=(*absent(job, given), *_notes(job)),
            stdin=job.stdin,
            stdin_streamed=job.stdin_streamed,
        )


def _words(job: Job, host: HostFacts, seatbelt: SeatbeltFacts) -> tuple[str, ...]:
    _check_workspace(job.workspace.path)
    view = view_of(job, host)
    text = [seatbelt.base] + ([seatbelt.network] if _shares_network(job) else [])
    parameters = {"WORKSPACE": job.workspace.path}
    for rule, name, paths in _rules(host, view):
        for at, path in enumerate(paths):
            parameters[f"{name}_{at}"] = path
            text.append(rule.replace("NAME", f"{name}_{at}"))
    words = [seatbelt.path, "-p", "\n".join(text)]
    for name, path in parameters.items():
        words += ["-D", f"{name}={path}"]
    return (*words, "--")


def _rules(host: HostFacts, view: View) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """(line, name of its parameter, paths), in the order in which they must stand."""
    state = (host.state_home,) if host.state_home else ()
    return (
        (
            '(allow file-read-metadata file-test-existence (path-ancestors (param "NAME")))\n'
            '(allow file-read* file-test-existence file-map-executable (subpath (param "NAME")))',
            "READ",
            view.readable,
        ),
        ('(deny file-write-unlink (literal (param "NAME")))', "PARENT", view.parents),
        ('(deny file-write* (subpath (param "NAME")))', "CLOSED", view.protected),
        ('(deny file-write* (literal (param "NAME")))', "LINK", view.links),
        (
            '(deny file-read* file-map-executable file-write* (subpath (param "NAME")))',
            "HIDDEN",
            tuple(sorted({*view.hidden_files, *view.hidden_folders, *state})),
        ),
    )


def _check_workspace(workspace: str) -> None:
    clash = [folder for folder in _SYSTEM if is_within(folder, workspace) or is_within(workspace, folder)]
    if clash:
        raise Unenforceable(
            (Guarantee.FS_ISOLATED.value,),
            f"The workspace {workspace} overlaps {clash[0]}, which must stay separate.",
            "Use a project folder of its own as the workspace.",
        )


def _environment(job: Job) -> tuple[tuple[str, str], ...]:
    """Nothing but the workspace can be written, so that is where a home and temporary files are."""
    own = posixpath.normpath(job.workspace.path)
    return tuple((key, own if key in ("HOME", "TMPDIR") else value) for key, value in job.env)


def _shares_network(job: Job) -> bool:
    return job.net.mode is not EgressMode.STRICT


def _notes(job: Job) -> tuple[str, ...]:
    if _shares_network(job):
        return (f"network_shared: egress mode {job.net.mode.value} leaves the host's network reachable",)
    return ()
