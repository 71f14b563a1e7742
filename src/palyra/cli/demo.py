"""`palyra demo`: half a minute that shows what the product is. Real calls, real sandbox, real journal.

Everything happens in a temporary home and workspace, so it leaves nothing behind and needs no answers. Each step says
what was asked, what came of it and why; the demo fails (exit 1) when a step does not end as it should.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.demo_people import ask_a_person, run_a_skill, write_policy
from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say
from palyra.errors import Reason
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.api import Palyra
    from palyra.model.call import OperatorGrant
    from palyra.model.outcome import Outcome

FAKE_TOKEN = "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345"


def _as_typed() -> str:
    """`palyra` where a shell finds it; else the way to it by which this one was started, as `make demo` does."""
    started = Path(sys.argv[0])
    return "palyra" if started.name != "palyra" or shutil.which("palyra") else str(started)


@dataclass(frozen=True, slots=True)
class Step:
    title: str
    argv: tuple[str, ...]
    status: str
    reason: str | None = None
    grant: OperatorGrant | None = None
    limits_ms: int | None = None


@click.command("demo", epilog="Example: palyra demo")
@with_settings
def command(settings: Settings) -> int:
    """See what Palyra does, in half a minute: allowed, refused, asked, confined, redacted, attested, journaled."""
    from palyra.api import Palyra

    tell = _Teller(quiet=settings.json)
    with _places() as (home, workspace), _listener() as port, Palyra.open(home) as palyra:
        tell(f"\nA workspace with two files, and a fresh installation in {home}.\n")
        kept: list[Outcome] = []
        told: list[dict[str, object]] = []
        for step in _steps(port):
            told.append(_play(palyra, workspace, step, kept, tell))
            if told[-1]["reason"] == Reason.UNENFORCEABLE:
                return _stop(settings, told, tell)
        for asked, acts in (
            (("pending_approval", "completed"), ask_a_person(palyra, workspace, tell)),
            (("completed",), run_a_skill(palyra, Path(workspace).parent, tell)),
        ):
            kept += acts
            told += [_fact(outcome, status) for outcome, status in zip(acts, asked, strict=False)]
        proven = _proofs(palyra, kept, tell)
    good = proven and all(step["as_expected"] for step in told)
    next_steps = f"Next: {_as_typed()} run -- ls -la, {_as_typed()} doctor, README.md."
    tell(f"\nThat was Palyra. {next_steps}" if good else "\nThe demo failed.")
    if settings.json:
        click.echo(orjson.dumps({"ok": good, "steps": told, "proofs_hold": proven}))
    return 0 if good else 1


def _stop(settings: Settings, told: list[dict[str, object]], tell: _Teller) -> int:
    """Without a sandbox every step would be refused for the same reason."""
    tell(f"\nThe demo stopped: it needs a sandbox. Do what the hint says, then repeat: {_as_typed()} demo")
    if settings.json:
        click.echo(orjson.dumps({"ok": False, "steps": told, "proofs_hold": None}))
    return 1


@dataclass(frozen=True, slots=True)
class _Teller:
    """Speaks to people; with --json nobody is told anything before the one value at the end."""

    quiet: bool

    def __call__(self, text: str) -> None:
        if not self.quiet:
            say(text)


def _steps(port: int) -> tuple[Step, ...]:
    from palyra.api import grant

    knock = f'import socket; socket.create_connection(("127.0.0.1", {port}), 2)'
    return (
        Step("A program on the allowlist runs in tier C", ("ls", "-l"), "completed"),
        Step("A path outside the workspace is refused", ("cat", "/etc/shadow"), "refused", "OUTSIDE_WORKSPACE"),
        Step(
            "An interpreter is refused, and the hint says what to change",
            ("bash", "-c", "id"),
            "refused",
            "INTERPRETER_DENIED",
        ),
        Step("A secret in the output is redacted", ("cat", "settings.ini"), "completed"),
        Step(
            "Python, allowed by the operator, finds no network in its sandbox",
            ("python3", "-c", knock),
            "completed",
            grant=grant(interpreters=True),
        ),
        Step(
            "A program that does not finish is killed, with everything it started",
            ("sleep", "60"),
            "timeout",
            "TIMEOUT",
            limits_ms=500,
        ),
    )


def _play(palyra: Palyra, workspace: str, step: Step, kept: list[Outcome], tell: _Teller) -> dict[str, object]:
    run = palyra.run("user:demo", workspace, grant=step.grant)
    arguments: dict[str, object] = {"command": step.argv[0], "args": list(step.argv[1:])}
    if step.limits_ms is not None:
        arguments["timeout_ms"] = step.limits_ms
    tell(f"\n• {step.title}\n    $ {shlex.join(step.argv)[:100]}")
    outcome = run.call("palyra.process.run", arguments)
    kept.append(outcome)
    for stream in ("stdout", "stderr"):
        for line in str(outcome.output.get(stream, "")).splitlines()[-4:]:
            tell(f"    | {line[:110]}")
    exit_code = outcome.output.get("exit_code")
    verdict = outcome.status.value + (f", exit code {exit_code}" if exit_code else "")
    verdict += f", {outcome.reason}: {outcome.message}" if outcome.reason else ""
    tell(f"    → {verdict}")
    if outcome.hint:
        tell(f"      hint: {outcome.hint}")
    as_told = outcome.status == step.status and outcome.reason == step.reason
    return {
        "title": step.title,
        "argv": list(step.argv),
        "status": outcome.status.value,
        "reason": outcome.reason.value if outcome.reason else None,
        "message": outcome.message,
        "hint": outcome.hint,
        "as_expected": as_told and not _leaks(outcome) and not (step.grant and outcome.success),
    }


def _fact(outcome: Outcome, status: str) -> dict[str, object]:
    return {
        "title": f"{outcome.tool}: {status}",
        "argv": [],
        "status": outcome.status.value,
        "reason": outcome.reason.value if outcome.reason else None,
        "message": outcome.message,
        "hint": outcome.hint,
        "as_expected": outcome.status == status,
    }


def _leaks(outcome: Outcome) -> bool:
    return FAKE_TOKEN in str(outcome.output)


def _proofs(palyra: Palyra, kept: list[Outcome], tell: _Teller) -> bool:
    """Every outcome verifies against the key, and the journal as a whole."""
    from palyra.attest import check_outcome
    from palyra.journal.store import verify_journal
    from palyra.protocol.wire import outcome_json

    key = palyra.installation.ports.key.public
    sound = all(not check_outcome(outcome_json(outcome), key) for outcome in kept)
    verdict = "all verify" if sound else "BROKEN"
    tell(f"\n• Every one of these {len(kept)} outcomes carries a signed attestation: {verdict}")
    installation = palyra.installation
    report = verify_journal(installation.writer.home, is_alive=installation.ports.owners.is_alive)
    tell(f"• The journal of {report.entries} entries {'verifies' if report.sound else 'DOES NOT VERIFY'}.")
    return sound and report.sound


@contextmanager
def _places() -> Iterator[tuple[str, str]]:
    with tempfile.TemporaryDirectory(prefix="palyra-demo-") as base:
        workspace = Path(base) / "workspace"
        workspace.mkdir()
        (workspace / "notes.txt").write_text("buy milk\n", encoding="utf-8")
        (workspace / "settings.ini").write_text(f"name = demo\ntoken = {FAKE_TOKEN}\n", encoding="utf-8")
        write_policy(Path(base) / "home")
        yield str(Path(base) / "home"), str(workspace)


@contextmanager
def _listener() -> Iterator[int]:
    """Something to reach on this machine, so that "no network" is shown against a door that is open."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]
