"""Witnesses: places outside this home that remember its heads, so that a history once shown cannot be taken back.

Three kinds: a **file** that lines are appended to (on another disk, or made append-only by its owner), a **folder**
with one file a log (a share, a repository), another **home**, whose own journal then holds the head as an act and
whose key cosigns it. All follow the rules of journal/witness: a rollback or a fork is refused, and named.

At a start the heads of all witnesses are compared with the tree: a journal that is shorter or different is not gone on
with. A place that cannot be reached is said so and keeps nobody from starting.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import orjson

from palyra.errors import StateError, TrustError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.journal.checkpoint import parse_checkpoint
from palyra.journal.keys import Keys, follow
from palyra.journal.lookup import TREE_SIZE, Rows
from palyra.journal.tree import Tree
from palyra.journal.witness import Refusal, add_checkpoint, cosign
from palyra.model.record import Checkpoint
from palyra.signing import parse_vkey
from palyra.state.keyfile import sync_folder
from palyra.state.person import owner_principal
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

MAX_PLACE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Seen:
    """The last head a place holds of a log, and the key it was taken under."""

    vkey: str
    note: str


class Place(Protocol):
    def last(self, origin: str) -> Seen | None: ...
    def keep(self, head: Checkpoint, vkey: str, *, at_unix_ms: int) -> str:
        """Durable when it returns; a cosignature line, or nothing."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    path: Path

    def last(self, origin: str) -> Seen | None:
        found = None
        for line in _read(self.path).splitlines():
            try:
                value = orjson.loads(line)
                if value["origin"] == origin:
                    found = Seen(str(value["vkey"]), str(value["checkpoint"]))
            except (orjson.JSONDecodeError, KeyError, TypeError) as error:
                raise StateError(f"The witness {self.path} holds a line that is no head.") from error
        return found

    def keep(self, head: Checkpoint, vkey: str, *, at_unix_ms: int) -> str:
        said = {
            "origin": head.origin,
            "size": head.size,
            "vkey": vkey,
            "checkpoint": head.note,
            "at_unix_ms": at_unix_ms,
        }
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        with os.fdopen(fd, "ab") as file:
            file.write(orjson.dumps(said) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return ""


@dataclass(frozen=True, slots=True)
class FolderPlace:
    path: Path

    def last(self, origin: str) -> Seen | None:
        return FilePlace(self._file(origin)).last(origin)

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

    def last(self, origin: str) -> Seen | None:
        writer = Writer.open(self.path)
        try:
            rows = writer.rows("SELECT vkey, note FROM seen_heads WHERE origin = ?", (origin,))
        finally:
            writer.close()
        return Seen(*rows[0]) if rows else None

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
    """From now on this place is shown every head that is pushed; it must take the newest one first."""
    if writer.rows("SELECT 1 FROM witnesses WHERE name = ?", (name,)):
        raise StateError(f"There is a witness {name} already.", "List them with: palyra journal witness list")
    place, kind = str(path.absolute()), kind_of(path)
    act = Act(kind=ActKind.WITNESS_ADDED, actor=actor, subject=f"witness/{name}", details={"kind": kind})

    def work(tx: Transaction) -> None:
        tx.execute("INSERT INTO witnesses (name, kind, place) VALUES (?, ?, ?)", (name, kind, place))
        record_act(tx, act, at_unix_ms=at_unix_ms)

    writer.commit_now(work)
    return next(one for one in push_heads(writer, at_unix_ms=at_unix_ms) if one.name == name)


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
        raise StateError(f"The newest checkpoint does not hold: {error}", "Run: palyra journal verify") from error
    shown = []
    for name, kind, path in witnesses:
        try:
            line = _show(KINDS[kind](Path(path)), head, keys=keys, tree=tree, at_unix_ms=at_unix_ms)
        except Refusal as refusal:
            shown.append(Shown(name=name, size=head.size, refusal=f"{refusal.code}: {refusal.detail}"))
        except (StateError, OSError) as error:
            shown.append(Shown(name=name, size=head.size, refusal=f"UNREACHABLE: {error}"))
        else:
            shown.append(Shown(name=name, size=head.size))
            _remember(writer, name, head, line, at_unix_ms=at_unix_ms)
    return shown


def _show(place: Place, head: Checkpoint, *, keys: Keys, tree: Tree, at_unix_ms: int) -> str:
    seen = place.last(head.origin)
    last, theirs = None, keys
    proof: tuple[bytes, ...] = ()
    if seen is not None:
        try:
            # The witness goes by the key it took first, and follows it only through proven handovers.
            theirs = follow(parse_vkey(seen.vkey), tree.links(keys))
            last = parse_checkpoint(seen.note)
        except TrustError as error:
            raise Refusal("UNSIGNED", f"The witness knows this log under another key: {error}") from error
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


# ── anchors ──────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    name: str
    kind: str
    place: str
    head: Checkpoint | None = None
    problem: str | None = None


def anchors(rows: Rows, origin: str) -> Iterator[Anchor]:
    """The last head each witness holds, as it lies there now."""
    for name, kind, path in rows("SELECT name, kind, place FROM witnesses ORDER BY name", ()):
        if kind == "home":  # read by others too; its journal is not opened for writing here
            yield _home_anchor(name, path, origin)
            continue
        try:
            seen = KINDS[kind](Path(path)).last(origin)
            head = parse_checkpoint(seen.note) if seen is not None else None
            yield Anchor(name=name, kind=kind, place=path, head=head, problem=None if seen else "It holds no head.")
        except (StateError, OSError, TrustError) as error:
            yield Anchor(name=name, kind=kind, place=path, problem=str(error))


def _home_anchor(name: str, path: str, origin: str) -> Anchor:
    from palyra.state.connection import snapshot
    from palyra.state.db import read_home

    try:
        with snapshot(read_home(Path(path)).database) as connection:
            sql = "SELECT note FROM seen_heads WHERE origin = ?"
            row = connection.execute(sql, (origin,)).fetchone()
        head = parse_checkpoint(row[0]) if row else None
        return Anchor(name=name, kind="home", place=path, head=head, problem=None if row else "It holds no head.")
    except (StateError, OSError, TrustError) as error:
        return Anchor(name=name, kind="home", place=path, problem=str(error))


def check_anchors(writer: Writer, found: Sequence[Anchor], *, thorough: bool) -> None:
    """`StateError` when the tree is smaller than, or different from, what a witness has seen.

    Thorough hashes the tree up to that head; otherwise the checkpoint of that size is compared, which is quick and
    finds an old copy put back, but not a rewritten one that kept the old checkpoint.
    """
    heads = [(anchor.name, anchor.head) for anchor in found if anchor.head is not None]
    if not heads:
        return
    size = writer.rows(TREE_SIZE)[0][0]
    tree = Tree(writer.rows)
    for name, head in heads:
        if head.size > size:
            raise StateError(
                f"The journal has {size} entries, and the witness {name} has seen {head.size}: it was set back.",
                "Restore the newest backup; palyra journal verify says what is missing.",
            )
        if head.size and _root_at(writer, tree, head.size, thorough=thorough) != head.root:
            raise StateError(
                f"The journal is another one than the witness {name} has seen.", "Run: palyra journal verify"
            )


def _root_at(writer: Writer, tree: Tree, size: int, *, thorough: bool) -> bytes:
    if thorough:
        return tree.frontier(size).root()
    rows = writer.rows("SELECT note FROM checkpoints WHERE size = ?", (size,))
    try:
        return writer.home.keys.open(rows[0][0]).root if rows else b""
    except TrustError:
        return b""


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_PLACE_BYTES + 1)
    except FileNotFoundError:
        return b""
    if len(data) > MAX_PLACE_BYTES:
        raise StateError(f"The witness {path} is larger than {MAX_PLACE_BYTES} bytes.", "Begin a new file.")
    return data
