"""macOS and Windows, looked at once. As on Linux a backend counts only when its walls were seen to stand.

macOS: a shell is run in the very profile that calls get, beside a secret it must not read and a folder it must not
write. Windows: a process is put into a job object whose handle is then closed, and must be gone. What another system
lacks of Linux is a blocker like any other.

Not here: the profile (profiles/*.sbpl, seatbelt), job objects in calls (launch/_os/_windows).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.resources
import os
import platform
import subprocess
import sys
from dataclasses import replace
from typing import Any

from palyra.model.host import Blocker, HostFacts, Platform, SeatbeltFacts
from palyra.sandbox.probe_trial import trial_job, trial_place
from palyra.sandbox.seatbelt import SeatbeltBackend

SANDBOX_EXEC = "/usr/bin/sandbox-exec"
_SHELLS = ("/bin/dash", "/bin/bash")
_TIMEOUT_S = 15.0
# Each line is a wall that was tried; a report that is cut short has too few of them.
_REPORT = """
if ( : > "$1/made" ) 2>/dev/null; then echo "workspace writable"; fi
if ( read -r x < "$2/secret" ) 2>/dev/null; then echo "secret read"; else echo "secret closed"; fi
if ( : > "$2/new" ) 2>/dev/null; then echo "outside written"; else echo "outside closed"; fi
if kill -0 "$3" 2>/dev/null; then echo "others reached"; else echo "others closed"; fi
"""
_WALLS = ["workspace writable", "secret closed", "outside closed", "others closed"]
_KILL_ON_JOB_CLOSE, _EXTENDED_LIMITS, _SET_QUOTA_AND_TERMINATE, _GONE_MS = 0x2000, 9, 0x0101, 10_000
_LIMITS_BYTES, _FLAGS_AT = 144, 16
"""JOBOBJECT_EXTENDED_LIMIT_INFORMATION, and where its flags stand."""


def look_at_foreign(home: str, state_home: str) -> HostFacts:
    blocker = Blocker("bubblewrap", "platform", "bubblewrap needs Linux.", "Use a Linux host, or set container_image.")
    if sys.platform == "darwin":
        return _look_at_mac(home, state_home, blocker)
    return _look_at_windows(home, state_home, blocker)


# ── macOS ────────────────────────────────────────────────────────────────────


def _look_at_mac(home: str, state_home: str, blocker: Blocker) -> HostFacts:
    host = HostFacts(
        platform=Platform.MACOS,
        machine=platform.machine(),
        kernel=platform.release(),
        uid=os.getuid(),
        gid=os.getgid(),
        shell=next((path for path in _SHELLS if os.access(path, os.X_OK)), ""),
        home=os.path.realpath(home) if home else "",
        state_home=os.path.realpath(state_home) if state_home else "",
        blockers=(blocker,),
    )
    facts = SeatbeltFacts(path=SANDBOX_EXEC, base=profile_text("base"), network=profile_text("network"))
    wrong = try_seatbelt(replace(host, seatbelt=facts))
    if wrong:
        detail = f"sandbox-exec does not isolate here: {wrong}."
        found = Blocker("seatbelt", "not_isolating", detail, "Set container_image: tier C then runs in a container.")
        return replace(host, blockers=(*host.blockers, found))
    return replace(host, seatbelt=facts)


def profile_text(name: str) -> str:
    return (importlib.resources.files("palyra.sandbox") / "profiles" / f"{name}.sbpl").read_text(encoding="utf-8")


def try_seatbelt(host: HostFacts) -> str:
    """What is wrong, or an empty string."""
    try:
        with trial_place() as (workspace, secret):
            job = trial_job(workspace, host, program="/bin/sh")
            plan = SeatbeltBackend().plan(job, replace(host, home="", state_home=""))
            arguments = [workspace, os.path.dirname(secret), str(os.getpid())]
            done = subprocess.run(
                [*map(str, plan.launcher), host.shell, "-c", _REPORT, "probe", *arguments],
                env={},
                cwd="/",
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_TIMEOUT_S,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stdout.splitlines()
    return "" if said == _WALLS else "; ".join(said) or done.stderr.strip() or "it said nothing"


# ── Windows ──────────────────────────────────────────────────────────────────


def _look_at_windows(home: str, state_home: str, blocker: Blocker) -> HostFacts:
    load = getattr(ctypes, "WinDLL", None)
    host = HostFacts(
        platform=Platform.WINDOWS,
        machine=platform.machine(),
        kernel=platform.version(),
        uid=1000,  # there are no numbers here; a container's user gets this one
        gid=1000,
        home=os.path.realpath(home) if home else "",
        state_home=os.path.realpath(state_home) if state_home else "",
        system_root=os.environ.get("SystemRoot", ""),  # noqa: SIM112  # that is how Windows spells it
        job_objects=load is not None and try_job_object(load("kernel32", use_last_error=True)),
        blockers=(blocker,),
    )
    if host.job_objects:
        return host
    found = Blocker("jobobject", "not_isolating", "Job objects do not work here.", "See the system's event log.")
    return replace(host, blockers=(*host.blockers, found))


def try_job_object(kernel32: Any) -> bool:
    """Whether a process ends when the only handle of its job is closed."""
    kernel32.CreateJobObjectW.restype = kernel32.OpenProcess.restype = ctypes.c_void_p
    waits = [sys.executable, "-I", "-S", "-c", "input()"]
    with subprocess.Popen(waits, stdin=subprocess.PIPE) as child:
        try:
            job = ctypes.c_void_p(kernel32.CreateJobObjectW(None, None))
            limits = ctypes.create_string_buffer(_LIMITS_BYTES)
            ctypes.c_uint32.from_buffer(limits, _FLAGS_AT).value = _KILL_ON_JOB_CLOSE
            process = ctypes.c_void_p(kernel32.OpenProcess(_SET_QUOTA_AND_TERMINATE, False, child.pid))
            made = kernel32.SetInformationJobObject(job, _EXTENDED_LIMITS, limits, _LIMITS_BYTES)
            inside = made and kernel32.AssignProcessToJobObject(job, process)
            kernel32.CloseHandle(process)
            kernel32.CloseHandle(job)
            if not inside:
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(_GONE_MS / 1000)
                return True
            return False
        finally:
            child.kill()
