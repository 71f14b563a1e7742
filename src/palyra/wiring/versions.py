"""Versions of the operator's policies in the database: content-addressed, a pointer, and a way back.

Rules: what is kept is found by the digest of its files, and is handed out only when it still has that digest; the
pointer and the journal's entry about it commit together (`policy.used`, `policy.rolled_back`); using a version
remembers the one before it, so that rolling back twice goes two steps back. Whole bundles are kept beside them, by the
digest that attestations carry, so that every decision can be made again. Which of the operator's policies were in force
last is kept by their digest: they stay in force while later ones cannot be used.

Not here: checking the text (policy/bundle), when it comes into use (policy/store).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import orjson

from palyra.canon import canonical, digest
from palyra.config.schema import Config
from palyra.engine.ports import Clock
from palyra.errors import StateError
from palyra.journal.acts import PALYRA, Act, ActKind, record_act
from palyra.model.record import Receipt
from palyra.policy.bundle import PolicyBundle, load_builtin
from palyra.policy.scan import PolicyError
from palyra.policy.store import PolicyStore
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

Rows = Callable[[str, tuple[object, ...]], list[tuple[Any, ...]]]
Kind = Literal["local", "bundle"]

_POINTER = "SELECT u.number, u.version, u.parent FROM policy_pointer p JOIN policy_uses u ON u.number = p.number"
_GOOD = "SELECT sha256, fault FROM policy_good WHERE place = ?"
_FIND = "SELECT version FROM policy_uses WHERE version LIKE ? GROUP BY version LIMIT 2"


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """One step of the pointer. `version` is None for the folder itself, as at the beginning."""

    number: int
    version: str | None
    parent: int | None


def version_of(files: Mapping[str, str]) -> str:
    """The name of a version: the digest of its files."""
    return digest({"format": 1, "files": dict(files)})


def candidate_policies(config: Config, exceptions: Path) -> PolicyStore | None:
    """What shadow mode asks beside the policies in use. Its text is tried in a child: it must not end what decides."""
    if config.policy.mode != "shadow":
        return None
    return PolicyStore(config.posture, Path(config.policy.candidate), careful=True, exceptions=exceptions)


class VersionRows:
    """What is kept, read by whoever has rows: a writer, or an audit's snapshot."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def use(self) -> Use:
        return _use(self._rows(_POINTER, ()))

    def pointer(self) -> str | None:
        return self.use().version

    def files(self, version: str) -> Mapping[str, str]:
        files = self._kept(version, "local")
        if files is None or version_of(files) != version:
            raise PolicyError(
                f"Version {version[:12]} is not what was installed.", "palyra policy use installs it again."
            )
        return files

    def bundle(self, policy_sha256: str) -> PolicyBundle | None:
        """A bundle that decided before; None when it was never kept, or is no longer what it was."""
        files = self._kept(policy_sha256, "bundle")
        if files is None:
            return None
        try:
            bundle = load_builtin("kept", files, typed=False)
        except PolicyError:
            return None
        return bundle if bundle.digest == policy_sha256 else None

    def last_good(self, place: str) -> Mapping[str, str] | None:
        """The policies of this folder that were in force last; None when there are none, or they were changed."""
        rows = self._rows(_GOOD, (place,))
        files = self._kept(rows[0][0], "local") if rows else None
        return files if files is not None and version_of(files) == rows[0][0] else None

    def find(self, beginning: str) -> str | None:
        """The one installed version that begins so."""
        if len(beginning) < 8 or not set(beginning) <= set("0123456789abcdef"):
            return None
        found = self._rows(_FIND, (f"{beginning}%",))
        return found[0][0] if len(found) == 1 else None

    def uses(self) -> list[tuple[int, str | None, int, str]]:
        """(number, version, when, by whom), the newest first."""
        sql = "SELECT number, version, at_unix_ms, by FROM policy_uses ORDER BY number DESC"
        return [(row[0], row[1], row[2], row[3]) for row in self._rows(sql, ())]

    def _kept(self, sha256: str, kind: Kind) -> dict[str, str] | None:
        rows = self._rows("SELECT files FROM policy_texts WHERE sha256 = ? AND kind = ?", (sha256, kind))
        try:
            value = orjson.loads(rows[0][0]) if rows else None
        except (orjson.JSONDecodeError, TypeError):
            return None
        return value if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()) else None


class KeptVersions(VersionRows):
    """The same of a snapshot, for looking at policies: what is in force is not noted."""

    def __init__(self, connection: Any) -> None:
        super().__init__(lambda sql, parameters: connection.execute(sql, parameters).fetchall())
        self._tables = {name for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'", ())}

    def pointer(self) -> str | None:
        """A database of before there were versions is migrated by the next call, not by looking at it."""
        return super().pointer() if "policy_pointer" in self._tables else None

    def last_good(self, place: str) -> Mapping[str, str] | None:
        return super().last_good(place) if "policy_good" in self._tables else None

    def settle(self, bundle: PolicyBundle, **_: object) -> None:
        pass


class PolicyVersions(VersionRows):
    """The same with a writer: installing, using, rolling back."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        super().__init__(writer.rows)
        self._writer = writer
        self._clock = clock
        self._known: set[str] = set()

    def settle(
        self,
        bundle: PolicyBundle,
        *,
        pointer: str | None,
        place: str,
        own: Mapping[str, str],
        fault: str,
        is_current: Callable[[], bool],
    ) -> None:
        """Keep the bundle, and which of the operator's policies it is made of.

        `is_current` and the pointer are asked inside the transaction: a process that read policies before another one
        changed them must not bring older ones back as the last that were in force.
        """
        self.keep(bundle)
        row, version = self._rows(_GOOD, (place,)), version_of(own)
        if row == [(row[0][0] if fault and row else version, fault)]:
            return
        at = self._clock.now_unix_ms()
        good = _Good(pointer=pointer, place=place, version=version, own=own, fault=fault, policy_sha256=bundle.digest)
        self._writer.commit_now(lambda tx: _settle(tx, good, is_current, at))

    def keep(self, bundle: PolicyBundle) -> None:
        if bundle.digest in self._known or self._kept(bundle.digest, "bundle") is not None:
            self._known.add(bundle.digest)
            return
        at = self._clock.now_unix_ms()
        self._writer.commit_now(lambda tx: _keep(tx, bundle.digest, "bundle", bundle.name, bundle.files, at))
        self._known.add(bundle.digest)

    async def install(self, files: Mapping[str, str], *, policy_sha256: str, by: str) -> tuple[str, Receipt | None]:
        """Use these files from now on; they were checked. The receipt is None when they are in use already."""
        version, at = version_of(files), self._clock.now_unix_ms()
        return version, (await self._writer.commit(lambda tx: _install(tx, version, files, policy_sha256, by, at)))[1]

    async def roll_back(self, expected: Use, *, policy_sha256: str, by: str) -> Receipt | None:
        """Go to the use before `expected`, which must still be the current one."""
        at = self._clock.now_unix_ms()
        return (await self._writer.commit(lambda tx: _roll_back(tx, expected, policy_sha256, by, at)))[1]

    def before(self, use: Use) -> Use | None:
        if use.parent is None:
            return None
        return _use(self._rows("SELECT number, version, parent FROM policy_uses WHERE number = ?", (use.parent,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Good:
    pointer: str | None
    """The version in use when they were loaded."""
    place: str
    version: str
    own: Mapping[str, str]
    fault: str
    policy_sha256: str


def _use(rows: list[tuple[Any, ...]]) -> Use:
    if not rows:
        raise StateError("The database does not say which policies are in use.", "Run: palyra journal verify")
    return Use(number=rows[0][0], version=rows[0][1], parent=rows[0][2])


# ── inside a transaction ──


def _keep(tx: Transaction, sha256: str, kind: Kind, name: str, files: Mapping[str, str], at_unix_ms: int) -> None:
    sql = "INSERT INTO policy_texts VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
    tx.execute(sql, (sha256, kind, name, canonical(dict(files)), at_unix_ms))


def _settle(tx: Transaction, good: _Good, is_current: Callable[[], bool], at_unix_ms: int) -> None:
    if _use(tx.rows(_POINTER)).version != good.pointer or not is_current():
        return
    rows = tx.rows(_GOOD, (good.place,))
    before = rows[0][1] if rows else ""
    if not good.fault or not rows:
        _keep(tx, good.version, "local", "", good.own, at_unix_ms)
        sql = "INSERT INTO policy_good VALUES (?, ?, ?) ON CONFLICT (place) DO UPDATE SET sha256 = ?, fault = ?"
        tx.execute(sql, (good.place, good.version, good.fault, good.version, good.fault))
    else:
        tx.execute("UPDATE policy_good SET fault = ? WHERE place = ?", (good.fault, good.place))
    if before != good.fault:
        kind = ActKind.POLICY_STALE if good.fault else ActKind.POLICY_REPAIRED
        details = {"policy_sha256": good.policy_sha256, "fault_sha256": good.fault or before}
        record_act(tx, Act(kind=kind, actor=PALYRA, subject="policy", details=details), at_unix_ms=at_unix_ms)


def _install(
    tx: Transaction, version: str, files: Mapping[str, str], policy_sha256: str, by: str, at_unix_ms: int
) -> None:
    now = _use(tx.rows(_POINTER))
    if now.version == version:
        return
    _keep(tx, version, "local", "", files, at_unix_ms)
    number = _use_next(tx, version, now.number, by, at_unix_ms)
    _point(tx, ActKind.POLICY_USED, now, version, number, policy_sha256, by, at_unix_ms)


def _roll_back(tx: Transaction, expected: Use, policy_sha256: str, by: str, at_unix_ms: int) -> None:
    now = _use(tx.rows(_POINTER))
    if now != expected or now.parent is None:
        raise StateError("The policies in use were changed in the meantime.", "Look again: palyra policy show")
    target = _use(tx.rows("SELECT number, version, parent FROM policy_uses WHERE number = ?", (now.parent,)))
    # A use of its own: numbers only grow, so that a node tells what was decided before from what was decided after.
    number = _use_next(tx, target.version, target.parent, by, at_unix_ms)
    _point(tx, ActKind.POLICY_ROLLED_BACK, now, target.version, number, policy_sha256, by, at_unix_ms)


def _use_next(tx: Transaction, version: str | None, parent: int | None, by: str, at_unix_ms: int) -> int:
    number: int = tx.rows("SELECT max(number) + 1 FROM policy_uses")[0][0]
    tx.execute("INSERT INTO policy_uses VALUES (?, ?, ?, ?, ?)", (number, version, parent, at_unix_ms, by))
    return number


def _point(
    tx: Transaction,
    kind: ActKind,
    before: Use,
    version: str | None,
    number: int,
    policy_sha256: str,
    by: str,
    at_unix_ms: int,
) -> None:
    tx.execute("UPDATE policy_pointer SET number = ?", (number,))
    details = {"version": version, "before": before.version, "policy_sha256": policy_sha256}
    subject = f"policy/{version or 'folder'}"
    record_act(tx, Act(kind=kind, actor=by, subject=subject, details=details), at_unix_ms=at_unix_ms)
