"""`palyra journal tail | show | verify | checkpoint`: read and verify the tamper-evident journal."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings

if TYPE_CHECKING:
    from palyra.canon import Json
    from palyra.model.record import Entry
    from palyra.wiring.embedded import Installation


@click.group("journal")
def command() -> None:
    """Read and verify the tamper-evident journal."""


@command.command("tail", epilog="\b\nExamples:\n  palyra journal tail -n 5\n  palyra journal tail --before 100 --json")
@click.option("-n", "count", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many entries.")
@click.option("--before", type=click.IntRange(0), default=None, metavar="INDEX", help="Those before this entry.")
@with_settings
def tail(settings: Settings, count: int, before: int | None) -> int:
    """The newest entries, oldest of them first."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        entries = installation.journal.tail(count, before=before)
        if settings.json:
            following = entries[0].index if entries and entries[0].index > 0 else None
            click.echo(orjson.dumps({"items": [_entry_json(e) for e in entries], "next": following}))
        else:
            for entry in entries:
                click.echo(_line(entry))
        return 0

    return with_installation(settings, work)


@command.command("show", epilog="Example: palyra journal show 01J…")
@click.argument("id")
@with_settings
def show(settings: Settings, id: str) -> int:
    """A call's entries, outcome and kept details, or one entry by its index."""
    from palyra.cli.render import visible
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        shown = await _found(installation, id)
        if shown is None:
            click.echo(f"palyra: the journal has no call or entry {id[:40]!r}.", err=True)
            return 1
        if settings.json:
            click.echo(orjson.dumps(shown))
        else:
            click.echo(visible(orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()))
        return 0

    return with_installation(settings, work)


async def _found(installation: Installation, id: str) -> dict[str, Json] | None:
    if id.isascii() and id.isdigit() and len(id) < 16:
        entry = installation.journal.entry(int(id))
        return None if entry is None else {"entries": [_entry_json(entry)]}
    stored = await installation.journal.find_call(id)
    if stored is None:
        return None
    return {
        "call_id": stored.call_id,
        "run_id": stored.run_id,
        "principal": stored.principal,
        "status": stored.status,
        "entries": [_entry_json(entry) for entry in installation.journal.by_call(id)],
        "outcome": orjson.loads(stored.outcome) if stored.outcome else None,
        "details": orjson.loads(stored.details) if stored.details else None,
        "receipt": stored.recorded.receipt.as_json() if stored.recorded else None,
    }


@command.command(
    "verify", epilog="\b\nExamples:\n  palyra journal verify\n  palyra journal verify --known outcome.json"
)
@click.option("--every-signature", is_flag=True, help="Check every checkpoint's signature, not only the newest.")
@click.option(
    "--known", "known", multiple=True, metavar="FILE", help="An outcome or checkpoint got earlier: finds truncation."
)
@with_settings
def verify(settings: Settings, every_signature: bool, known: tuple[str, ...]) -> int:
    """Every entry, the tree, the checkpoints, every call closed or owned by a living process. Exit 1 if not."""
    from palyra.cli.session import with_installation
    from palyra.journal.store import verify_journal

    notes = [_checkpoint_of(Path(name)) for name in known]

    async def work(installation: Installation) -> int:
        report = verify_journal(
            installation.writer.home,
            is_alive=installation.ports.owners.is_alive,
            known=notes,
            every_signature=every_signature,
        )
        if settings.json:
            findings = [{"code": f.code, "index": f.index, "detail": f.detail} for f in report.findings]
            click.echo(
                orjson.dumps(
                    {
                        "ok": report.sound,
                        "entries": report.entries,
                        "checkpoints": report.checkpoints,
                        "open_calls": report.open_calls,
                        "anchored": report.anchored,
                        "findings": findings,
                    }
                )
            )
            return 0 if report.sound else 1
        for finding in report.findings:
            click.echo(f"{finding.code}: {finding.detail}")
        if report.sound:
            tail = report.entries - report.anchored
            click.echo(f"The journal verifies: {report.entries} entries, {report.checkpoints} checkpoints.")
            click.echo(
                f"Anchored to outside evidence up to entry {report.anchored}; the last {tail} rest on this key alone."
                if report.anchored
                else "Nothing from outside was given (--known FILE), so a truncated tail could not be seen."
            )
        return 0 if report.sound else 1

    return with_installation(settings, work)


@command.command("checkpoint", epilog="Example: palyra journal checkpoint > head.txt")
@with_settings
def checkpoint(settings: Settings) -> int:
    """The newest signed head of the journal. Keep it elsewhere: it finds truncation and rewriting."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        head = installation.journal.checkpoint()
        if head is None:
            click.echo("palyra: the journal is empty.", err=True)
            return 1
        if settings.json:
            click.echo(orjson.dumps({"size": head.size, "root": head.root.hex(), "checkpoint": head.note}))
        else:
            click.echo(head.note, nl=False)
        return 0

    return with_installation(settings, work)


def _checkpoint_of(path: Path) -> str:
    """A checkpoint as text, or the one in an outcome's receipt."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"{path}: {error}") from error
    if not text.lstrip().startswith("{"):
        return text
    try:
        value = orjson.loads(text)
        found = value.get("checkpoint") or (value.get("receipt") or {}).get("checkpoint")
    except (orjson.JSONDecodeError, AttributeError) as error:
        raise click.UsageError(f"{path}: neither a checkpoint nor an outcome with a receipt") from error
    if not isinstance(found, str):
        raise click.UsageError(f"{path}: neither a checkpoint nor an outcome with a receipt")
    return found


def _entry_json(entry: Entry) -> dict[str, Json]:
    try:
        body = orjson.loads(entry.body)
    except orjson.JSONDecodeError:
        body = None
    return {"index": entry.index, "leaf_hash": entry.leaf_hash.hex(), "entry": body}


def _line(entry: Entry) -> str:
    """One entry for people: index, time, kind, tool, status, reason, principal."""
    from palyra.cli.render import visible
    from palyra.journal.chain import parse_entry

    try:
        view = parse_entry(entry.body)
    except ValueError as error:
        return f"{entry.index:>8}  cannot be read: {error}"
    at = datetime.fromtimestamp(view.at_unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    kind = view.kind.rsplit(":", 2)[-2]
    said = view.predicate
    words = (
        said.get("tool") or said.get("act"),
        said.get("status"),
        said.get("reason"),
        said.get("principal"),
        view.call_id,
    )
    return visible(f"{entry.index:>8}  {at}  {kind:6}  " + "  ".join(str(word) for word in words if word))
