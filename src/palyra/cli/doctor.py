"""`palyra doctor`: is this machine fit? Names what is in the way, and the exact fix.

Exit 0 when a tier C backend works (advice alone is 0), 1 when none does or the state cannot be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.model.host import HostFacts

OK, ADVICE, BROKEN = "ok", "advice", "broken"


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str
    detail: str
    fix: str | None = None


@click.command("doctor", epilog="\b\nExamples:\n  palyra doctor\n  palyra doctor --prove\n  palyra doctor --json")
@click.option("--prove", is_flag=True, help="Run the escape attempts in the exact sandbox profile; sign the result.")
@with_settings
def command(settings: Settings, prove: bool) -> int:
    """Check this machine: what works, what is missing and how to fix it. A real sandbox is started to know."""
    from palyra.cli.host import probe_host

    host = probe_host(settings, fresh=True)
    checks = [*_host_checks(host), *_tier_checks(host), *_state_checks(settings)]
    if prove and all(check.status != BROKEN for check in checks):
        checks += _proof_checks(settings)
    healthy = all(check.status != BROKEN for check in checks)
    if settings.json:
        items = [{"check": c.name, "status": c.status, "detail": c.detail, "fix": c.fix} for c in checks]
        click.echo(orjson.dumps({"ok": healthy, "items": items, "next": None}))
    else:
        for check in checks:
            say(f"{check.status:>6}  {check.name}: {check.detail}")
            if check.fix:
                say(f"        fix: {check.fix}")
    return 0 if healthy else 1


def _host_checks(host: HostFacts) -> list[Check]:
    checks = [Check("host", OK, f"{host.platform.value} {host.kernel}, {host.machine}, uid {host.uid}")]
    if host.uid == 0:
        checks.append(
            Check(
                "user",
                ADVICE,
                "Palyra runs as root: workspaces that belong to root are run with uid 0 outside.",
                "Run it as a plain user, or give the workspace to one: sandboxes then start as that user.",
            )
        )
    return checks


def _tier_checks(host: HostFacts) -> list[Check]:
    """Tier C must work somehow; a backend that cannot be used is only advice where another can."""
    from palyra.model.call import Tier
    from palyra.model.net import NO_NETWORK
    from palyra.sandbox.planner import BACKENDS, needs_for

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
    return checks


def _proof_checks(settings: Settings) -> list[Check]:
    """One row an attempt; attestations then carry the proof's id."""
    from palyra.cli.prove import prove
    from palyra.cli.session import with_installation
    from palyra.sandbox.proof import HELD, guarantee_of
    from palyra.wiring.embedded import Installation

    found: list[Check] = []

    async def work(installation: Installation) -> int:
        proof = await prove(installation)
        for name, result in proof.results.items():
            status = OK if result == HELD else BROKEN
            found.append(Check(f"attempt to {name}", status, f"{result} ({guarantee_of(name).value})"))
        kept = "attestations refer to it" if proof.holds else "it does not hold and is not used"
        found.append(Check("proof", OK if proof.holds else BROKEN, f"{proof.proof_id}, {kept}"))
        return 0

    with_installation(settings, work)
    return found


def _state_checks(settings: Settings) -> list[Check]:
    from palyra.errors import PalyraError
    from palyra.wiring.embedded import Installation

    found: list[Check] = []

    async def work(installation: Installation) -> int:
        source = installation.config_file or "the built-in default"
        found.append(Check("config", OK, f"{source}, posture {installation.config.posture}"))
        bundle = installation.policies.current()
        found.append(Check("policy", OK, f"bundle {bundle.name}, {len(bundle.index)} policies, {bundle.digest[:16]}"))
        head = installation.journal.checkpoint()
        found.append(Check("journal", OK, f"{installation.home.root}, {head.size if head else 0} entries"))
        found.append(Check("key", OK, installation.writer.home.verifier.vkey))
        return 0

    from palyra.cli.session import with_installation

    try:
        with_installation(settings, work)
    except PalyraError as error:
        found.append(Check("state", BROKEN, str(error), getattr(error, "hint", None)))
    return found
