"""Landlock for a plain child, as values: which files it may touch, and the bytes the kernel is told. Pure.

`rules_for(job, host)` lists what is allowed: the workspace to write, system folders and granted ones to read and
run, a few files of /etc to read, five devices. Everything else the kernel's version can refuse is refused, TCP too
where the call has no network, signals and abstract sockets to anyone outside where it knows how (version 6).

What Landlock cannot refuse: changing the mode, owner or times of files outside that belong to the same user, and
seeing that files exist. Unix sockets with a path, UDP and the ways round its TCP rule are the filter's (seccomp_b).

Not here: opening paths and entering (launch/_os), whether this may be promised (rlimit).
"""

from __future__ import annotations

import posixpath
import struct
from functools import lru_cache

from palyra.model.host import HostFacts
from palyra.model.job import Job
from palyra.model.net import EgressMode
from palyra.model.plan import LandlockRules
from palyra.sandbox.view import SYSTEM, is_within, program_root

LOWEST_ABI = 3
"""Before it, files outside can be truncated and nothing may be moved between folders: too weak, and too strict."""
TCP_ABI, SCOPE_ABI, NEWEST_ABI = 4, 6, 7

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
BIND_TCP, CONNECT_TCP = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2

READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
DEVICE = READ_FILE | WRITE_FILE
# Device nodes are never made: with the right numbers one is the disk itself.
WORK = (
    RUN | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | REFER
    | MAKE_DIR | MAKE_REG | MAKE_SYM | MAKE_FIFO | MAKE_SOCK
)  # fmt: skip
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
"""What a rule on something that is no folder may name; the kernel refuses the rest."""

_HANDLED_FILES = {1: MAKE_SYM, 2: REFER, 3: TRUNCATE, 4: TRUNCATE, 5: IOCTL_DEV, 6: IOCTL_DEV, 7: IOCTL_DEV}
"""Version → the newest right over files that it knows."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
# Programs that find EACCES where they expect nothing give up (git and /etc/gitconfig), so what is harmless is shown.
ETC = (
    *("/etc/alternatives", "/etc/ca-certificates", "/etc/crypto-policies", "/etc/debian_version", "/etc/fonts"),
    *("/etc/gai.conf", "/etc/gitattributes", "/etc/gitconfig", "/etc/group", "/etc/host.conf", "/etc/inputrc"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/locale.conf"),
    *("/etc/localtime", "/etc/lsb-release", "/etc/magic", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release"),
    *("/etc/passwd", "/etc/perl", "/etc/pki/ca-trust/extracted", "/etc/pki/tls/certs", "/etc/protocols"),
    *("/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/terminfo", "/etc/timezone"),
)
ETC_NETWORK = ("/etc/hosts", "/etc/resolv.conf")
"""Only where the host's network is shared: they name its neighbours."""
# The machine's own numbers; never a process's folder, which would show arguments and environments of others.
KERNEL = ("/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime",
          "/proc/version")  # fmt: skip


def rules_for(job: Job, host: HostFacts) -> LandlockRules:
    # What lies in the workspace is the program's already, and a link that it put there is no grant.
    roots = [root for root in map(posixpath.normpath, job.read_roots) if not is_within(root, job.workspace.path)]
    runnable = list(dict.fromkeys((*SYSTEM, *roots)))
    for program in filter(None, (job.program, job.program_file)):
        if not any(is_within(program, folder) for folder in (*runnable, job.workspace.path)):
            runnable.append(program_root(program, host))
    shared = job.net.mode is not EgressMode.STRICT
    granted = {posixpath.normpath(root) for root in job.granted_roots}
    return LandlockRules(
        abi=min(host.landlock_abi, NEWEST_ABI),
        writable=job.workspace.path,
        runnable=tuple(runnable),
        readable=(*ETC, *host.etc_settings, *(ETC_NETWORK if shared else ()), *KERNEL),
        devices=DEVICES,
        tcp=shared,
        granted=tuple(root for root in runnable if root in granted and root not in SYSTEM),
    )


def shows(rules: LandlockRules, path: str) -> bool:
    """Whether the rules let a program read `path` or something in it. Nothing can be taken out of a granted folder."""
    folders = (rules.writable, *rules.runnable, *rules.readable)
    return any(is_within(path, folder) or is_within(folder, path) for folder in folders)


@lru_cache(maxsize=64)
def accesses(rules: LandlockRules) -> tuple[tuple[str, int], ...]:
    """(path, rights) of everything but the workspace; a path that does not exist is left out."""
    kinds = ((rules.runnable, RUN), (rules.readable, READ), (rules.devices, DEVICE))
    within = handled(rules.abi)[0]
    return tuple((path, rights & within) for paths, rights in kinds for path in paths)


def handled(abi: int) -> tuple[int, int, int]:
    """Rights over files, over TCP ports, and scopes: everything a kernel of this version can take away."""
    abi = min(abi, NEWEST_ABI)
    files = 2 * _HANDLED_FILES[abi] - 1
    return files, BIND_TCP | CONNECT_TCP if abi >= TCP_ABI else 0, ABSTRACT_SOCKETS | SIGNALS if abi >= SCOPE_ABI else 0


def ruleset_attr(rules: LandlockRules) -> bytes:
    """`struct landlock_ruleset_attr`, as long as this version knows it."""
    files, ports, scopes = handled(rules.abi)
    size = 24 if rules.abi >= SCOPE_ABI else 16 if rules.abi >= TCP_ABI else 8
    return struct.pack("=QQQ", files, 0 if rules.tcp else ports, scopes)[:size]


SIGNALS_ATTR = struct.pack("=QQQ", REFER, 0, SIGNALS)
"""The same of a domain that refuses signals to the outside, and nothing else once REFER is allowed everywhere."""


def path_attr(rights: int, descriptor: int) -> bytes:
    """`struct landlock_path_beneath_attr`, which is packed."""
    return struct.pack("=Qi", rights, descriptor)
