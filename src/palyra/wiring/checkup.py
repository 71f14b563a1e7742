"""Is this machine fit: what works, what is in the way, and the exact fix. For every door that shows it.

Rules: the host is judged from what the probe saw; a backend that cannot be used is only advice where another of its
tier can. Nothing is changed. Not here: looking (sandbox/probe), attacking the sandbox (cli/prove).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from palyra.canon import Json
from palyra.errors import ConfigError
from palyra.model.call import Tier
from palyra.model.host import Blocker, HostFacts
from palyra.model.net import NO_NETWORK
from palyra.sandbox.backend import Backend
from palyra.sandbox.planner import BACKENDS, needs_for
from palyra.sandbox.probe_code import REFUSED, REMEDY, may_make_code
from palyra.state.connection import is_writable
from palyra.state.trouble import WRITABLE
from palyra.values import dataclass
from palyra.wiring.daemon_note import decides_by_older

if TYPE_CHECKING:
    from palyra.engine.ports import Policies
    from palyra.policy.bundle import PolicyBundle
    from palyra.wiring.embedded import Installation

OK, ADVICE, BROKEN = "ok", "advice", "broken"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str
    detail: str
    fix: str | None = None

    def as_json(self) -> dict[str, Json]:
        return {"check": self.name, "status": self.status, "detail": self.detail, "fix": self.fix}


def host_checks(host: HostFacts) -> list[Check]:
    checks = [Check("host", OK, f"{host.platform.value} {host.kernel}, {host.machine}, uid {host.uid}")]
    if host.uid == 0:
        checks.append(
            Check(
                "user",
                ADVICE,
                "Palyra runs as root: programs in workspaces that belong to root run as uid 0 on the host in tier C, "
                "behind its other walls, and as nobody in tier B.",
                "Run it as a plain user, or give the workspace to one: sandboxes then start as that user.",
            )
        )
    return checks


def tier_checks(host: HostFacts) -> list[Check]:
    """Tier C must work somehow; a backend that cannot be used is only advice where another can."""
    checks: list[Check] = []
    needs, _ = needs_for(Tier.C, NO_NETWORK)
    works = any(b.tier is Tier.C and needs <= b.guarantees(host) for b in BACKENDS)
    for backend in BACKENDS:
        given = backend.guarantees(host)
        if given:
            checks.append(Check(f"tier {backend.tier.value} {backend.name}", OK, ", ".join(sorted(given))))
        for blocker in host.blockers:
            if blocker.backend == backend.name:
                worst = ADVICE if works or backend.tier is not Tier.C else BROKEN
                checks.append(Check(f"tier {backend.tier.value} {backend.name}", worst, blocker.detail, blocker.fix))
    if not works and all(c.status != BROKEN for c in checks):
        checks.append(Check("tier C", BROKEN, "No tier C backend works on this host.", "Install bubblewrap."))
    checks += _container_checks(host)
    if not may_make_code():
        checks.append(Check("tier A wasmtime", ADVICE, REFUSED, REMEDY))
    return checks


def _container_checks(host: HostFacts) -> list[Check]:
    """Where a container is what calls of tier C get: what it does not do."""
    if host.container is None or host.bubblewrap is not None or host.seatbelt is not None:
        return []
    lacks = "no file tools, fetching, guests, building of skills, background processes or single hosts"
    left_out = next((b.fix for b in host.blockers if b.backend == "bubblewrap"), None)
    detail = f"Tier C is a {host.container.runtime} container: {lacks}; no path of a workspace is closed in it."
    return [Check("tier C in containers", ADVICE, detail, left_out)]


def state_checks(installation: Installation) -> list[Check]:
    """`PalyraError` for what cannot be used at all."""
    source = installation.config_file or "the built-in default"
    bundle = installation.policies.current()
    head = installation.journal.checkpoint()
    return [
        Check("config", OK, f"{source}, posture {installation.config.posture}"),
        *_root_checks(installation),
        _policy_check(bundle),
        *_candidate_checks(installation.ports.candidate),
        _journal_check(installation.home.root, head.size if head else 0),
        Check("key", OK, installation.writer.home.verifier.vkey),
    ]


def _root_checks(installation: Installation) -> list[Check]:
    if installation.ports.host.uid != 0 or not installation.config.tool_call.process_runner.allow_root_tier_b:
        return []
    return [
        Check(
            "tier B as root",
            ADVICE,
            "allow_root_tier_b: programs of tier B run as uid 0 in workspaces of root's, and own the system's files.",
            "Take it out of [tool_call.process_runner]; they run as nobody then.",
        )
    ]


def _policy_check(bundle: PolicyBundle) -> Check:
    detail = f"bundle {bundle.name}, {len(bundle.index)} policies, {bundle.digest[:16]}"
    if not bundle.stale:
        return Check("policy", OK, detail)
    fault = f"The policy files need repair: {bundle.stale} The last that could be used stay in force: {detail}."
    return Check("policy", BROKEN, fault, "Mend the file; palyra policy check tests it.")


def _journal_check(home: Path, entries: int) -> Check:
    """Reading works on a disk that is mounted read-only, and every call is refused there."""
    database = home / "state" / "palyra.db"
    if database.exists() and not is_writable(database):
        return Check("journal", BROKEN, f"{home} cannot be written, so that every call is refused.", WRITABLE)
    return Check("journal", OK, f"{home}, {entries} entries")


def _candidate_checks(candidate: Policies | None) -> list[Check]:
    """In shadow mode: one that cannot be used is recorded with every call, where few people look."""
    if candidate is None:
        return []
    try:
        bundle = candidate.current()
    except ConfigError as error:
        return [Check("candidate", ADVICE, f"Shadow mode compares with nothing: {error.detail}", error.hint)]
    return [Check("candidate", OK, f"shadow mode, {len(bundle.index)} policies, {bundle.digest[:16]}")]


def daemon_checks(home: Path) -> list[Check]:
    if not decides_by_older(home):
        return []
    return [
        Check(
            "daemon",
            ADVICE,
            "The configuration changed since this home's daemon was started; the daemon still uses the old one.",
            "Restart it: its callers still get what was removed from the configuration.",
        )
    ]


_ELSEWHERE = {"seatbelt": "macOS", "jobobject": "Windows"}
_IMAGE = "container_image in [tool_call.process_runner] names no image"


def _blockers(backend: Backend, host: HostFacts) -> list[Blocker]:
    """What is in the way, also where the probe had nothing to look at: a backend that gives nothing says why."""
    found = [blocker for blocker in host.blockers if blocker.backend == backend.name]
    if found or backend.guarantees(host):
        return found
    name = backend.name
    if name in _ELSEWHERE:
        detail, fix = f"It works only on {_ELSEWHERE[name]}.", "Use another backend."
        return [Blocker(name, "platform", detail, fix)]
    if name in ("podman", "docker"):
        return [Blocker(name, "image", f"It is not used: {_IMAGE}.", "Set container_image, then run palyra doctor.")]
    return [Blocker(name, "missing", "It was not found.", "palyra doctor says more.")]


def backend_json(backend: Backend, host: HostFacts) -> dict[str, Json]:
    blockers = _blockers(backend, host)
    return {
        "backend": backend.name,
        "tier": backend.tier.value,
        "executor": backend.executor,
        "guarantees": sorted(g.value for g in backend.guarantees(host)),
        "blockers": [{"code": b.code, "detail": b.detail, "fix": b.fix} for b in blockers],
    }


def backends_json(host: HostFacts) -> list[dict[str, Json]]:
    return [backend_json(backend, host) for backend in BACKENDS]
