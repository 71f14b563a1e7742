"""`palyra journal export | prove`: evidence for somebody else, who needs nothing but a public key to check it.

Rules: what is written is proven against the signed head before it is written; a file is made whole beside its place and
then renamed, so that nobody takes half an export for one; nothing in the home is changed. `--format dsse` signs, so it
needs the installation's key.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import Settings, with_settings

if TYPE_CHECKING:
    from palyra.cli.journal_home import Reading
    from palyra.journal.export import Shown
    from palyra.model.record import Checkpoint, Entry

SAME_FOLDER = "An existing folder is not overwritten; choose another one."


@click.command(
    "export",
    epilog="\b\nExamples:\n  palyra journal export --output journal.jsonl && palyra verify journal.jsonl\n"
    "  palyra journal export --call 01J… --output one-call.jsonl\n  palyra journal export --format tiles --output log/",
)
@click.option("--output", metavar="FILE", help="Where to write; for tiles a folder. Default: stdout.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "tiles", "dsse"]),
    default="jsonl",
    show_default=True,
    help="jsonl: lines with a signed head; tiles: a tlog-tiles folder; dsse: signed in-toto statements.",
)
@click.option("--call", "calls", multiple=True, metavar="ID", help="Only this call, proven to be in the journal.")
@with_settings
def export(settings: Settings, output: str | None, form: str, calls: tuple[str, ...]) -> int:
    """The journal for somebody else to check: palyra verify FILE --key VKEY, or standard tools."""
    from palyra.cli.journal_home import reading

    if form == "tiles" and (output is None or calls):
        raise click.UsageError("--format tiles writes the whole journal into a folder: --output DIR, without --call.")
    _check_place(output, is_folder=form == "tiles")
    with reading(settings) as journal:
        head = journal.head()
        if form == "tiles":
            count = _write_tiles(journal, head, Path(str(output)))
        elif form == "dsse":
            count = _write(output, _envelopes(settings, _chosen(journal, head, calls)))
        else:
            count = _write(output, _lines(journal, head, calls)) - 2
        vkey = journal.home.verifier.vkey
    if output is not None:
        _say(settings, count, output, vkey)
    return 0


@click.command("prove", epilog="Example: palyra journal prove 01J… --output proof.json && palyra verify proof.json")
@click.argument("call_id")
@click.option("--output", metavar="FILE", help="Where to write. Default: stdout.")
@with_settings
def prove(settings: Settings, call_id: str, output: str | None) -> int:
    """A call's entries with their inclusion and consistency proofs: one file, checked with a public key alone."""
    from palyra.cli.journal_home import reading
    from palyra.journal.proof import make_proof

    _check_place(output)
    with reading(settings) as journal:
        entries = _entries_of(journal, call_id)
        head = journal.head()
        proof = make_proof(call_id, entries, head, tree=journal.tree, keys=journal.home.keys)
        vkey = journal.home.verifier.vkey
    _write(output, [orjson.dumps(proof, option=orjson.OPT_APPEND_NEWLINE)])
    if output is not None:
        _say(settings, len(entries), output, vkey)
    return 0


def _say(settings: Settings, count: int, output: str, vkey: str) -> None:
    if settings.json:
        click.echo(orjson.dumps({"entries": count, "output": output, "key": vkey}))
    elif not settings.quiet:
        entries = "1 entry" if count == 1 else f"{count} entries"
        click.echo(f"{entries} in {output}\ncheck it with: palyra verify '{output}' --key '{vkey}'", err=True)


# ── what goes in ─────────────────────────────────────────────────────────────


def _entries_of(journal: Reading, call_id: str) -> tuple[Entry, ...]:
    from palyra.cli.journal_home import entries_of
    from palyra.errors import StateError
    from palyra.journal.entry import parse_entry
    from palyra.journal.tree import signed_body

    entries = entries_of(journal, call_id)
    if not entries or not all(entry.body for entry in entries):
        why = "The journal has no call" if not entries else "Retention removed the entries of call"
        raise StateError(f"{why} {call_id[:40]!r}.", "List calls with: palyra journal tail")
    if any(parse_entry(signed_body(entry)).call_id != call_id for entry in entries):  # rows can be edited
        raise StateError(f"The row of call {call_id[:40]!r} names entries of another.", "Run: palyra journal verify")
    # Who asks again while it waits for a person is told again: the newest answer is the call's.
    return entries if journal.lookup.by_call(call_id) else entries[-1:]


def _lines(journal: Reading, head: Checkpoint, calls: tuple[str, ...]) -> Iterator[bytes]:
    from palyra.errors import StateError
    from palyra.journal.export import MAX_SELECTED, export_lines, selection_lines

    links = journal.tree.links(journal.home.keys)
    if calls:
        shown = _shown(journal, head, calls)
        if len(shown) > MAX_SELECTED:  # nobody could check it
            raise StateError(f"A selection holds at most {MAX_SELECTED} entries.", "Export fewer calls at a time.")
        yield from selection_lines(shown, head, links=links)
        return
    first = journal.rows.first_body()
    bodies = (entry.body for entry in _signed(journal, head) if entry.index >= first)
    yield from export_lines(bodies, head, begin=journal.tree.frontier(first), links=links)


def _signed(journal: Reading, head: Checkpoint) -> Iterator[Entry]:
    """Every entry of the head's tree that has its body, each as it was signed."""
    from palyra.journal.tree import signed_body

    journal.tree.check(head)
    first = journal.rows.first_body()
    for entry in journal.rows.entries():
        if 0 <= entry.index < head.size and (entry.body or entry.index >= first):
            signed_body(entry)
            yield entry


def _shown(journal: Reading, head: Checkpoint, calls: tuple[str, ...]) -> list[Shown]:
    from palyra.journal.export import Shown
    from palyra.journal.tree import signed_body

    entries = {entry.index: entry for call_id in calls for entry in _entries_of(journal, call_id)}
    return [Shown(index, signed_body(entries[index]), journal.tree.inclusion(index, head)) for index in sorted(entries)]


def _chosen(journal: Reading, head: Checkpoint, calls: tuple[str, ...]) -> Iterable[bytes]:
    """To be signed: whoever can write the database must not have other bytes signed than the journal's own."""
    if calls:
        return [shown.body for shown in _shown(journal, head, calls)]
    return (entry.body for entry in _signed(journal, head))


def _envelopes(settings: Settings, bodies: Iterable[bytes]) -> Iterator[bytes]:
    """One DSSE envelope a line: the form in which in-toto bundles travel."""
    from palyra.attest import PAYLOAD_TYPE
    from palyra.cli.session import find_passphrase
    from palyra.config.load import find_home
    from palyra.signing import dsse_sign
    from palyra.state.db import open_home

    home, connection = open_home(find_home(settings.home).root, passphrase=find_passphrase(settings))
    connection.close()
    for body in bodies:
        yield orjson.dumps(dsse_sign(home.key, PAYLOAD_TYPE, body)) + b"\n"


# ── where it goes ────────────────────────────────────────────────────────────


def _check_place(output: str | None, *, is_folder: bool = False) -> None:
    """At once: nobody waits for an export that has nowhere to go."""
    if output is not None and not Path(output).parent.is_dir():
        raise click.UsageError(f"--output: there is no folder {Path(output).parent}.")
    if output is not None and not is_folder and Path(output).is_dir():
        raise click.UsageError(f"--output: {output} is a folder; name a file in it.")


def _write(output: str | None, lines: Iterable[bytes]) -> int:
    """Returns how many lines there were."""
    if output is None:
        count = 0
        for line in lines:
            sys.stdout.buffer.write(line)
            count += 1
        sys.stdout.buffer.flush()
        return count
    path = Path(output)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    count = 0
    try:
        with temporary.open("xb") as file:
            for line in lines:
                file.write(line)
                count += 1
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:  # a write that failed names no file, and one that did names our own for the time being
        raise OSError(error.errno, error.strerror, output) from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
    return count


def _write_tiles(journal: Reading, head: Checkpoint, folder: Path) -> int:
    """The checkpoint last: a folder without one is no log."""
    from palyra.errors import StateError
    from palyra.journal.tiles import make_tiles

    if journal.rows.first_body() > 0:
        raise StateError("Retention removed the oldest entries, and tiles hold all of them.", "Use --format jsonl.")
    if folder.exists() and any(folder.iterdir()):
        raise click.UsageError(f"{folder}: {SAME_FOLDER}")
    bodies = (entry.body for entry in _signed(journal, head))
    for name, data in make_tiles(bodies):
        _write_below(folder, name, data)
    _write_below(folder, "checkpoint", head.note.encode())
    return head.size


def _write_below(folder: Path, name: str, data: bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:  # over nothing, through no link: the folder was empty, but it may be an agent's too
        file.write(data)
