"""Witnesses: places outside this home that remember its heads, so that a history once shown cannot be taken back.

Three kinds: a **file** that lines are appended to (on another disk, or made append-only by its owner), a **folder**
with one file a log (a share, a repository), another **home**, whose own journal then holds the head as an act and
whose key cosigns it. All follow the rules of journal/witness: a rollback or a fork is refused, and named.

Not here: comparing the journal with what they hold (state/anchors), the lines of a file (state/witness_lines).
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import orjson

from palyra.errors import StateError, TrustError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.journal.checkpoint import parse_checkpoint
from palyra.journal.keys import Keys, follow
from palyra.journal.tree import Tree
from palyra.journal.witness import Refusal, add_checkpoint, cosign
from palyra.journal.witness_standing import place_sha256
from palyra.model.record import Checkpoint
from palyra.signing import parse_vkey
from palyra.state.connection import snapshot
from palyra.state.db import read_home
from palyra.state.keyfile import sync_folder
from palyra.state.person import owner_principal
from palyra.state.transaction import Transaction
from palyra.state.witness_lines import append_line, read_blocks
from palyra.state.writer import Writer
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Seen:
    """A head that a place holds of a log, and the key it was taken under."""

    vkey: str
    head: Checkpoint


@dataclass(frozen=True, slots=True)
class Held:
    """All that a place holds of a log, in the order in which it came there."""

    seen: tuple[Seen, ...] = ()
    is_spoilt: bool = False
    """There are lines that are no head; the others count all the same, or one line would silence a witness."""

    @property
    def last(self) -> Seen | None:
        """The largest head, under the key that came first: who can only append takes neither back."""
        if not self.seen:
            return None
        return Seen(self.seen[0].vkey, max((one.head for one in self.seen), key=lambda head: head.size))


class Place(Protocol):
    def heads(self, origin: str) -> Held: ...
    def keep(self, head: Checkpoint, vkey: str, *, at_unix_ms: int) -> str:
        """Durable when it returns; a cosignature line, or nothing."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    path: Path

    def heads(self, origin: str) -> Held:
        found, spoilt, named = [], False, orjson.dumps(origin)[1:-1]
        for block in read_blocks(self.path):
            if spoilt and named not in block:  # nothing more is to be learned of it
                continue
            for line in filter(None, block.split(b"\n")):
                try:
                    value = orjson.loads(line)
                    if value["origin"] == origin:
                        found.append(Seen(str(value["vkey"]), _head_of(str(value["checkpoint"]), origin)))
                except (orjson.JSONDecodeError, KeyError, TypeError, TrustError):
                    spoilt = True
        return Held(tuple(found), spoilt)

    def keep(self, head: Checkpoint, vkey: str, *, at_unix_ms: int) -> str:
        said = {
            "origin": head.origin,
            "size": head.size,
            "vkey": vkey,
            "checkpoint": head.note,
            "at_unix_ms": at_unix_ms,
        }
        append_line(self.path, orjson.dumps(said))
        return ""


@dataclass(frozen=True, slots=True)
class FolderPlace:
    path: Path

    def heads(self, origin: str) -> Held:
        return FilePlace(self._file(origin)).heads(origin)

    def keep(self, head: Checkpoint, vkey: str, *, at_unix_ms: int) -> str:
        """Only the newest, replaced whole."""
        target = self._file(head.origin)
        temporary = FilePlace(target.with_name(f".{target.name}.{os.getpid()}"))
        temporary.path.unlink(missing_ok=True)
        temporary.keep(head, vkey, at_unix_ms=at_unix_ms)
        temporary.path.replace(target)
        sync_folder(self.path)
        return ""

    def _file(self, origin: str) -> Path:
        name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "." for c in origin)
        return self.path / f"{name[:128].lstrip('.')}.head"


@dataclass(frozen=True, slots=True)
class HomePlace:
    path: Path

    def heads(self, origin: str) -> Held:
        """Read by others too: its journal is not opened for writing."""
        with snapshot(read_home(self.path).database) as connection:
            rows = connection.execute("SELECT vkey, note FROM seen_heads WHERE origin = ?", (origin,)).fetchall()
        return Held(tuple(Seen(str(vkey), _head_of(str(note), origin)) for vkey, note in rows))

    def keep(self, head: Checkpoint, vkey: str, *, at_unix_ms: int) -> str:
        act = Act(
            kind=ActKind.HEAD_WITNESSED,
            actor=owner_principal(),
            subject=f"origin/{head.origin}",
            details={"vkey": vkey, "size": head.size, "root": head.root.hex()},
        )

        def work(tx: Transaction) -> None:
            row = (head.origin, vkey, head.size, head.note, at_unix_ms)
            tx.execute("INSERT OR REPLACE INTO seen_heads VALUES (?, ?, ?, ?, ?)", row)
            record_act(tx, act, at_unix_ms=at_unix_ms)

        writer = Writer.open(self.path)
        try:
            writer.commit_now(work)
            return cosign(writer.home.origin, writer.home.key, head.note, at_unix_s=at_unix_ms // 1000)
        finally:
            writer.close()


KINDS: Mapping[str, Callable[[Path], Place]] = {"file": FilePlace, "folder": FolderPlace, "home": HomePlace}


def look_at(kind: str, path: str, origin: str) -> Held:
    """What a place holds of a log. `StateError`, and nothing else, where that cannot be read: what lies there, and the
    row that leads there, somebody else may have written, who would otherwise keep this journal from every start."""
    if kind not in KINDS:
        raise StateError(f"There are no witnesses of the kind {kind!r:.40}.")
    try:
        return KINDS[kind](Path(path)).heads(origin)
    except OSError as error:
        raise StateError(error.strerror or str(error)) from error
    except (TrustError, sqlite3.Error, ValueError, TypeError) as error:
        raise StateError(f"{error}".rstrip(".") + ".") from error


def kind_of(path: Path) -> str:
    if (path / "state" / "palyra.db").is_file():
        return "home"
    return "folder" if path.is_dir() else "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What came of showing the newest head to a witness."""

    name: str
    size: int
    refusal: str | None = None


def add_witness(writer: Writer, name: str, path: Path, *, actor: str, at_unix_ms: int) -> Shown:
    """From now on this place is shown every head that is pushed. One that cannot be written now is not added: a
    witness is never taken out again, and a slip of the keys would be missed at every checkpoint."""
    if writer.rows("SELECT 1 FROM witnesses WHERE name = ?", (name,)):
        raise StateError(f"There is already a witness {name}.", "List them with: palyra journal witness list")
    place, kind = str(path.absolute()), kind_of(path)
    if problem := _unusable(path.absolute(), kind, writer.home.state.parent):
        hint = "Nothing was added: name a place outside this home that exists and can be written."
        raise StateError(f"{place}: {problem}.", hint)
    details = {"kind": kind, "place_sha256": place_sha256(place)}
    act = Act(kind=ActKind.WITNESS_ADDED, actor=actor, subject=f"witness/{name}", details=details)

    def work(tx: Transaction) -> None:
        tx.execute("INSERT INTO witnesses (name, kind, place) VALUES (?, ?, ?)", (name, kind, place))
        record_act(tx, act, at_unix_ms=at_unix_ms)

    writer.commit_now(work)
    return next(one for one in push_heads(writer, at_unix_ms=at_unix_ms) if one.name == name)


def _unusable(path: Path, kind: str, home: Path) -> str:
    """What keeps heads from being written there, as far as it can be seen without writing one; and what makes them no
    evidence: whoever puts an old copy of the home back puts back what lies in it, and a home that vouches for itself
    was said to be outside evidence."""
    if path.resolve().is_relative_to(home.resolve()):
        return "It lies in the home that it is to be a witness for"
    if kind == "folder" and (path / "palyra.toml").is_file():
        return "It is a home that has no journal yet, and would be taken for a plain folder: run something in it first"
    folder = path.parent if kind == "file" else path
    if not folder.is_dir():
        return os.strerror(errno.ENOENT)
    return "" if os.access(path if path.exists() else folder, os.W_OK) else os.strerror(errno.EACCES)


def push_heads(writer: Writer, *, at_unix_ms: int) -> list[Shown]:
    """Show the newest head to every witness; what one refuses is told, not hidden."""
    witnesses = writer.rows("SELECT name, kind, place FROM witnesses ORDER BY name")
    newest = writer.rows("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")
    if not witnesses or not newest:
        return []
    keys, tree = writer.home.keys, Tree(writer.rows)
    try:
        head = keys.open(newest[0][0])
    except TrustError as error:
        raise StateError(f"The newest checkpoint is not valid: {error}", "Run: palyra journal verify") from error
    shown = []
    for name, kind, path in witnesses:
        try:
            held = look_at(kind, path, head.origin)
            line = _show(KINDS[kind](Path(path)), held, head, keys=keys, tree=tree, at_unix_ms=at_unix_ms)
        except Refusal as refusal:
            shown.append(Shown(name=name, size=head.size, refusal=f"{refusal.code}: {refusal.detail}"))
        except (StateError, OSError) as error:
            shown.append(Shown(name=name, size=head.size, refusal=f"UNREACHABLE: {_why(error)}"))
        else:
            shown.append(Shown(name=name, size=head.size))
            _remember(writer, name, head, line, at_unix_ms=at_unix_ms)
    return shown


def _why(error: StateError | OSError) -> str:
    return error.detail if isinstance(error, StateError) else error.strerror or str(error)


def _show(place: Place, held: Held, head: Checkpoint, *, keys: Keys, tree: Tree, at_unix_ms: int) -> str:
    seen, last, theirs = held.last, None, keys
    proof: tuple[bytes, ...] = ()
    if seen is None and held.is_spoilt:
        raise StateError("The witness holds lines that are no heads, and nothing else.")
    if seen is not None:
        try:
            # The witness goes by the key it took first, and follows it only through proven handovers.
            theirs = follow(parse_vkey(seen.vkey), tree.links(keys))
        except TrustError as error:
            raise Refusal("UNSIGNED", f"The witness knows this log under another key: {error}") from error
        last = seen.head
        if theirs.newest != keys.newest:
            raise Refusal("UNSIGNED", "The witness knows this log under another key.")
        if last.size <= head.size:
            proof = _proof(tree, last, head)
    add_checkpoint(last, head.note, keys=theirs, proof=proof)
    if last is not None and last.size == head.size:
        return ""
    return place.keep(head, seen.vkey if seen is not None else keys.newest.vkey, at_unix_ms=at_unix_ms)


def _proof(tree: Tree, last: Checkpoint, head: Checkpoint) -> tuple[bytes, ...]:
    try:
        return tree.consistency(last, head)
    except StateError:
        return ()  # the tree does not begin with what was seen: the witness says so


def _remember(writer: Writer, name: str, head: Checkpoint, line: str, *, at_unix_ms: int) -> None:
    sql = "UPDATE witnesses SET size = ?, note = ?, seen_unix_ms = ? WHERE name = ? AND size <> ?"
    given = (head.size, head.note + line, at_unix_ms, name, head.size)
    writer.commit_now(lambda tx: tx.execute(sql, given))


def _head_of(note: str, origin: str) -> Checkpoint:
    head = parse_checkpoint(note)
    if head.origin != origin:
        raise TrustError("The witness holds a head of another log under this one's name.")
    return head
