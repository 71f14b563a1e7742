"""A bubblewrap sandbox, started for real and looked at from inside: does it isolate, and with which of its options?

The sandbox is the planner's own, made for a temporary workspace beside a secret; a shell inside reports what it sees
(evidence). While it waits, its PIDs are bounded and listeners opened in its network, as a call would.

Touches: short-lived children, a throwaway folder. Not here: remembering what was found (probe), what a failure means
(diagnose).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import threading
from dataclasses import replace

from palyra.model.host import Blocker, BubblewrapFacts, HostFacts
from palyra.model.plan import Hole, ProcessPlan
from palyra.sandbox.backend import INFO, LOWEST_PID_MAX
from palyra.sandbox.diagnose import Symptoms, diagnose
from palyra.sandbox.evidence import HELD, REPORT, parse_report, pid_max_in, problem_in
from palyra.sandbox.probe_kernel import try_namespaces
from palyra.sandbox.probe_network import try_listeners
from palyra.sandbox.probe_start import memory_file, raised, told_to_become
from palyra.sandbox.probe_trial import read_file, trial_place, trial_plan
from palyra.sandbox.view import MADE, is_within
from palyra.values import dataclass

_TRIAL_TIMEOUT_S = 15.0
_PID_MAX = "/proc/sys/kernel/pid_max"
_SYSCTLS = (
    "user/max_user_namespaces",
    "kernel/unprivileged_userns_clone",
    "kernel/apparmor_restrict_unprivileged_userns",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolates:
    """A sandbox that was seen to, and what it is made with."""

    bubblewrap: BubblewrapFacts
    pid_max_per_namespace: bool
    starter: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    words: str = ""
    """What is wrong; empty when the sandbox isolates."""
    started: bool = False
    pid_max_per_namespace: bool = False
    listeners: bool = False


def try_bwrap(host: HostFacts, bwrap: str, *, listeners: str) -> Isolates | Blocker:
    """A sandbox with every option; one without --disable-userns where this bwrap or kernel does not have it, or with a
    shell in the start program's place. `listeners`: the file of our program that opens some inside."""
    said = subprocess.run([bwrap, "--version"], env={}, capture_output=True, text=True, check=False).stdout.split()
    trial = _Trial()
    for starter, disable_userns in itertools.product((True, False) if host.starter else (False,), (True, False)):
        facts = BubblewrapFacts(path=bwrap, version=said[-1] if said else "", disable_userns=disable_userns)
        trial = _try(replace(host, bubblewrap=facts, starter=starter), listeners)
        if not trial.words:
            return Isolates(
                bubblewrap=replace(facts, listeners=trial.listeners),
                pid_max_per_namespace=trial.pid_max_per_namespace,
                starter=starter,
            )
        if trial.started:
            break
    return diagnose(
        Symptoms(
            words=trial.words,
            uid=host.uid,
            namespaces=try_namespaces(),
            sysctls={name: int(value) for name in _SYSCTLS if (value := read_file(f"/proc/sys/{name}")).isdigit()},
            seccomp=int(_status("Seccomp") or 0),
            started=trial.started,
        )
    )


def _try(host: HostFacts, listeners: str) -> _Trial:
    try:
        with trial_place() as (workspace, secret), contextlib.ExitStack() as stack:
            plan = trial_plan(workspace, host)
            told = [workspace, secret, *_hidden(host, workspace)]
            return _run_trial(plan, host, told, listeners, stack)
    except (OSError, ValueError) as error:
        return _Trial(words=f"{type(error).__name__}: {error}")


def _run_trial(
    plan: ProcessPlan, host: HostFacts, arguments: list[str], listeners: str, stack: contextlib.ExitStack
) -> _Trial:
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
    before = read_file(_PID_MAX)
    isolated = not problem_in(parse_report("".join(lines)))
    init = _first_inside(info_read) if isolated else 0
    if init and host.uid == 0 and _kernel_at_least(host.kernel, 6, 14):
        _bound_pids(host, init)
    listens = bool(init) and try_listeners(init, listeners)
    rest, errors = process.communicate("\n")
    report = parse_report("".join(lines) + rest)
    if not lines:
        return _Trial(words=errors.strip().split("\n")[0] or f"bwrap ended with {process.returncode}")
    bounded = pid_max_in(report) == str(LOWEST_PID_MAX) and read_file(_PID_MAX) == before
    return _Trial(words=problem_in(report), started=True, pid_max_per_namespace=bounded, listeners=listens)


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


def _kernel_at_least(release: str, major: int, minor: int) -> bool:
    numbers = release.split("-")[0].split(".")
    return all(n.isdigit() for n in numbers[:2]) and tuple(map(int, numbers[:2])) >= (major, minor)


def _status(name: str) -> str:
    lines = [line for line in read_file("/proc/self/status").splitlines() if line.startswith(f"{name}:")]
    return lines[0].split()[1] if lines else ""
