"""Look once at this machine → HostFacts. Available means: a real sandbox was started and seen to isolate.

The sandbox is the planner's own, made for a temporary workspace beside a secret; a shell inside reports what it
sees (evidence). What was found is remembered in `probe.json` of the state home under keys that change with the
kernel, the boot, the bwrap file, the user, the cgroup and the plan itself; a failure is never remembered.

Not here: what the facts allow (bwrap, rlimit, planner), what a failure means (diagnose), the kernel's own walls
(probe_kernel).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from typing import Any

from palyra import inside
from palyra.canon import digest
from palyra.model.host import Blocker, BubblewrapFacts, CgroupFacts, HostFacts, Platform
from palyra.model.plan import Hole, ProcessPlan, plan_digest
from palyra.sandbox.backend import INFO, LOWEST_PID_MAX
from palyra.sandbox.bwrap import BubblewrapBackend
from palyra.sandbox.diagnose import BACKEND, Symptoms, diagnose, missing_program
from palyra.sandbox.evidence import HELD, REPORT, parse_report, pid_max_in, problem_in
from palyra.sandbox.probe_kernel import try_cgroup_kill as _try_cgroup
from palyra.sandbox.probe_kernel import try_cgroup_limits, try_landlock, try_namespaces
from palyra.sandbox.probe_memory import CACHE_NAME, recall, remember
from palyra.sandbox.probe_network import try_listeners
from palyra.sandbox.probe_start import memory_file, raised, told_to_become, try_starter
from palyra.sandbox.probe_trial import trial_job, trial_place
from palyra.sandbox.starter import start_digest
from palyra.sandbox.view import MADE, is_within
from palyra.values import dataclass

__all__ = ["CACHE_NAME", "probe"]
_TRIAL_TIMEOUT_S = 15.0
_TOOLS = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
_SHELLS = ("/usr/bin/dash", "/bin/dash", "/bin/sh", "/usr/bin/sh")
_KNOWN_SHELLS = frozenset({"dash", "ash", "bash", "busybox"})
"""Those whose behaviour the launch message is written for."""
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32")
_LISTENERS = os.path.join(os.path.dirname(str(inside.__file__)), "listeners.py")
_PID_MAX = "/proc/sys/kernel/pid_max"
_SYSCTLS = (
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    words: str = ""
    """What is wrong; empty when the sandbox isolates."""
    started: bool = False
    pid_max_per_namespace: bool = False
    listeners: bool = False


def probe(
    *,
    home: str,
    state_home: str,
    search_path: Sequence[str],
    owns_process: bool = False,
    cgroup_limits: bool = False,
    container_image: str = "",
    container_runtime: str = "",
    fresh: bool = False,
) -> HostFacts:
    """Never raises for what a host lacks: that is a blocker, with its fix.

    `owns_process`: this process is Palyra's own, so it may collect its sandboxes' orphans. `cgroup_limits`: whole
    calls are to be bounded where a cgroup can do it. `container_image`: look for an engine too. `fresh`: look again.
    """
    if sys.platform.startswith("linux"):
        host = _linux(
            replace(_basics(home, state_home), subreaper=owns_process),
            _find("bwrap", (*search_path, *_TOOLS)),
            cgroup_limits=cgroup_limits,
            fresh=fresh,
        )
    else:
        from palyra.sandbox.probe_foreign import look_at_foreign

        host = look_at_foreign(home, state_home)
    if not container_image:
        return host
    from palyra.sandbox.probe_container import look_for_container  # only where one is wanted

    folders = (*search_path, *_TOOLS)
    found = look_for_container(host, image=container_image, runtime=container_runtime, folders=folders, fresh=fresh)
    if isinstance(found, tuple):
        return replace(host, blockers=(*host.blockers, *found))
    return replace(host, container=found)


def _linux(host: HostFacts, bwrap: str, *, cgroup_limits: bool, fresh: bool) -> HostFacts:
    if not host.shell:
        blocker = Blocker(BACKEND, "shell", "There is no /bin/sh of a kind that Palyra knows.", "Install dash.")
        return replace(host, blockers=(blocker,))
    if not bwrap:
        return _with_kernel(host, _kernel(cgroup_limits=cgroup_limits), missing_program(_distributions()))
    key = _key(host, bwrap, cgroup_limits=cgroup_limits)
    found = None if fresh else recall(host.state_home, key, _Finding)
    if found is None:
        host = replace(host, starter=try_starter(host.machine, host.shell))
        looked = _look(host, bwrap)
        if isinstance(looked, Blocker):
            return _with_kernel(host, _kernel(cgroup_limits=cgroup_limits), looked)
        found = replace(looked, **_kernel(cgroup_limits=cgroup_limits))
        remember(host.state_home, key, found)
    facts = BubblewrapFacts(
        path=found.path, version=found.version, disable_userns=found.disable_userns, listeners=found.listeners
    )
    host = replace(host, bubblewrap=facts, pid_max_per_namespace=found.pid_max_per_namespace, starter=found.starter)
    return _with_kernel(host, {name: getattr(found, name) for name in _KERNEL_FIELDS})


_KERNEL_FIELDS = ("cgroup_kill", "landlock_abi", "cgroup_version", "cgroup_memory", "cgroup_pids")


def _kernel(*, cgroup_limits: bool) -> dict[str, Any]:
    """What a plain child gets of this kernel, under the names of a finding."""
    limits = (try_cgroup_limits() if cgroup_limits else None) or CgroupFacts(version=0)
    found = (_try_cgroup(), try_landlock(), limits.version, limits.memory, limits.pids)
    return dict(zip(_KERNEL_FIELDS, found, strict=True))


def _with_kernel(host: HostFacts, found: dict[str, Any], *blockers: Blocker) -> HostFacts:
    limits = CgroupFacts(version=found["cgroup_version"], memory=found["cgroup_memory"], pids=found["cgroup_pids"])
    return replace(
        host,
        cgroup_kill=found["cgroup_kill"],
        landlock_abi=found["landlock_abi"],
        cgroup_limits=limits if limits.version else None,
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
        nsenter=_find("nsenter", _TOOLS),
        setpriv=_find("setpriv", _TOOLS),
        usr_merged=os.path.islink("/bin") and os.path.islink("/lib"),
        localtime=_localtime(),
        system_folders=tuple(f for f in _SYSTEM if os.path.isdir(f) and not os.path.islink(f)),
        home=os.path.realpath(home) if home else "",
        state_home=os.path.realpath(state_home) if state_home else "",
    )


def _localtime(link: str = "/etc/localtime") -> str:
    found = os.path.realpath(link)
    return found if found.startswith("/usr/") and os.path.isfile(found) else ""


# ── the trial ────────────────────────────────────────────────────────────────


def _look(host: HostFacts, bwrap: str) -> _Finding | Blocker:
    """A sandbox with every option; one without --disable-userns where this bwrap or kernel does not have it, or with a
    shell in the start program's place."""
    said = subprocess.run([bwrap, "--version"], env={}, capture_output=True, text=True, check=False).stdout.split()
    trial = _Trial()
    for starter, disable_userns in itertools.product((True, False) if host.starter else (False,), (True, False)):
        facts = BubblewrapFacts(path=bwrap, version=said[-1] if said else "", disable_userns=disable_userns)
        trial = _try(replace(host, bubblewrap=facts, starter=starter))
        if not trial.words:
            facts = replace(facts, listeners=trial.listeners)
            bounded = trial.pid_max_per_namespace
            return _Finding(**asdict(facts), pid_max_per_namespace=bounded, starter=starter)
        if trial.started:
            break
    return diagnose(
        Symptoms(
            words=trial.words,
            uid=host.uid,
            namespaces=try_namespaces(),
            sysctls={name: int(value) for name in _SYSCTLS if (value := _read(f"/proc/sys/{name}")).isdigit()},
            seccomp=int(_status("Seccomp") or 0),
            started=trial.started,
        )
    )


def _try(host: HostFacts) -> _Trial:
    try:
        with trial_place() as (workspace, secret), contextlib.ExitStack() as stack:
            plan = _plan(workspace, host)
            return _run_trial(plan, host, [workspace, secret, *_hidden(host, workspace)], stack)
    except (OSError, ValueError) as error:
        return _Trial(words=f"{type(error).__name__}: {error}")


def _plan(workspace: str, host: HostFacts) -> ProcessPlan:
    job = trial_job(workspace, host, program="/usr/bin/true")
    return BubblewrapBackend().plan(job, replace(host, home="", state_home=""))


def _run_trial(plan: ProcessPlan, host: HostFacts, arguments: list[str], stack: contextlib.ExitStack) -> _Trial:
    files = [memory_file(data, stack) for data in plan.data]
    closing = stack.enter_context(contextlib.ExitStack())
    info_read, info_write = (raised(fd, kept) for fd, kept in zip(os.pipe(), (stack, closing), strict=True))
    os.set_blocking(info_read, False)
    given = {w: memory_file(b"", stack) for w in plan.launcher if isinstance(w, Hole) and w.index < 0}
    given |= {Hole(index): fd for index, fd in enumerate(files)} | {INFO: info_write}
    argv = [str(given[w]) if isinstance(w, Hole) else w for w in plan.launcher]
    told = ["-c", REPORT, "probe", *arguments]
    argv, places = (
        told_to_become(argv, host.shell, told, plan.cwd, stack) if host.starter else ([*argv, host.shell, *told], [])
    )
    process = subprocess.Popen(
        argv,
        env={},
        pass_fds=[*given.values(), *places],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    closing.close()
    stack.enter_context(process)
    timer = threading.Timer(_TRIAL_TIMEOUT_S, process.kill)
    stack.callback(timer.cancel)
    timer.start()
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.strip() == HELD:
            break
    before = _read(_PID_MAX)
    isolated = not problem_in(parse_report("".join(lines)))
    init = _first_inside(info_read) if isolated else 0
    if init and host.uid == 0 and _kernel_at_least(host.kernel, 6, 14):
        _bound_pids(host, init)
    listeners = bool(init) and try_listeners(init, _LISTENERS)
    rest, errors = process.communicate("\n")
    report = parse_report("".join(lines) + rest)
    if not lines:
        return _Trial(words=errors.strip().split("\n")[0] or f"bwrap ended with {process.returncode}")
    bounded = pid_max_in(report) == str(LOWEST_PID_MAX) and _read(_PID_MAX) == before
    return _Trial(words=problem_in(report), started=True, pid_max_per_namespace=bounded, listeners=listeners)


def _first_inside(info: int) -> int:
    try:
        return int(json.loads(os.read(info, 4096))["child-pid"])
    except (OSError, ValueError, KeyError):
        return 0


def _bound_pids(host: HostFacts, init: int) -> None:
    """Only asked of kernels that keep pid_max per namespace: an older one would change the whole machine's."""
    if host.nsenter:
        argv = [host.nsenter, f"--pid=/proc/{init}/ns/pid", host.shell, "-c", f"echo {LOWEST_PID_MAX} > {_PID_MAX}"]
        subprocess.run(argv, env={}, capture_output=True, check=False, timeout=_TRIAL_TIMEOUT_S)


def _hidden(host: HostFacts, workspace: str) -> list[str]:
    """What must not be seen inside, unless the sandbox makes a folder of that name itself."""
    own = [path for path in (host.state_home, host.home) if path and not is_within(workspace, path)]
    return [path for path in own if not any(is_within(made, path) or is_within(path, made) for made in MADE)]


# ── what is remembered ───────────────────────────────────────────────────────


def _key(host: HostFacts, bwrap: str, *, cgroup_limits: bool) -> str:
    """Whatever could change the answer. The plan's digest stands for this version of Palyra."""
    file = os.stat(bwrap)
    facts = BubblewrapFacts(path=bwrap, version="", disable_userns=True)
    plan = _plan("/probe", replace(host, bubblewrap=facts))
    return digest(
        {
            "kernel": [host.kernel, os.uname().version, _read("/proc/sys/kernel/random/boot_id")],
            "bwrap": [bwrap, str(file.st_dev), str(file.st_ino), file.st_size, str(file.st_mtime_ns)],
            "user": [host.uid, host.gid, host.shell, host.nsenter],
            "cgroup": [_read("/proc/self/cgroup"), cgroup_limits],
            "fields": [field.name for field in fields(_Finding)],
            "plan": [plan_digest(plan), digest(REPORT), start_digest(host.machine)],
        }
    )


# ── small looks ──────────────────────────────────────────────────────────────


def _is_known_shell(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.basename(os.path.realpath(path)) in _KNOWN_SHELLS


def _find(name: str, folders: Sequence[str]) -> str:
    for folder in folders:
        path = os.path.join(folder, name)
        if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return ""


def _kernel_at_least(release: str, major: int, minor: int) -> bool:
    numbers = release.split("-")[0].split(".")
    return all(n.isdigit() for n in numbers[:2]) and tuple(map(int, numbers[:2])) >= (major, minor)


def _distributions() -> tuple[str, ...]:
    """ID, then ID_LIKE, of /etc/os-release."""
    fields = dict(line.split("=", 1) for line in _read("/etc/os-release").splitlines() if "=" in line)
    words = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "")
    return tuple(words.split())


def _status(name: str) -> str:
    lines = [line for line in _read("/proc/self/status").splitlines() if line.startswith(f"{name}:")]
    return lines[0].split()[1] if lines else ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
