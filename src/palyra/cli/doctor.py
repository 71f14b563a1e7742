"""`palyra doctor`: is this machine fit? Names what is in the way, and the exact fix.

Exit 0 when a tier C backend works (advice alone is 0), 1 when none does or the state cannot be used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say

if TYPE_CHECKING:
    from palyra.model.host import HostFacts
    from palyra.wiring.checkup import Check


@click.command("doctor", epilog="\b\nExamples:\n  palyra doctor\n  palyra doctor --prove\n  palyra doctor --json")
@click.option("--prove", is_flag=True, help="Run the escape attempts in the exact sandbox profile; sign the result.")
@with_settings
def command(settings: Settings, prove: bool) -> int:
    """Check this machine: what works, what is missing and how to fix it. A real sandbox is started to find out."""
    from palyra.wiring.checkup import BROKEN, host_checks, tier_checks

    host, problems = _look(settings)
    checks = [*host_checks(host), *tier_checks(host), *(problems or _state_checks(settings))]
    if prove and all(check.status != BROKEN for check in checks):
        checks += _proof_checks(settings)
    healthy = all(check.status != BROKEN for check in checks)
    if settings.json:
        click.echo(orjson.dumps({"ok": healthy, "items": [check.as_json() for check in checks], "next": None}))
    else:
        for check in checks:
            say(f"{check.status:>6}  {check.name}: {check.detail}")
            if check.fix:
                say(f"        fix: {check.fix}")
    return 0 if healthy else 1


def _look(settings: Settings) -> tuple[HostFacts, list[Check]]:
    """The host as the configuration has it, or as the default has it where that cannot be read."""
    from palyra.config.load import HomeError, find_home, load_config
    from palyra.config.schema import Config
    from palyra.errors import ConfigError
    from palyra.wiring.checkup import BROKEN, Check
    from palyra.wiring.host import look_at_host

    home, problems = find_home(settings.home), list[Check]()
    try:
        config, _ = load_config(home, settings.config)
    except HomeError:
        raise
    except ConfigError as error:
        config, problems = Config(), [Check("config", BROKEN, error.detail, error.hint)]
    return look_at_host(home, config, owns_process=True, fresh=True), problems


def _proof_checks(settings: Settings) -> list[Check]:
    """One row an attempt; attestations then carry the proof's id."""
    from palyra.cli.prove import prove
    from palyra.cli.session import with_installation
    from palyra.errors import Unenforceable
    from palyra.sandbox.planner import check_own_programs
    from palyra.sandbox.proof import HELD, guarantee_of
    from palyra.wiring.checkup import BROKEN, OK, Check
    from palyra.wiring.embedded import Installation

    found: list[Check] = []

    async def work(installation: Installation) -> int:
        try:
            check_own_programs(installation.host)
        except Unenforceable as error:
            found.append(Check("proof", BROKEN, f"The attempts cannot be made: {error.detail}", error.hint))
            return 0
        proof = await prove(installation)
        for name, result in proof.results.items():
            status = OK if result == HELD else BROKEN
            found.append(Check(f"attempt to {name}", status, f"{result} ({guarantee_of(name).value})"))
        kept = "attestations refer to it" if proof.holds else "it failed and is not used"
        found.append(Check("proof", OK if proof.holds else BROKEN, f"{proof.proof_id}, {kept}"))
        return 0

    with_installation(settings, work)
    return found


def _state_checks(settings: Settings) -> list[Check]:
    from palyra.errors import PalyraError
    from palyra.wiring.checkup import BROKEN, Check, daemon_checks, state_checks
    from palyra.wiring.embedded import Installation

    found: list[Check] = []

    async def work(installation: Installation) -> int:
        found.extend([*state_checks(installation), *daemon_checks(installation.home.root)])
        return 0

    from palyra.cli.session import with_installation

    try:
        with_installation(settings, work)
    except PalyraError as error:
        found.append(Check("state", BROKEN, str(error), getattr(error, "hint", None)))
    return found
