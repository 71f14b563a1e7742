"""Tier C on Linux: the bubblewrap plan, its options in a fixed order.

 1 lifetime     dies with the engine, own session (no controlling terminal); its first process is our start program,
                where this machine has one
 2 namespaces   user, pid, ipc, uts, cgroup; network unless the egress mode shares it; no further user namespaces
 3 privileges   uid and gid 1000, no capabilities
 4 system       read-only system folders; never the host's root
 5 etc          certificates, the linker's cache and the like read-only; synthetic files, programs of ours
 6 kernel       own /proc with /proc/sys read-only (a root-started sandbox could write core_pattern), minimal /dev
 7 private      sized tmpfs for /dev/shm, /tmp, /var/tmp and the home folder
 8 readable     granted folders, the program's own folder
 9 workspace    the only writable bind (read-only for programs of ours that only read); beside it, where hosts are
                granted, the package caches of this workspace alone
10 seal         / read-only, last of all mounts: later ones would fail, earlier ones would leave it open
11 start        empty environment; the launcher is started with an empty one too, or /proc/1/environ shows ours
12 filter       seccomp
13 closed       what of the workspace stays read-only or hidden: not by the launcher, which mounts by names that a
                running program can swap, but by descriptor while it waits (inside/closing)

Mounts of 7 come before 8 and 9, so that a folder below /tmp is not hidden by the tmpfs. Binds come as early as they
can: for each one the launcher reads the whole table of mounts there are by then. Not here: which folders
(view), the filter (seccomp), whether the mounts landed where they should (mounts), starting it (launch).
"""

from __future__ import annotations

import posixpath
from functools import lru_cache
from typing import TypeAlias

from palyra.canon import sha256_hex
from palyra.model.call import Tier
from palyra.model.face import PROXY_ADDRESS, PROXY_PORT, NetFace, Trust
from palyra.model.host import BubblewrapFacts, Guarantee, HostFacts, Platform
from palyra.model.job import Job
from palyra.model.net import EgressMode
from palyra.model.plan import Hole, ProcessPlan, Word
from palyra.model.sights import WorkspaceSight
from palyra.sandbox import starter
from palyra.sandbox.backend import (
    BLOCK,
    INFO,
    absent,
    change_identity,
    identity,
    keeps_root,
    namespace_pid_max,
    own_code_notes,
)
from palyra.sandbox.landlock import SCOPE_ABI
from palyra.sandbox.seccomp import MACHINES, assemble
from palyra.sandbox.starter import START_FILE
from palyra.sandbox.view import (
    AGENT_HOME,
    EMPTY_FILE,
    EMPTY_FOLDER,
    HIDDEN_TEXT,
    PRIVATE,
    SYSTEM,
    View,
    closings,
    view_of,
)
from palyra.values import dataclass

_ETC: dict[str, bytes] = {
    "passwd": b"agent:x:1000:1000:agent:/home/agent:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "group": b"agent:x:1000:\nnogroup:x:65534:\n",
    "nsswitch.conf": b"passwd: files\ngroup: files\nhosts: files dns\n",
}
_ETC_ISOLATED: dict[str, bytes] = {
    "hosts": b"127.0.0.1 localhost sandbox\n::1 localhost\n",
    "resolv.conf": b"nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
}
_ETC_SHARED = ("/etc/hosts", "/etc/resolv.conf")
_ETC_READ_ONLY = (
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",  # without it `openssl req` makes no certificate
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
    "/etc/services",  # without them no program knows a port or a protocol by its name
    "/etc/protocols",
    "/etc/mime.types",
)
_RELEASE = ("--symlink", "/usr/lib/os-release", "/etc/os-release")
"""Where every system has it, as a link that costs no mount."""
_LOCALTIME = "/etc/localtime"
_PROXY = f"http://{PROXY_ADDRESS}:{PROXY_PORT}"
PROXY_ENV = tuple(
    sorted(
        (spelling, value)
        for name, value in (
            *((name, _PROXY) for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")),
            ("NO_PROXY", "localhost,127.0.0.1,::1"),
        )
        for spelling in (name, name.lower())
    )
)
"""Both spellings: curl reads only the lower-case `http_proxy`. ALL_PROXY speaks HTTP too: clients without a SOCKS
library refuse to start when they see a SOCKS address."""
_EVERYWHERE = tuple(f"{folder}/" for folder in SYSTEM)
BUNDLE = "/etc/palyra-ca.pem"
TRUST_ENV = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS",
             "CARGO_HTTP_CAINFO")  # fmt: skip
"""Where programs look for certificates, besides the machine's own bundle."""
_ALWAYS = frozenset({Guarantee.FS_ISOLATED, Guarantee.CPU_LIMIT, Guarantee.MEMORY_LIMIT, Guarantee.TREE_KILL})


class BubblewrapBackend:
    name = "bubblewrap"
    tier = Tier.C
    executor = "sandbox_tier_c_linux_bubblewrap"

    def guarantees(self, host: HostFacts) -> frozenset[Guarantee]:
        if host.platform is not Platform.LINUX or host.bubblewrap is None or not host.shell:
            return frozenset()
        given = _ALWAYS | {Guarantee.NET_ISOLATED}
        if host.machine in MACHINES:
            given |= {Guarantee.SYSCALL_FILTER}
        if host.uid != 0 or host.setpriv or _has_pid_max(host) or _pids_folder(host):
            given |= {Guarantee.PROCESS_LIMIT}
        if host.cgroup_limits is not None and host.cgroup_limits.memory:
            given |= {Guarantee.MEMORY_LIMIT_TREE}
        if host.bubblewrap.listeners:
            given |= {Guarantee.HOST_ALLOWLIST}
        return given

    def plan(self, job: Job, host: HostFacts) -> ProcessPlan:
        """Raises Unenforceable where the workspace or a granted folder would open the sandbox."""
        assert host.bubblewrap is not None, "the planner asks for guarantees first"
        run_as = identity(job, host)
        given = self._given(job, host)
        face = job.face if host.bubblewrap.listeners else None
        limits = host.cgroup_limits
        words, data, closed, granted = _made(_shape_of(job, host), host)
        return ProcessPlan(
            backend=self.name,
            executor=self.executor,
            tier=self.tier,
            launcher=(*change_identity(run_as, host), *words),
            data=data,
            program=job.program,
            program_sha256=job.program_sha256,
            argv=job.argv,
            env=_environment(job, face),
            cwd=job.cwd,
            limits=job.limits,
            net=job.net,
            face=face,
            intercepted=job.trust.hosts if job.trust is not None and face is not None else (),
            authority=job.trust.authority if job.trust is not None else b"",
            run_as=run_as,
            closed=closed,  # 13
            caches=tuple(folder for folder, _ in _caches(job, host)),
            granted=granted,
            pid_namespace=True,
            namespace_pid_max=_bounded_by_pid_max(job, host),
            cgroup_memory=limits.memory if limits is not None else "",
            cgroup_pids=_pids_folder(host) if limits is not None or _is_counted(job, host) else "",
            guarantees=given,
            degraded=(*absent(job, given), *_notes(job, host), *own_code_notes(job, host)),
            stdin=job.stdin,
            stdin_streamed=job.stdin_streamed,
        )

    def _given(self, job: Job, host: HostFacts) -> frozenset[Guarantee]:
        given = self.guarantees(host)
        if _shares_network(job):
            given -= {Guarantee.NET_ISOLATED, Guarantee.HOST_ALLOWLIST}
        if not job.net.hosts:
            given -= {Guarantee.HOST_ALLOWLIST}
        if keeps_root(job, host) and not (_bounded_by_pid_max(job, host) or _pids_folder(host)):
            given -= {Guarantee.PROCESS_LIMIT}
        return given


def _environment(job: Job, face: NetFace | None) -> tuple[tuple[str, str], ...]:
    """What names our own listeners and our own authority; neither a call nor the operator can set these keys."""
    if face is None:
        return job.env
    ours = dict(PROXY_ENV) | (dict.fromkeys(TRUST_ENV, BUNDLE) if job.trust is not None else {})
    return tuple(sorted({**dict(job.env), **ours}.items()))


def _caches(job: Job, host: HostFacts) -> tuple[tuple[str, str], ...]:
    """(folder of the host, where it is inside). By the workspace's path: no other workspace sees what this one keeps.
    Another user, which a root engine runs a program as, cannot walk into the state folder, so it keeps nothing."""
    if job.face is None or not job.face.tcp or not host.state_home or identity(job, host) is not None:
        return ()
    own = f"{host.state_home}/caches/{sha256_hex(job.workspace.path.encode('utf-8', 'surrogateescape'))[:32]}"
    return ((f"{own}/xdg", f"{AGENT_HOME}/.cache"), (f"{own}/npm", f"{AGENT_HOME}/.npm"))


def _has_pid_max(host: HostFacts) -> bool:
    return host.uid == 0 and host.pid_max_per_namespace


def _bounded_by_pid_max(job: Job, host: HostFacts) -> bool:
    """RLIMIT_NPROC does nothing for uid 0, also inside a user namespace that root made."""
    return keeps_root(job, host) and _has_pid_max(host)


def _pids_folder(host: HostFacts) -> str:
    """Of groups that count; nobody inside sees their files, so nobody leaves one."""
    return (host.cgroup_limits.pids if host.cgroup_limits is not None else "") or host.cgroup_pids


def _is_counted(job: Job, host: HostFacts) -> bool:
    """By a group, because nothing else does: uid 0 stays, and the kernel has one `pid_max` for all."""
    return keeps_root(job, host) and not _has_pid_max(host)


def _shares_network(job: Job) -> bool:
    return job.net.mode is not EgressMode.STRICT


def _notes(job: Job, host: HostFacts) -> tuple[str, ...]:
    notes = []
    if keeps_root(job, host):
        notes.append("root_owned_workspace: the workspace is root's, so uid 0 stays, behind every other wall")
        bound = namespace_pid_max(job.limits.processes)
        if _bounded_by_pid_max(job, host) and bound > job.limits.processes:
            notes.append(f"process_limit: at most {bound} processes, the smallest bound that works for uid 0")
    if job.face is not None and job.face.tcp and not _caches(job, host):
        notes.append("package_caches: none outlive the call")
    if _shares_network(job):
        notes.append(f"network_shared: egress mode {job.net.mode.value} leaves the host's network reachable")
    return tuple(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What of a job decides over its sandbox: calls that differ only in what they run have the same."""

    workspace: WorkspaceSight
    read_roots: tuple[str, ...]
    granted_roots: tuple[str, ...]
    program: str
    """Empty where every sandbox shows it."""
    program_file: str
    scratch_bytes: int
    shares_network: bool
    own_files: tuple[tuple[str, bytes], ...]
    workspace_writable: bool
    own_program: bool
    caches: tuple[tuple[str, str], ...]
    trust: Trust | None


def _shape_of(job: Job, host: HostFacts) -> _Shape:
    program, file = ("" if path.startswith(_EVERYWHERE) else path for path in (job.program, job.program_file))
    return _Shape(
        workspace=job.workspace,
        read_roots=job.read_roots,
        granted_roots=job.granted_roots,
        program=program,
        program_file=file,
        scratch_bytes=job.limits.scratch_bytes,
        shares_network=_shares_network(job),
        own_files=job.own_files,
        workspace_writable=job.workspace_writable,
        own_program=bool(job.own_files) and not job.learning,
        caches=_caches(job, host),
        trust=job.trust,
    )


_Made: TypeAlias = tuple[tuple[Word, ...], tuple[bytes, ...], tuple[tuple[str, str], ...], tuple[str, ...]]
"""The words, their data, what is closed, and which folders are shown that no link may lead to."""


@lru_cache(maxsize=128)
def _made(shape: _Shape, host: HostFacts) -> _Made:
    """Remembered, because a run's calls mostly share one sandbox."""
    assert host.bubblewrap is not None
    view = view_of(shape, host)
    words, data = _words(shape, view, host, host.bubblewrap)
    granted = {posixpath.normpath(root) for root in shape.granted_roots}
    return words, data, closings(view), tuple(path for path in view.readable if path in granted)


def _words(
    job: _Shape, view: View, host: HostFacts, bwrap: BubblewrapFacts
) -> tuple[tuple[Word, ...], tuple[bytes, ...]]:
    scratch = str(job.scratch_bytes)
    data: list[bytes] = []
    words: list[Word] = [bwrap.path]
    words += ["--die-with-parent", "--new-session", *(["--as-pid-1"] if host.starter else [])]  # 1
    words += _namespaces(job, bwrap)  # 2
    words += ["--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL"]  # 3
    words += _system(host)  # 4
    words += _etc(job, data, host)  # 5
    if host.starter:
        words += ["--perms", "0555", "--file", _hole(data, _start_program(job, host)), START_FILE]
    words += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys"]  # 6
    words += ["--dev", "/dev", "--remount-ro", "/dev"]
    words += ["--size", scratch, "--tmpfs", "/dev/shm"]  # noqa: S108  # 7
    for folder in PRIVATE:
        words += ["--perms", "0755" if folder == AGENT_HOME else "1777", "--size", scratch, "--tmpfs", folder]
    for path in view.readable:  # 8
        words += ["--ro-bind", path, path]
    words += ["--bind" if job.workspace_writable else "--ro-bind", job.workspace.path, job.workspace.path]  # 9
    for folder, place in job.caches:
        words += ["--bind", folder, place]
    words += ["--remount-ro", "/"]  # 10
    words += ["--chdir", job.workspace.path, "--clearenv"]  # 11
    if host.machine in MACHINES:  # 12
        words += ["--seccomp", _hole(data, _filter(job, host))]
    words += ["--info-fd", INFO, "--block-fd", BLOCK, "--", *([START_FILE] if host.starter else [])]
    return tuple(words), tuple(data)


def _keeps_to_its_names(host: HostFacts) -> bool:
    """Whether what starts inside can enter a domain that reaches no socket without a path but its own."""
    return host.starter and host.landlock_abi >= SCOPE_ABI


def _start_program(job: _Shape, host: HostFacts) -> bytes:
    return starter.assemble(host.machine, first=True, scoped=job.shares_network and _keeps_to_its_names(host))


def _filter(job: _Shape, host: HostFacts) -> bytes:
    unix = not job.shares_network or _keeps_to_its_names(host)
    own_network = not job.shares_network and not job.own_program
    return assemble(host.machine, own_program=job.own_program, unix=unix, own_network=own_network)


def _namespaces(job: _Shape, bwrap: BubblewrapFacts) -> list[Word]:
    words: list[Word] = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not job.shares_network:
        words.append("--unshare-net")
    if bwrap.disable_userns:
        words.append("--disable-userns")
    return words


def _system(host: HostFacts) -> list[Word]:
    words: list[Word] = ["--ro-bind", "/usr", "/usr"]
    for folder in SYSTEM[1:]:
        if host.usr_merged:
            words += ["--symlink", f"usr{folder}", folder] if folder in _MERGED else []
        else:
            words += ["--ro-bind-try", folder, folder]
    return words


_MERGED = ("/bin", "/sbin", "/lib", "/lib64")


def _etc(job: _Shape, data: list[bytes], host: HostFacts) -> list[Word]:
    """Files are copied into the root's own tmpfs, which step 10 seals: cheaper than a mount for each."""
    words: list[Word] = ["--dir", "/etc", *_RELEASE]
    if host.localtime:  # a link shows programs the zone's name too
        words += ["--symlink", host.localtime, _LOCALTIME]
    shown = (*_ETC_READ_ONLY, *host.etc_settings, *(_ETC_SHARED if job.shares_network else ()))
    for path in shown if host.localtime else (*shown, _LOCALTIME):
        words += ["--ro-bind-try", path, path]
    words += ["--perms", "0555", "--dir", EMPTY_FOLDER]
    words += ["--perms", "0444", "--file", _hole(data, HIDDEN_TEXT), EMPTY_FILE]
    files = _ETC if job.shares_network else _ETC | _ETC_ISOLATED
    for name, content in files.items():
        words += ["--perms", "0644", "--file", _hole(data, content), f"/etc/{name}"]
    for path, content in job.own_files:
        words += ["--perms", "0444", "--file", _hole(data, content), path]
    if job.trust is not None:
        words += ["--perms", "0444", "--file", _hole(data, job.trust.bundle), BUNDLE]
        if job.trust.system_path:
            words += ["--ro-bind-data", _hole(data, job.trust.bundle), job.trust.system_path]
    return words


def _hole(data: list[bytes], content: bytes) -> Hole:
    data.append(content)
    return Hole(len(data) - 1)
