"""`palyra journal tail | show | checkpoint`: read the tamper-evident journal.

Rules: the home is read as it lies there, also from read-only media and with a broken configuration; nothing is created.
Not here: the other commands of this noun (journal_*), which this one gathers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

import click
import orjson

from palyra.canon import MAX_INT
from palyra.cli.journal_export import export, prove
from palyra.cli.journal_home import Reading, entries_of, reading
from palyra.cli.journal_keep import redact, retain
from palyra.cli.journal_search import catch_up_quietly, find_page, make_question
from palyra.cli.journal_verify import verify
from palyra.cli.journal_witness import rotate_key, witness
from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say_error, say_failure
from palyra.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palyra.canon import Json
    from palyra.model.record import Entry


@click.group("journal", cls=NounGroup)
def command() -> None:
    """Read and verify the tamper-evident journal."""


command.add_command(export)
command.add_command(prove)
command.add_command(redact)
command.add_command(retain)
command.add_command(rotate_key)
command.add_command(verify)
command.add_command(witness)


@command.command(
    "tail",
    epilog="\b\nExamples:\n  palyra journal tail -n 5\n  palyra journal tail --status refused --since 2026-01-31\n"
    "  palyra journal tail --principal agent:demo --text process --before 100 --json",
)
@click.option(
    "-n", "count", type=click.IntRange(1, 1000), default=20, show_default=True, metavar="N", help="How many entries."
)
@click.option(
    "--before", type=click.IntRange(0, MAX_INT), default=None, metavar="INDEX", help="Only entries before this one."
)
@click.option("--since", metavar="TIME", help="Only since then: 2026-01-31, 2026-01-31T12:00, or 90m, 24h, 7d ago.")
@click.option("--until", metavar="TIME", help="Only entries before this time.")
@click.option("--principal", metavar="P", help="Only calls and acts of this principal.")
@click.option("--run", "run_id", metavar="ID", help="Only this run.")
@click.option("--tool", metavar="TOOL", help="Only this tool; for acts, only this act.")
@click.option("--status", metavar="STATUS", help="completed, refused, …")
@click.option("--reason", metavar="CODE", help="POLICY_DENIED, …")
@click.option("--kind", type=click.Choice(["intent", "result", "act"]), help="Only this kind of entry.")
@click.option("--text", metavar="WORDS", help="Words: names of tools, acts, principals, policies …, or parts of them.")
@with_settings
def tail(settings: Settings, count: int, before: int | None, **filters: str | None) -> int:
    """The newest matching entries, oldest of them first."""
    question = make_question(filters)
    with reading(settings) as journal:
        if question.asks:
            catch_up_quietly(settings, journal)
    with reading(settings) as journal:
        entries, following = find_page(journal, question, count=count, before=before)
        rows = [] if settings.json else _rows(journal, entries)
    if settings.json:
        from palyra.wiring.journal_desk import entry_json

        click.echo(orjson.dumps({"items": [entry_json(e) for e in entries], "next": following}))
    else:
        from palyra.cli.tables import say_table

        headings = ("ENTRY", "WHEN", "KIND", "CALLED", "TOOL", "STATUS", "WHO", "ID")
        say_table(settings, headings, rows, nothing="No entries.")
    return 0


@command.command("show", epilog="Example: palyra journal show 01J…")
@click.argument("id")
@with_settings
def show(settings: Settings, id: str) -> int:
    """A call: who, what, how it was decided and ended, its entries; or one entry by its index. --json has all of it."""
    from palyra.cli.call_text import call_lines
    from palyra.cli.say import say

    with reading(settings) as journal:
        shown = _found(journal, id)
    if shown is None:
        say_failure(
            "NOT_FOUND", f"The journal has no call or entry {id[:40]!r}.", "palyra journal tail lists the last ones."
        )
        return 1
    if settings.json:
        click.echo(orjson.dumps(shown))
    else:
        for line in call_lines(shown):
            say(line)
    return 0


def _found(journal: Reading, id: str) -> dict[str, Json] | None:
    from palyra.journal.store import checked_call
    from palyra.wiring.journal_desk import call_json, entry_json

    lookup = journal.lookup
    if id.isascii() and id.isdigit() and len(id) < 16:
        entry = lookup.entry(int(id))
        return None if entry is None else {"entries": [entry_json(entry)]}
    stored = checked_call(lookup, id, journal.home.keys)
    if stored is None:
        waiting = entries_of(journal, id)
        return {"call_id": id, "entries": [entry_json(entry) for entry in waiting]} if waiting else None
    return call_json(stored, lookup.by_call(id))


@command.command("checkpoint", epilog="Example: palyra journal checkpoint > head.txt")
@with_settings
def checkpoint(settings: Settings) -> int:
    """Print the newest signed head, and show it to every witness. Kept elsewhere, it detects truncation and forks."""
    with reading(settings) as journal:
        head = journal.lookup.checkpoint()
        witnessed = bool(journal.anchors()) and journal.home.is_writable
    if head is None:
        say_failure("NOT_FOUND", "The journal is empty.", "The first call starts it.")
        return 1
    if settings.json:
        click.echo(orjson.dumps({"size": head.size, "root": head.root.hex(), "checkpoint": head.note}))
    else:
        click.echo(head.note, nl=False)
    return _show_witnesses(settings) if witnessed else 0


def _show_witnesses(settings: Settings) -> int:
    from palyra.cli.journal_witness import now_unix_ms, open_writer
    from palyra.state.witness import push_heads

    writer = open_writer(settings)
    try:
        refused = [shown for shown in push_heads(writer, at_unix_ms=now_unix_ms()) if shown.refusal is not None]
    finally:
        writer.close()
    for shown in refused:
        say_error(f"{shown.name} did not accept the head: {shown.refusal}")
    return 1 if refused else 0


def _rows(journal: Reading, entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    called = cache(lambda call_id: _called(journal, call_id))
    return [_row(entry, called) for entry in entries]


def _called(journal: Reading, call_id: str) -> str:
    """What a call named; empty where it is no longer kept or is not what its entries commit to."""
    from palyra.cli.call_text import called

    try:
        stored = journal.lookup.call(call_id)
        return called(orjson.loads(stored.details)) if stored is not None and stored.details else ""
    except (StateError, orjson.JSONDecodeError):
        return ""


def _row(entry: Entry, called: Callable[[str], str]) -> tuple[str, ...]:
    """One entry for people; `called` says what a call named."""
    from palyra.journal.entry import parse_entry

    try:
        view = parse_entry(entry.body)
    except ValueError as error:
        return str(entry.index), "", "", f"cannot be read: {error}", "", "", "", ""
    try:
        at = datetime.fromtimestamp(view.at_unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # the clock was far off, or somebody wrote that
        at = f"{view.at_unix_ms} ms"
    said = view.predicate
    words = (
        called(view.call_id) if view.call_id else "",
        said.get("tool") or said.get("act"),
        " ".join(str(said[name]) for name in ("status", "reason") if said.get(name)),
        said.get("principal") or said.get("actor"),
        view.call_id or view.subject,
    )
    return str(entry.index), at, view.kind.rsplit(":", 2)[-2], *(str(word or "") for word in words)
