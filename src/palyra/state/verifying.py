"""The audit of a home's journal, from one snapshot, while others go on writing; where it pays, by two processes.

A large journal is read by this process (entries, tree, checkpoints, calls), and what is kept beside the entries is
checked by a second one from the same snapshot (state/beside). Findings and their order are the same either way. If the
second one is lost on the way, or cannot be had, this process does all of it.

Three things lie outside of the snapshot: who lives, the sealed files, and the key file. A call that was closed since is
not said to dangle; and where something is found and others removed sealed files or handed the journal over meanwhile,
it is read again. Not here: what is found (journal/audit).
"""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from palyra.errors import StateError
from palyra.journal.audit import Audit, Report, run_rows
from palyra.journal.audit_kept import KeptCheck
from palyra.model.record import Owner
from palyra.state.beside import BesideLost, begin_beside
from palyra.state.connection import is_writable, snapshot
from palyra.state.db import Home, ReadHome, read_home
from palyra.state.mark import read_mark
from palyra.state.rows import JournalRows
from palyra.state.shape import lying_indexes, strangers
from palyra.values import dataclass

Progress = Callable[[int], None]
"""Told how many entries were read, now and then."""
Row = tuple[int, bytes, bytes]
STEP = 4096
_ODD = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)
"""What comes of a value that no column takes. A table says what it takes, but who edits the file asks no table."""
WORTH_A_PROCESS = 20_000
"""Below so many entries starting another one takes longer than it saves."""
READINGS = 3
_REMOVED = "SELECT count(*) FROM segments WHERE present = 0"
_OPEN = "SELECT 1 FROM calls WHERE status = 'open' AND (owner_boot_id, owner_pid, owner_start_ticks) = (?, ?, ?)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is verified, and by what."""

    home: Home | ReadHome
    is_alive: Callable[[Owner], bool]
    known: Sequence[str]
    every_signature: bool
    progress: Progress | None
    had: int = 0
    """Entries there were when the last commit was acknowledged (state/mark)."""


def verify_journal(
    home: Home | ReadHome,
    *,
    is_alive: Callable[[Owner], bool],
    known: Sequence[str] = (),
    every_signature: bool = False,
    progress: Progress | None = None,
    beside: bool | None = None,
) -> Report:
    """The whole audit. `beside` None: a second process where the journal is large and there is a core for it."""
    readings_left = READINGS
    while True:
        removed, readings_left = _removed(home), readings_left - 1
        question = Question(
            home=home,
            is_alive=_left_nothing_open(home, is_alive),
            known=known,
            every_signature=every_signature,
            progress=progress,
            had=read_mark(home.state),  # before the snapshot
        )
        report = _read(question, beside)
        if not report.findings or not readings_left:
            return report
        before, home = home, _handed_over(home)
        if home is before and removed == _removed(home):
            return report


def _read(question: Question, beside: bool | None) -> Report:  # noqa: FBT001  # as it was asked for
    home = question.home
    if _is_worth_it(home) if beside is None else beside:
        with contextlib.suppress(BesideLost), begin_beside(home.database) as (connection, kept):
            return _audit_file(question, connection, kept)
    with snapshot(home.database) as connection:
        return _audit_file(question, connection, None)


def _left_nothing_open(home: Home | ReadHome, is_alive: Callable[[Owner], bool]) -> Callable[[Owner], bool]:
    """Whether an owner lives, or did when the snapshot was taken: it closed its calls since and ended."""
    known: dict[Owner, bool] = {}

    def asked(owner: Owner) -> bool:
        if owner not in known:
            who = (owner.boot_id, owner.pid, owner.start_ticks)
            known[owner] = is_alive(owner) or _ask(home, _OPEN, who) == []
        return known[owner]

    return asked


def _removed(home: Home | ReadHome) -> object:
    return _ask(home, _REMOVED, ())


def _ask(home: Home | ReadHome, sql: str, parameters: tuple[object, ...]) -> list[tuple[object, ...]] | None:
    """As it stands now; None where it cannot be read, or can be only by copying all of it."""
    if not is_writable(home.database):
        return None
    try:
        with snapshot(home.database) as connection:
            return connection.execute(sql, parameters).fetchall()
    except (sqlite3.Error, StateError):
        return None


def _handed_over(home: Home | ReadHome) -> Home | ReadHome:
    """The home with the keys that it has by now, if those follow from the ones it was opened with."""
    with contextlib.suppress(StateError):
        keys, known = read_home(home.root).keys, home.keys
        more = keys.handovers[len(known.handovers) :]
        if more and more[0].old == known.newest and keys.handovers[: len(known.handovers)] == known.handovers:
            return replace(home, keys=keys)
    return home


def _audit_file(question: Question, connection: sqlite3.Connection, kept: KeptCheck | None) -> Report:
    rows, lying = JournalRows(connection, question.home.segments), partial(lying_indexes, connection)
    return audit_rows(question, rows, strangers(connection), kept=kept, lying=lying)


def _is_worth_it(home: Home | ReadHome) -> bool:
    if len(os.sched_getaffinity(0)) < 2:
        return False
    with contextlib.suppress(sqlite3.Error), snapshot(home.database) as connection:
        return JournalRows(connection).head().size >= WORTH_A_PROCESS
    return False


def audit_rows(
    question: Question,
    rows: JournalRows,
    made: Sequence[str],
    *,
    kept: KeptCheck | None = None,
    lying: Callable[[], Sequence[str]] | None = None,
    unreadable: type[Exception] = sqlite3.Error,
) -> Report:
    """`made`: triggers and the like that Palyra did not make. `lying`: asked with every signature, what is wrong with
    the indexes. `unreadable`: how the database says it cannot go on."""
    verifier, is_alive = question.home.verifier, question.is_alive
    audit = Audit(verifier=verifier, is_alive=is_alive)
    try:
        audit = Audit(
            verifier=verifier,
            is_alive=is_alive,
            known=question.known,
            every_signature=question.every_signature,
            handovers=question.home.keys.handovers,
            kept=kept or rows.kept_audit(),
            deletions=rows.deletions(),
            kept_runs=rows.blob,
            had=question.had,
        )
        audit.schema(made)
        if question.every_signature and lying is not None:
            audit.indexes(lying())
        with _no_cycles():
            return run_rows(
                audit,
                _watched(rows.plain(), question.progress),
                rows.checkpoints(),
                head=rows.head(),
                rows=rows.count_calls(),
                runs=rows.runs(),
                approvals=rows.approvals(),
                standing=rows.standing(),
                held=rows.held(),
            )
    except unreadable as error:
        return audit.break_off(f"The database cannot be read any further: {error}.")
    except _ODD as error:
        kind = type(error).__name__
        return audit.break_off(f"The database holds a value that its tables do not allow: {kind}, {error}.")


@contextlib.contextmanager
def _no_cycles() -> Iterator[None]:
    """An audit makes millions of values and no cycle among them: looking for some would take a third of its time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _watched(entries: Iterator[Row], progress: Progress | None) -> Iterator[Row]:
    if progress is None:
        return entries

    def counted() -> Iterator[Row]:
        for number, entry in enumerate(entries):
            if number % STEP == 0:
                progress(number)
            yield entry

    return counted()
