"""Why bubblewrap cannot make a sandbox here, and the exact fix: a table over what was observed. Pure.

bubblewrap says the same words for several causes and exits 1 for all of them, so the words alone do not tell:
the errno of making each kind of namespace directly, the sysctls and the process's own seccomp mode do.

Not here: observing (probe).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field

from palyra.model.host import Blocker
from palyra.values import dataclass

BACKEND = "bubblewrap"
_PACKAGES = {
    "debian": "apt install bubblewrap",
    "ubuntu": "apt install bubblewrap",
    "fedora": "dnf install bubblewrap",
    "rhel": "dnf install bubblewrap",
    "centos": "dnf install bubblewrap",
    "alpine": "apk add bubblewrap",
    "arch": "pacman -S bubblewrap",
    "suse": "zypper install bubblewrap",
    "opensuse": "zypper install bubblewrap",
    "nixos": "nix-env -iA nixpkgs.bubblewrap",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    words: str
    """The first line bubblewrap wrote; or which wall was missing inside a sandbox that did start."""
    uid: int = 0
    namespaces: Mapping[str, str] = field(default_factory=dict)
    """Kind (user, user+net, user+pid) → errno name of making one directly, "" when it worked."""
    sysctls: Mapping[str, int] = field(default_factory=dict)
    seccomp: int = 0
    """Of this very process: 2 means that a container's filter judges it."""
    started: bool = False
    """The sandbox did start; what is wrong was seen from inside."""


def missing_program(distributions: tuple[str, ...]) -> Blocker:
    """`distributions` are ID and ID_LIKE of os-release, the most exact first."""
    commands = [_PACKAGES[name] for name in distributions if name in _PACKAGES]
    how = commands[0] if commands else "your system's package manager"
    return Blocker(BACKEND, "missing", "bubblewrap (bwrap) is not installed.", f"Install bubblewrap: {how}")


def diagnose(seen: Symptoms) -> Blocker:
    for applies, code, detail, fix in _CAUSES:
        if applies(seen):
            return Blocker(BACKEND, code, detail, fix)
    said = seen.words or "bubblewrap said nothing"
    return Blocker(
        BACKEND, "unknown", f"A sandbox could not be started: {said}.", "Run `bwrap` by itself to see its message."
    )


def _errno(kind: str, name: str) -> Callable[[Symptoms], bool]:
    return lambda seen: seen.namespaces.get(kind) == name


def _sysctl(name: str, value: int) -> Callable[[Symptoms], bool]:
    return lambda seen: seen.sysctls.get(name) == value


def _both(*conditions: Callable[[Symptoms], bool]) -> Callable[[Symptoms], bool]:
    return lambda seen: all(condition(seen) for condition in conditions)


def _says(words: str) -> Callable[[Symptoms], bool]:
    return lambda seen: words in seen.words


def _plain_user(seen: Symptoms) -> bool:
    return seen.uid != 0


def _filtered(seen: Symptoms) -> bool:
    return seen.seccomp == 2


# The first row that applies is the cause; rows that name a setting come before those that only name a symptom.
_CAUSES: tuple[tuple[Callable[[Symptoms], bool], str, str, str], ...] = (
    (
        lambda seen: seen.started,
        "not_isolating",
        "A sandbox started, but a check from inside shows that it does not isolate.",
        "Report the output of `palyra doctor --json`; nothing runs in such a sandbox.",
    ),
    (
        _sysctl("user/max_user_namespaces", 0),
        "user_namespaces_off",
        "User namespaces are disabled (user.max_user_namespaces = 0).",
        "Run as root: sysctl -w user.max_user_namespaces=15000",
    ),
    (
        _both(_plain_user, _sysctl("kernel/unprivileged_userns_clone", 0)),
        "unprivileged_user_namespaces_off",
        "Unprivileged users may not create user namespaces (kernel.unprivileged_userns_clone = 0).",
        "Run as root: sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    (
        _both(_plain_user, _sysctl("kernel/apparmor_restrict_unprivileged_userns", 1)),
        "apparmor",
        "AppArmor restricts user namespaces of unprivileged users (kernel.apparmor_restrict_unprivileged_userns = 1).",
        "Give bwrap a profile that allows userns, or run as root: "
        "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
    ),
    (
        _errno("user", "ENOSPC"),
        "nested_sandbox",
        "This process runs in a sandbox or container that forbids further user namespaces.",
        "Start Palyra outside it.",
    ),
    (
        _errno("user+net", "ENOSPC"),
        "net_namespaces_off",
        "Network namespaces are exhausted or disabled (user.max_net_namespaces).",
        "Run as root: sysctl -w user.max_net_namespaces=15000",
    ),
    (
        _errno("user+pid", "ENOSPC"),
        "pid_namespaces_off",
        "PID namespaces are exhausted or disabled (user.max_pid_namespaces).",
        "Run as root: sysctl -w user.max_pid_namespaces=15000",
    ),
    (
        _both(_errno("user", "EPERM"), _filtered),
        "container_seccomp",
        "A container's seccomp filter refuses new namespaces.",
        "Start the container with --security-opt seccomp=unconfined, or with a profile that allows "
        "clone, unshare, mount, umount2 and pivot_root.",
    ),
    (
        _errno("user", "EPERM"),
        "chroot",
        "New user namespaces are refused, as they are inside a chroot.",
        "Start Palyra outside the chroot, or enter it with a tool that uses pivot_root (systemd-nspawn, bwrap).",
    ),
    (
        _says("Can't mount proc"),
        "proc_masked",
        "A container hides parts of /proc, so no new /proc can be mounted.",
        "Start the container with --security-opt systempaths=unconfined (podman: --security-opt unmask=ALL).",
    ),
    (
        _says("Failed to make / slave"),
        "mount_refused",
        "Mounting is refused by a container's filter or security module.",
        "Start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined.",
    ),
)
