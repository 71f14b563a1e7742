"""Tier C in a container, by podman or docker: the client's argv, its options in a fixed order.

 1 identity     a name and an owner filled in at the start: what is killed, and swept when its engine is gone
 2 network      none; the host's only where the egress mode shares it
 3 system       the image's, pinned by digest, read-only, never pulled; its entry point, volumes and checks ignored
 4 privileges   no capabilities, no_new_privs, tier C's own filter, the workspace owner's uid
 5 limits       of the whole container by cgroup where that was seen to work, of each process by rlimits
 6 private      a sized tmpfs on /tmp, which is HOME too
 7 folders      granted ones read-only, the workspace writable, at the same path inside
 8 environment  exactly the plan's

The program is the image's own, found by its name on PATH inside: its digest is the image's. It is the first process
inside: an `--init` in front of it would hide whether it could be started. A mount inside the workspace would be
resolved by the engine while other calls may swap folders for links, so paths in it are not closed.

Not here: starting, killing and sweeping (launch/container), whether it isolates here (probe_container).
"""

from __future__ import annotations

import posixpath

from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import ContainerFacts, Guarantee, HostFacts, Platform
from palyra.model.job import Job
from palyra.model.net import EgressMode
from palyra.model.plan import Hole, ProcessPlan, Word
from palyra.sandbox.backend import absent, group_of, own_code_notes
from palyra.sandbox.view import is_within, view_of

LABEL = "palyra.owner"
NAME, OWNER = Hole(-2), Hole(-3, before=f"{LABEL}=")
"""Places for the container's name and for whose it is, filled in when it is started."""
FILTER = Hole(0, before="seccomp=", path=True)
INSIDE = "/work"
"""The workspace where the host's own path is none inside a container."""
SCRATCH = "/tmp"  # noqa: S108  # the container's own, a tmpfs
_DOCKER_WORDS_CHANGED = 25
_UNSPEAKABLE = frozenset(',"\n\r')
"""A mount is written as key=value pairs with commas; clients differ in what they take for a quote."""
_BACKSTOP_S = 60
_ALWAYS = frozenset(
    {
        Guarantee.FS_ISOLATED,
        Guarantee.NET_ISOLATED,
        Guarantee.CPU_LIMIT,
        Guarantee.MEMORY_LIMIT,
        Guarantee.TREE_KILL,
        Guarantee.SYSCALL_FILTER,
    }
)


class ContainerBackend:
    tier = Tier.C

    def __init__(self, runtime: str) -> None:
        self.name = runtime
        self.executor = f"sandbox_tier_c_{runtime}"

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]:
        facts = host.container
        if facts is None or facts.runtime != self.name:
            return frozenset()
        given = _ALWAYS
        if facts.memory:
            given |= {Guarantee.MEMORY_LIMIT_TREE}
        if facts.pids:
            given |= {Guarantee.PROCESS_LIMIT}
        return given

    def plan(self, job: Job, host: HostFacts) -> ProcessPlan:
        """Raises Unenforceable where the workspace or a granted folder would open the sandbox."""
        from palyra.sandbox.seccomp_oci import profile

        assert host.container is not None, "the planner asks for guarantees first"
        given = self.guarantees(host) - ({Guarantee.NET_ISOLATED} if _shares_network(job) else frozenset())
        return ProcessPlan(
            backend=self.name,
            executor=self.executor,
            tier=self.tier,
            launcher=_words(job, host, host.container),
            launcher_env=host.container.env,
            road="container",
            data=(profile(own_network=not _shares_network(job)),),
            program=job.argv[0],
            program_sha256="",
            argv=job.argv,
            env=_environment(job),
            cwd=_inside(job.cwd, job, host),
            limits=job.limits,
            net=job.net,
            granted=tuple(root for root in map(posixpath.normpath, job.granted_roots) if not _is_shown(root, job)),
            pid_namespace=True,
            guarantees=given,
            degraded=(*absent(job, given), *_notes(job, host.container), *own_code_notes(job, host)),
            stdin=job.stdin,
            stdin_streamed=job.stdin_streamed,
        )


def _words(job: Job, host: HostFacts, facts: ContainerFacts) -> tuple[Word, ...]:
    podman = facts.runtime == "podman"
    words: list[Word] = [facts.path]
    words += ["--log-level", "error"] if podman else []
    words += ["--runtime", facts.oci_runtime] if facts.oci_runtime else []
    words += ["run", "--interactive", "--name", NAME, "--label", OWNER]  # 1
    words += ["--network", "host" if _shares_network(job) else "none"]  # 2
    words += ["--pull", "never", "--read-only", "--no-healthcheck", "--entrypoint", ""]  # 3
    if podman:
        words += ["--read-only-tmpfs=false", "--image-volume", "ignore", "--no-hosts", "--umask", "0022"]
        words += ["--cgroupns", "private"]
    words += ["--hostname", "sandbox"] if not _shares_network(job) else []
    words += ["--ipc", "private", "--log-driver", "none", "--stop-timeout", "1"]
    words += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", FILTER]  # 4
    words += _identity(job, host, facts)
    words += ["--security-opt", "label=disable"] if facts.selinux else []
    words += _limits(job, facts)  # 5
    if podman:  # ends it even where nobody is left to do so
        words += ["--timeout", str(-(-job.limits.wall_ms // 1000) + _BACKSTOP_S)]
    scratch = f"{SCRATCH}:rw,exec,nosuid,nodev,size={job.limits.scratch_bytes},mode=1777"
    words += ["--tmpfs", scratch]  # 6
    for volume in facts.volumes:  # an empty folder over each: a volume would be a writable one of the host's
        words += ["--tmpfs", f"{volume}:ro,nosuid,nodev,size=4096,mode=0555"]
    words += _folders(job, host, facts)  # 7
    words += ["--workdir", _inside(job.cwd, job, host)]
    words += ["--unsetenv-all"] if podman else []
    given = _environment(job)
    for key in sorted(set(facts.variables) - {key for key, _ in given}):  # a name alone takes it away
        words += ["--env", key]
    for key, value in given:  # 8
        words += ["--env", f"{key}={value}"]
    return (*words, facts.image)


def _identity(job: Job, host: HostFacts, facts: ContainerFacts) -> list[str]:
    """Whoever owns the workspace. Without root that is whoever runs the engine, under the own number inside."""
    if not facts.rootless:
        return ["--user", f"{job.workspace.owner_uid}:{group_of(job) if job.workspace.owner_uid else 0}"]
    if facts.runtime == "podman":
        return ["--userns", "keep-id", "--user", f"{host.uid}:{host.gid}"]
    return ["--user", "0:0"]


def _limits(job: Job, facts: ContainerFacts) -> list[str]:
    limits, cpu_s = job.limits, -(-job.limits.cpu_ms // 1000)
    words: list[str] = []
    if facts.memory:
        words += ["--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)]
    if facts.pids:
        words += ["--pids-limit", str(limits.processes)]
    of_each = {
        "cpu": (cpu_s, cpu_s + 1),
        "nofile": (limits.open_files, limits.open_files),
        "fsize": (limits.file_bytes, limits.file_bytes),
        "core": (0, 0),
    }
    if not facts.memory:  # else the group bounds each too; the engine's own first step needs more than small limits
        of_each["data"] = (limits.memory_bytes, limits.memory_bytes)
    if facts.nproc:
        of_each["nproc"] = (facts.nproc, facts.nproc)
    for name, (soft, hard) in of_each.items():
        words += ["--ulimit", f"{name}={soft}:{hard}"]
    return words


def _folders(job: Job, host: HostFacts, facts: ContainerFacts) -> list[str]:
    workspace = job.workspace.path
    if host.platform is Platform.WINDOWS:
        return ["--mount", _bind(workspace, INSIDE)]
    view = view_of(job, host)
    if host.state_home and is_within(host.state_home, workspace):
        raise _refused(f"Palyra's own state lies in the workspace {workspace}, where a container cannot hide it.")
    granted = {posixpath.normpath(root) for root in job.read_roots}
    words: list[str] = []
    for root in (root for root in view.readable if root in granted):
        if host.state_home and is_within(host.state_home, root):
            raise _refused(f"The read-only folder {root} holds Palyra's own state, which a container cannot hide.")
        words += ["--mount", f"{_bind(root, root)},readonly,{_alone(facts)}"]
    return [*words, "--mount", _bind(workspace, workspace)]


def _bind(source: str, target: str) -> str:
    if _UNSPEAKABLE & set(source):
        raise _refused(f"The folder {source!r} has a comma, a quote or a line break in its name.")
    return f"type=bind,source={source},target={target}"


def _alone(facts: ContainerFacts) -> str:
    """Without what is mounted below it: engines make only the folder itself read-only, and volumes there stay
    writable. Docker's word for it has changed."""
    major = facts.version.partition(".")[0]
    is_old = facts.runtime == "podman" or (major.isdigit() and int(major) < _DOCKER_WORDS_CHANGED)
    return "bind-nonrecursive" if is_old else "bind-recursive=disabled"


def _is_shown(root: str, job: Job) -> bool:
    """As part of the workspace: not as a folder of its own."""
    return is_within(root, job.workspace.path)


def _inside(path: str, job: Job, host: HostFacts) -> str:
    if host.platform is not Platform.WINDOWS:
        return path
    relative = path.removeprefix(job.workspace.path).replace("\\", "/").strip("/")
    return f"{INSIDE}/{relative}" if relative else INSIDE


def _environment(job: Job) -> tuple[tuple[str, str], ...]:
    """HOME and TMPDIR are folders that are there and can be written."""
    return tuple((key, SCRATCH if key in ("HOME", "TMPDIR") else value) for key, value in job.env)


def _shares_network(job: Job) -> bool:
    return job.net.mode is not EgressMode.STRICT


def _notes(job: Job, facts: ContainerFacts) -> tuple[str, ...]:
    notes = ["program_of_image: the program is the image's own and known by the image's digest"]
    notes.append("command_line: other users of this machine can read arguments and variables of the call")
    if job.workspace.owner_uid == 0 and not facts.rootless:
        notes.append("root_owned_workspace: the workspace is root's, so uid 0 stays, behind every other wall")
    if facts.selinux:
        notes.append("selinux_off: the container is not labelled, because that would relabel the workspace")
    if _shares_network(job):
        notes.append(f"network_shared: egress mode {job.net.mode.value} leaves the host's network reachable")
    if job.workspace.protected or job.workspace.masked:
        notes.append("workspace_open: a container cannot keep paths inside the workspace read-only or hidden")
    return tuple(notes)


def _refused(detail: str) -> Unenforceable:
    hint = "Use a project folder of its own as the workspace, and name exact folders in read_roots."
    return Unenforceable((Guarantee.FS_ISOLATED.value,), detail, hint)
