"""`palyra journal verify`: the whole journal against its own signatures, its witnesses, and what was kept elsewhere.

Rules: it reads as the other commands do, and writes only to close what a crash left open in a journal it found sound
otherwise. Not here: the audit itself (journal/audit), decisions made again (journal_replay).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.journal_advice import advice_on
from palyra.cli.journal_home import Reading, cluster_database, readable, reading
from palyra.cli.journal_replay import check_again
from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_error
from palyra.errors import StateError
from palyra.journal.lookup import TREE_SIZE

if TYPE_CHECKING:
    from palyra.cli.journal_home import Reading
    from palyra.config.cluster import ClusterConfig
    from palyra.journal.audit import Report
    from palyra.journal.keys import Keys
    from palyra.signing import NoteVerifier
    from palyra.state.anchors import Anchor
    from palyra.wiring.embedded import Installation

NOBODYS_KEY = (
    "palyra: the key file could not be used; verifying with the key named in the database.\n"
    "hint: Whoever rewrote the database named that one: give the key you hold with --key VKEY."
)


@click.command("verify", epilog="\b\nExamples:\n  palyra journal verify\n  palyra journal verify --known outcome.json")
@click.option("--replay", is_flag=True, help="Also replay every recorded decision.")
@click.option(
    "--every-signature",
    is_flag=True,
    help="Check every checkpoint's signature, not only the newest, and the database's indexes.",
)
@click.option(
    "--known",
    "known",
    multiple=True,
    metavar="FILE",
    help="An outcome or checkpoint saved earlier; detects truncation.",
)
@click.option("--key", "vkey", metavar="VKEY", help="The verifier key you hold; it or a successor of it must sign.")
@with_settings
def verify(settings: Settings, replay: bool, every_signature: bool, known: tuple[str, ...], vkey: str | None) -> int:
    """Check every entry, the tree, the checkpoints, and that open calls belong to a living process. Exit 1 if not."""
    from palyra.journal.audit import Finding
    from palyra.state.anchors import with_flooded

    notes = [checkpoint_of(Path(name)) for name in known]
    held = _held(vkey)
    with reading(settings) as journal:
        (anchors, problem), keys, holds_key = _witnesses(journal), journal.home.keys, journal.home.holds_key
        size = _size(journal)
    notes += [head.note for anchor in anchors for head in anchor.heads]
    if (server := cluster_database(settings)) is not None:
        report = _audit_server(*server, notes, every_signature=every_signature)
    else:
        report = _audit_home(settings, notes, size, every_signature=every_signature)
        if held is None and not holds_key:
            click.echo(NOBODYS_KEY, err=True)
    report = with_flooded(report, anchors)
    if problem and report.sound:
        report = replace(report, findings=(Finding("UNREADABLE", None, problem),))
    return _tell(settings, _spoken_for(report, keys, held), anchors, replay=replay)


def _size(journal: Reading) -> int | None:
    """For the bar alone: what cannot be read is the audit's to tell of."""
    from palyra.errors import StateError

    with suppress(StateError):
        size: int = journal.query(TREE_SIZE, ())[0][0]
        return size
    return None


def _held(vkey: str | None) -> NoteVerifier | None:
    from palyra.errors import TrustError
    from palyra.signing import parse_vkey

    try:
        return None if vkey is None else parse_vkey(vkey)
    except TrustError as error:
        raise click.UsageError(f"--key: {error} palyra doctor prints it as NAME+HASH+KEY, in one line.") from error


def _spoken_for(report: Report, keys: Keys, held: NoteVerifier | None) -> Report:
    """By the key that is held, or by those that it handed over to: the audit opens each such head with both keys."""
    from palyra.journal.audit import Finding

    if held is None or held in (keys.newest, *(handover.old for handover in keys.handovers)):
        return report
    detail = f"The key given never signed for this journal; its newest key is {keys.newest.vkey}."
    return replace(report, findings=(Finding("KEY", None, detail), *report.findings))


def _witnesses(journal: Reading) -> tuple[tuple[Anchor, ...], str]:
    """What they hold; and why nobody can tell who they are, if so: that is for the audit to find, and ends none."""
    try:
        return journal.anchors(), ""
    except StateError as error:
        return (), error.detail


def _audit_server(root: Path, cluster: ClusterConfig, notes: list[str], *, every_signature: bool) -> Report:
    from palyra.cli.progress import bar
    from palyra.cluster.verifying import verify_cluster
    from palyra.wiring.owners import ProcessOwners

    with bar(None, "entries") as move:
        return verify_cluster(
            cluster.database,
            root,
            is_alive=ProcessOwners().is_alive,
            known=notes,
            every_signature=every_signature,
            progress=move,
            segments=cluster.segments,
        )


def _audit_home(settings: Settings, notes: list[str], size: int | None, *, every_signature: bool) -> Report:
    from palyra.cli.progress import bar
    from palyra.journal.store import verify_journal
    from palyra.wiring.owners import ProcessOwners

    with readable(settings) as home:
        is_alive = ProcessOwners(home.lock).is_alive
        with bar(size, "entries") as move:
            report = verify_journal(
                home, is_alive=is_alive, known=notes, every_signature=every_signature, progress=move
            )
        # Only what is sound is written to, and only where something was left open.
        if report.findings and {f.code for f in report.findings} == {"DANGLING"} and home.is_writable:
            _close_left_open(settings)
            report = verify_journal(home, is_alive=is_alive, known=notes, every_signature=every_signature)
    return report


def _close_left_open(settings: Settings) -> None:
    """What a crash left open is closed as interrupted. If that fails, the journal is verified as it is."""
    from palyra.cli.session import with_installation

    async def opened(installation: Installation) -> int:
        return 0

    try:
        with_installation(settings, opened)
    except Exception as error:  # noqa: BLE001  # whatever hinders it must not hinder the audit
        say_error(f"calls left open could not be closed: {error}")


def _tell(settings: Settings, report: Report, anchors: Sequence[Anchor], *, replay: bool) -> int:
    """Decisions are made again only from a journal that is sound; what was found about it is told in either case."""
    again = check_again(settings) if replay and report.sound else None
    code = 0 if report.sound and (again is None or again.holds) else 1
    if settings.json:
        from palyra.wiring.journal_desk import report_json

        more = again.as_json() if again is not None else {}
        hint = advice_on(finding.code for finding in report.findings)
        click.echo(orjson.dumps({**report_json(report, anchors), **more, "ok": code == 0, "hint": hint}))
        return code
    _tell_people(report, anchors)
    if again is not None:
        again.tell_people()
    return code


def _tell_people(report: Report, anchors: Sequence[Anchor]) -> None:
    from palyra.cli.render import visible_line
    from palyra.cli.say import say

    for finding in report.findings:
        say(visible_line(f"{finding.code}: {finding.detail}"))
    for anchor in anchors:
        seen = [] if anchor.head is None else [f"has seen {anchor.head.size} entries"]
        say(visible_line(f"witness {anchor.name}: {'; '.join([*seen, *filter(None, [anchor.problem])])}"))
    if report.sound:
        tail = report.entries - report.anchored
        click.echo(f"The journal verifies: {report.entries} entries, {report.checkpoints} checkpoints.")
        click.echo(
            f"Outside evidence anchors the first {report.anchored} entries; the last {tail} rest on this key alone."
            if report.anchored
            else "To notice a later cut at its end, keep its head elsewhere (palyra journal checkpoint > head.txt) "
            "and give it: palyra journal verify --known head.txt"
        )
    else:
        count = len(report.findings)
        click.echo(f"The journal does NOT verify: {count} finding{'s' if count > 1 else ''}, {report.entries} entries.")
        click.echo(f"hint: {advice_on(finding.code for finding in report.findings)}", err=True)


def checkpoint_of(path: Path) -> str:
    """A checkpoint as text, or the one in an outcome's receipt. An agent may have written that: it is read as
    `palyra verify` reads one."""
    from palyra.cli.verify_json import MAX_FILE_BYTES, Malformed, parse_json

    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise click.UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes.")
        if not data.lstrip().startswith(b"{"):
            return data.decode("utf-8")
        value = parse_json(data)
    except OSError as error:
        raise click.UsageError(f"{path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise click.UsageError(f"{path} is not text.") from error
    except Malformed as error:
        raise click.UsageError(f"{path}: neither a checkpoint nor an outcome with a receipt. {error}") from error
    outcome = value if isinstance(value, dict) else {}
    receipt = outcome.get("receipt")
    found = outcome.get("checkpoint") or (receipt.get("checkpoint") if isinstance(receipt, dict) else None)
    if not isinstance(found, str):
        raise click.UsageError(f"{path}: neither a checkpoint nor an outcome with a receipt")
    return found
