"""Is there a container engine, is the image there, and does a container of ours isolate? Looked at from inside one.

The container is the planner's own, for a temporary workspace beside a secret. Limits are not believed from options
(rootless engines on older hosts ignore `--memory` with a warning): they are read back inside. What an engine's default
lacks here (a runtime that works) is found by trying.

Not here: the argv (docker), what a report must show (evidence).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from palyra.canon import digest
from palyra.model.host import Blocker, ContainerFacts, HostFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.plan import Hole, ProcessPlan, plan_digest
from palyra.sandbox.docker import LABEL, NAME, OWNER, ContainerBackend
from palyra.sandbox.evidence import LIMITS_REPORT, REPORT, parse_report, problem_in
from palyra.sandbox.probe_launcher import find_launcher, why_passed_over
from palyra.sandbox.probe_memory import recall, remember
from palyra.sandbox.probe_trial import trial_job, trial_place
from palyra.values import dataclass

RUNTIMES = ("podman", "docker")
_TIMEOUT_S = 60.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_LIMITS = Limits(memory_bytes=256 << 20, processes=64, scratch_bytes=1 << 20)
_HIGHEST_NPROC = 32768
"""Engines without the capability to raise limits fail above what they have themselves; more than this nobody needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Engine:
    """An engine as it describes itself; ContainerFacts without the environment, which may change with every start."""

    runtime: str
    path: str
    version: str
    image: str
    rootless: bool
    oci_runtime: str = ""
    nproc: int = 0
    memory: bool = True
    pids: bool = True
    selinux: bool = False
    volumes: str = ""
    variables: str = ""
    """Names of the image's own, a line each."""


def look_for_container(
    host: HostFacts, *, image: str, runtime: str, folders: Sequence[str], fresh: bool
) -> ContainerFacts | tuple[Blocker, ...]:
    """The first engine that works with this image; else why each does not. An empty image means: none is wanted."""
    blockers: list[Blocker] = []
    env = _client_environment(host.home)
    for name in (runtime,) if runtime else RUNTIMES:
        client = find_launcher(name, folders)
        if not client.path:
            missing = f"{name} is not installed.", f"Install {name}."
            blockers.append(
                Blocker(
                    name, "missing", *(why_passed_over(name, client.passed_over) if client.passed_over else missing)
                )
            )
            continue
        found = _look_at(host, name, client.path, image, env, fresh=fresh)
        if isinstance(found, _Engine):
            return _facts(found, env)
        blockers.append(found)
    return tuple(blockers)


def _look_at(
    host: HostFacts, name: str, path: str, image: str, env: dict[str, str], *, fresh: bool
) -> _Engine | Blocker:
    key = _key(host, _Engine(runtime=name, path=path, version="", image=image, rootless=False), env)
    known = None if fresh else recall(host.state_home, key, _Engine)
    if known is not None:
        return known
    described = _describe(name, path, image, env)
    found = described if isinstance(described, Blocker) else _try_all(host, described, env)
    if isinstance(found, _Engine):
        remember(host.state_home, key, found)
    return found


# ── what the engine says ─────────────────────────────────────────────────────


def _describe(name: str, path: str, image: str, env: dict[str, str]) -> _Engine | Blocker:
    code, said, words = _run([path, "info", "--format", "json" if name == "podman" else "{{json .}}"], env)
    try:
        info = json.loads(said) if code == 0 else {}
    except ValueError:
        info = {}
    if not info or info.get("ServerErrors"):
        why = (info.get("ServerErrors") or [words.strip().split("\n")[-1]])[0]
        return Blocker(name, "engine", f"The {name} engine does not answer: {why}", f"Start {name}, or remove it.")
    code, found, _ = _run([path, "image", "inspect", "--format", "{{json .Config}}", image], env)
    if code != 0 or not found.strip():
        fix = f"{name} pull {image}, or set another container_image."
        return Blocker(
            name, "image", f"The image {image} is not on this machine, and images are never pulled for a call.", fix
        )
    return _of_podman(path, image, info) if name == "podman" else _of_docker(path, image, info, json.loads(found))


def _of_podman(path: str, image: str, info: dict[str, Any]) -> _Engine:
    host = info.get("host", {})
    security, controllers = host.get("security", {}), host.get("cgroupControllers") or []
    return _Engine(
        runtime="podman",
        path=path,
        version=str(info.get("version", {}).get("Version", "")),
        image=image,
        rootless=bool(security.get("rootless")),
        nproc=_highest_nproc(),
        memory="memory" in controllers,
        pids="pids" in controllers,
        selinux=bool(security.get("selinuxEnabled")),
    )


def _of_docker(path: str, image: str, info: dict[str, Any], config: dict[str, Any]) -> _Engine:
    options = " ".join(info.get("SecurityOptions") or [])
    return _Engine(
        runtime="docker",
        path=path,
        version=str(info.get("ServerVersion", "")),
        image=image,
        rootless="name=rootless" in options,
        memory=bool(info.get("MemoryLimit")),
        pids=bool(info.get("PidsLimit")),
        selinux="name=selinux" in options,
        volumes="\n".join(sorted(config.get("Volumes") or ())),
        variables="\n".join(sorted(entry.partition("=")[0] for entry in config.get("Env") or ())),
    )


def _highest_nproc() -> int:
    try:
        import resource
    except ImportError:  # not on Windows, where the engine lives in a machine of its own
        return 0
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return _HIGHEST_NPROC if hard < 0 else min(hard, _HIGHEST_NPROC)


# ── the trial ────────────────────────────────────────────────────────────────


def _try_all(host: HostFacts, engine: _Engine, env: dict[str, str]) -> _Engine | Blocker:
    words = ""
    runc = shutil.which("runc", path=_PATH) if engine.runtime == "podman" else None
    for oci_runtime in ("", runc) if runc else ("",):
        variant = replace(engine, oci_runtime=oci_runtime)
        report, words = _try(host, variant, env)
        if not report:
            continue
        problem = problem_in(report, own_init=True)
        if problem:
            detail = f"A container started, but a check from inside shows that it does not isolate: {problem}."
            return Blocker(engine.runtime, "not_isolating", detail, "Report the output of `palyra doctor --json`.")
        said = dict(report)
        return replace(
            variant,
            memory=variant.memory and said.get("memory") == str(_LIMITS.memory_bytes),
            pids=variant.pids and said.get("pids") == str(_LIMITS.processes),
        )
    detail = f"A container could not be started: {words or 'the client said nothing'}."
    return Blocker(
        engine.runtime, "unknown", detail, f"Run `{engine.runtime} run --rm {engine.image} true` to see its message."
    )


def _try(host: HostFacts, engine: _Engine, env: dict[str, str]) -> tuple[list[tuple[str, str]], str]:
    """(the report from inside, or nothing; the last words of the client)"""
    with trial_place() as (workspace, secret):
        name = f"palyra-probe-{os.getpid()}-{os.urandom(4).hex()}"
        seen = replace(host, container=_facts(engine, env), home="", state_home="")
        plan = ContainerBackend(engine.runtime).plan(_job(workspace, host), seen)
        argv = ["sh", "-c", LIMITS_REPORT + REPORT, "probe", workspace, secret]
        try:
            with _data(plan) as files:
                _, said, words = _run([*_filled(plan, files, name), *argv], env, keep=files, say="\n")
        finally:
            _run([engine.path, "rm", "--force", "--volumes", name], env)
    return parse_report(said), words.strip().split("\n")[-1]


def _job(workspace: str, host: HostFacts) -> Job:
    env = (("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/home/agent"))
    return trial_job(workspace, host, program="sh", env=env, limits=_LIMITS)


@contextlib.contextmanager
def _data(plan: ProcessPlan) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        files = []
        for data in plan.data:
            fd = os.memfd_create("palyra-probe", os.MFD_CLOEXEC)
            stack.callback(os.close, fd)
            os.write(fd, data)
            files.append(fd)
        yield files


def _filled(plan: ProcessPlan, files: Sequence[int], name: str) -> list[str]:
    def fill(hole: Hole) -> str:
        if hole == NAME:
            return name
        return f"{LABEL}=probe" if hole == OWNER else f"{hole.before}/proc/self/fd/{files[hole.index]}"

    return [fill(word) if isinstance(word, Hole) else word for word in plan.launcher]


# ── small looks ──────────────────────────────────────────────────────────────


def _key(host: HostFacts, engine: _Engine, env: dict[str, str]) -> str:
    file = os.stat(engine.path)
    seen = replace(host, container=_facts(engine, env), home="", state_home="")
    plan = ContainerBackend(engine.runtime).plan(_job("/probe", host), seen)
    return digest(
        {
            "kernel": [host.kernel, _boot(), host.uid, host.gid],
            "client": [engine.path, str(file.st_dev), str(file.st_ino), file.st_size, str(file.st_mtime_ns)],
            "plan": [plan_digest(plan), digest(LIMITS_REPORT + REPORT)],
        }
    )


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _facts(engine: _Engine, env: dict[str, str]) -> ContainerFacts:
    values = {name: getattr(engine, name) for name in engine.__slots__}
    values |= {name: tuple(values[name].splitlines()) for name in ("volumes", "variables")}
    return ContainerFacts(**values, env=tuple(sorted(env.items())))


def _client_environment(home: str) -> dict[str, str]:
    """What a client needs to find its storage and its engine. An engine elsewhere would not see our workspaces."""
    env = {"PATH": _PATH, "HOME": home or "/"}
    for key in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        if os.environ.get(key, "").startswith("/"):
            env[key] = os.environ[key]
    for key in ("DOCKER_HOST", "CONTAINER_HOST"):
        if os.environ.get(key, "").startswith("unix:"):
            env[key] = os.environ[key]
    return env


def _run(argv: Sequence[str], env: dict[str, str], *, keep: Sequence[int] = (), say: str = "") -> tuple[int, str, str]:
    """(exit code, stdout, stderr)"""
    try:
        done = subprocess.run(
            argv, env=env, input=say, pass_fds=keep, capture_output=True, text=True, errors="replace",
            check=False, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return -1, "", str(error)
    return done.returncode, done.stdout, done.stderr
