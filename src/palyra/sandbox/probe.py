"""Look once at this machine → HostFacts. Available means: a real sandbox was started and seen to isolate.

What was found is remembered in `probe.json` of the state home under keys that change with the kernel, the boot, the
bwrap file, the user, the cgroup and the plan itself; a failure is never remembered.

Not here: the trials (probe_bwrap, probe_start, probe_kernel, probe_container, probe_foreign), what the facts allow
(bwrap, rlimit, planner), what a failure means (diagnose).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from palyra import inside
from palyra.canon import digest
from palyra.model.host import Blocker, BubblewrapFacts, CgroupFacts, HostFacts, Platform
from palyra.model.plan import plan_digest
from palyra.sandbox.evidence import REPORT
from palyra.sandbox.probe_launcher import Launcher, find_launcher, why_passed_over
from palyra.sandbox.probe_memory import CACHE_NAME, recall, remember
from palyra.sandbox.probe_trial import read_file, trial_plan
from palyra.sandbox.starter import start_digest
from palyra.values import dataclass, names_of

if TYPE_CHECKING:
    from palyra.sandbox.probe_bwrap import Isolates

__all__ = ["CACHE_NAME", "probe"]
_SHELLS = ("/usr/bin/dash", "/bin/dash", "/bin/sh", "/usr/bin/sh")
_KNOWN_SHELLS = frozenset({"dash", "ash", "bash", "busybox"})
"""Those whose behaviour the launch message is written for."""
_OWN = os.path.dirname(str(inside.__file__))
_SETTINGS = ("chromium.d", "fonts", "java", "manpath.config", "maven/logging", "maven/m2.conf")
"""Without them chromium, javac, mvn, fontconfig and man do nothing at all: what is below /usr needs them. Maven's other
settings and those of pip and npm can hold passwords."""
_ENGINES = ("podman", "docker")
_LISTENERS = os.path.join(_OWN, "listeners.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    path: str
    version: str
    disable_userns: bool
    pid_max_per_namespace: bool
    listeners: bool = False
    starter: bool = False
    cgroup_kill: str = ""
    landlock_abi: int = 0
    cgroup_version: int = 0
    cgroup_memory: str = ""
    cgroup_pids: str = ""
    counted_below: str = ""


def probe(
    *,
    home: str,
    state_home: str,
    search_path: Sequence[str],
    owns_process: bool = False,
    cgroup_limits: bool = False,
    container_image: str = "",
    backend: str = "auto",
    fresh: bool = False,
) -> HostFacts:
    """Never raises for what a host lacks: that is a blocker, with its fix.

    `owns_process`: this process is Palyra's own, so it may collect its sandboxes' orphans. `cgroup_limits`: whole
    calls are to be bounded where a cgroup can do it. `container_image`: look for an engine too. `backend`: the only one
    that tier C may use, or `auto`. `fresh`: look again.
    """
    if sys.platform.startswith("linux"):
        host = _linux(
            replace(_basics(home, state_home), subreaper=owns_process),
            find_launcher("bwrap", search_path),
            cgroup_limits=cgroup_limits,
            fresh=fresh,
        )
    else:
        from palyra.sandbox.probe_foreign import look_at_foreign

        host = look_at_foreign(home, state_home)
    host = _only(host, backend)
    is_named = backend in _ENGINES
    if not container_image and is_named:
        return replace(host, blockers=(*host.blockers, _without_image(backend)))
    if not container_image or not (is_named or backend == "auto"):
        return host
    from palyra.sandbox.probe_container import look_for_container  # only where one is wanted

    runtime = backend if is_named else ""
    found = look_for_container(host, image=container_image, runtime=runtime, folders=search_path, fresh=fresh)
    if isinstance(found, tuple):
        return replace(host, blockers=(*host.blockers, *found))
    return replace(host, container=found)


def _only(host: HostFacts, backend: str) -> HostFacts:
    """Without the others, where an operator named one: they serve no call of tier C, and say why."""
    for name, is_there in (("bubblewrap", host.bubblewrap is not None), ("seatbelt", host.seatbelt is not None)):
        if is_there and backend not in ("auto", name):
            why = f'The setting backend = "{backend}" leaves {name} out.'
            blocker = Blocker(name, "left_out", why, 'Set backend = "auto" in [tool_call.process_runner].')
            host = replace(host, blockers=(*host.blockers, blocker))
    return replace(
        host,
        bubblewrap=host.bubblewrap if backend in ("auto", "bubblewrap") else None,
        seatbelt=host.seatbelt if backend in ("auto", "seatbelt") else None,
    )


def _without_image(backend: str) -> Blocker:
    detail = f'The setting backend = "{backend}" needs an image, and container_image names none.'
    return Blocker(backend, "image", detail, "Set container_image in [tool_call.process_runner].")


def _without_launcher(host: HostFacts, passed_over: str, *, cgroup_limits: bool) -> HostFacts:
    from palyra.sandbox.diagnose import BACKEND, missing_program  # seldom needed

    if not host.shell:
        blocker = Blocker(BACKEND, "shell", "There is no /bin/sh that Palyra can use.", "Install dash.")
        return replace(host, blockers=(blocker,))
    missing = missing_program(_distributions())
    if passed_over:
        detail, fix = why_passed_over("bubblewrap", passed_over)
        missing = replace(missing, detail=detail, fix=f"{missing.fix}. {fix}")
    return _with_kernel(host, _kernel(cgroup_limits=cgroup_limits), missing)


def _linux(host: HostFacts, launcher: Launcher, *, cgroup_limits: bool, fresh: bool) -> HostFacts:
    bwrap = launcher.path
    if not host.shell or not bwrap:
        return _without_launcher(host, launcher.passed_over, cgroup_limits=cgroup_limits)
    key = _key(host, bwrap, cgroup_limits=cgroup_limits)
    found = None if fresh else recall(host.state_home, key, _Finding)
    if found is None:
        host, looked = _look(host, bwrap)
        bounds_root = not isinstance(looked, Blocker) and looked.pid_max_per_namespace
        kernel = _kernel(cgroup_limits=cgroup_limits, counting=host.uid == 0 and not bounds_root)
        if isinstance(looked, Blocker):
            return _with_kernel(host, kernel, looked)
        found = _Finding(
            **asdict(looked.bubblewrap),
            pid_max_per_namespace=looked.pid_max_per_namespace,
            starter=looked.starter,
            **kernel,
        )
        remember(host.state_home, key, found)
    facts = BubblewrapFacts(
        path=found.path, version=found.version, disable_userns=found.disable_userns, listeners=found.listeners
    )
    host = replace(host, bubblewrap=facts, pid_max_per_namespace=found.pid_max_per_namespace, starter=found.starter)
    return _with_kernel(host, {name: getattr(found, name) for name in _KERNEL_FIELDS})


def _look(host: HostFacts, bwrap: str) -> tuple[HostFacts, Isolates | Blocker]:
    """The host as far as its start program is concerned, and what a sandbox showed."""
    from palyra.sandbox.probe_bwrap import try_bwrap  # heavy, and seldom: what was found is remembered
    from palyra.sandbox.probe_start import try_starter

    host = replace(host, starter=try_starter(host.machine, host.shell))
    return host, try_bwrap(host, bwrap, listeners=_LISTENERS)


_KERNEL_FIELDS = ("cgroup_kill", "landlock_abi", "cgroup_version", "cgroup_memory", "cgroup_pids", "counted_below")


def _kernel(*, cgroup_limits: bool, counting: bool = False) -> dict[str, Any]:
    """What a child gets of this kernel, under the names of a finding. `counting`: nothing but a group counts uid 0's
    processes here."""
    from palyra.sandbox.probe_kernel import try_cgroup_kill, try_cgroup_limits, try_landlock

    none = CgroupFacts(version=0)
    groups = (try_cgroup_limits() if cgroup_limits or counting else None) or none
    limits = groups if cgroup_limits else none
    found = (
        try_cgroup_kill(limits),
        try_landlock(),
        limits.version,
        limits.memory,
        limits.pids,
        groups.pids if counting else "",
    )
    return dict(zip(_KERNEL_FIELDS, found, strict=True))


def _with_kernel(host: HostFacts, found: dict[str, Any], *blockers: Blocker) -> HostFacts:
    limits = CgroupFacts(version=found["cgroup_version"], memory=found["cgroup_memory"], pids=found["cgroup_pids"])
    return replace(
        host,
        cgroup_kill=found["cgroup_kill"],
        landlock_abi=found["landlock_abi"],
        cgroup_limits=limits if limits.version else None,
        cgroup_pids=found["counted_below"],
        blockers=blockers,
    )


def _basics(home: str, state_home: str) -> HostFacts:
    uname = os.uname()
    return HostFacts(
        platform=Platform.LINUX,
        machine=uname.machine,
        kernel=uname.release,
        uid=os.getuid(),
        gid=os.getgid(),
        shell=next((path for path in _SHELLS if _is_known_shell(path)), ""),
        nsenter=find_launcher("nsenter", ()).path,
        setpriv=find_launcher("setpriv", ()).path,
        usr_merged=os.path.islink("/bin") and os.path.islink("/lib"),
        localtime=_localtime(),
        etc_settings=_etc_settings(),
        home=os.path.realpath(home) if home else "",
        state_home=os.path.realpath(state_home) if state_home else "",
        own_code=tuple(dict.fromkeys(map(os.path.realpath, (sys.prefix, os.path.dirname(_OWN))))),
    )


def _localtime(link: str = "/etc/localtime") -> str:
    found = os.path.realpath(link)
    return found if found.startswith("/usr/") and os.path.isfile(found) else ""


def _etc_settings(etc: str = "/etc") -> tuple[str, ...]:
    versions = sorted(name for name in os.listdir(etc) if name.startswith("java-") and name.endswith("-openjdk"))
    places = (os.path.join(etc, name) for name in (*_SETTINGS, *versions))
    return tuple(path for path in places if _is_at_home(path, etc) and _is_for_all(path))


def _is_at_home(path: str, etc: str) -> bool:
    """What a link shows from elsewhere can lie in a folder that nobody else may enter."""
    return os.path.realpath(path).startswith((f"{os.path.realpath(etc)}/", "/usr/"))


def _is_for_all(path: str) -> bool:
    """What not everybody may read is shown to nobody: where uid 0 stays, a program could read it all the same."""
    inner = (os.path.join(top, name) for top, folders, files in os.walk(path) for name in (*folders, *files))
    try:
        return bool(os.stat(path).st_mode & 0o004) and all(os.lstat(one).st_mode & 0o004 for one in inner)
    except OSError:  # it is not there, or has just gone
        return False


# ── what is remembered ───────────────────────────────────────────────────────


def _key(host: HostFacts, bwrap: str, *, cgroup_limits: bool) -> str:
    """Whatever could change the answer. The plan's digest stands for this version of Palyra."""
    file = os.stat(bwrap)
    facts = BubblewrapFacts(path=bwrap, version="", disable_userns=True)
    plan = trial_plan("/probe", replace(host, bubblewrap=facts))
    return digest(
        {
            "kernel": [host.kernel, os.uname().version, read_file("/proc/sys/kernel/random/boot_id")],
            "bwrap": [bwrap, str(file.st_dev), str(file.st_ino), file.st_size, str(file.st_mtime_ns)],
            "user": [host.uid, host.gid, host.shell, host.nsenter],
            "cgroup": [read_file("/proc/self/cgroup"), cgroup_limits],
            "fields": list(names_of(_Finding)),
            "plan": [plan_digest(plan), digest(REPORT), start_digest(host.machine)],
        }
    )


# ── small looks ──────────────────────────────────────────────────────────────


def _is_known_shell(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.basename(os.path.realpath(path)) in _KNOWN_SHELLS


def _distributions() -> tuple[str, ...]:
    """ID, then ID_LIKE, of /etc/os-release."""
    fields = dict(line.split("=", 1) for line in read_file("/etc/os-release").splitlines() if "=" in line)
    words = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "")
    return tuple(words.split())
