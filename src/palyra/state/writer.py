"""The one writer: a state change and its journal entry in one durable transaction, for many callers and processes.

Order of one commit: 1 the turn to write · 2 a transaction · 3 the head, checked against its signed checkpoint · 4 every
waiting piece of work (when one is refused, all again, each in a savepoint of its own) · 5 one signed checkpoint for all
· 6 COMMIT, durable · 7 answers. A piece of work may be run more than once: it changes nothing but its transaction.

Rules: who waits together shares one transaction (state/sharing); a refusal inside one piece of work undoes that
piece alone; an error of the disk or of the database stops this writer for good (`StateError`, from then on), a full
disk until it has room again; a lock held elsewhere is waited for, a server that is away too (state/absence).
Everything runs on the caller's thread: handing a commit to another one costs more than the commit.

Not here: where the rows lie (state/database: one file, or a server in a cluster), which head is trusted (state/head).
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from palyra.errors import StateError
from palyra.model.record import Receipt
from palyra.signing import NoteSigner
from palyra.state.absence import MOST_LOSSES, Absence, Sent, Waiting
from palyra.state.connection import PATIENCE_S
from palyra.state.database import Database, Trouble
from palyra.state.db import Home, open_home
from palyra.state.forking import waited_for
from palyra.state.head import READ_HEAD, Head, HeadBroken, KeyChanged, Sealed
from palyra.state.lock import FIRST_PAUSE_S, LONGEST_PAUSE_S
from palyra.state.sharing import Sharing
from palyra.state.sqlite import SqliteDatabase
from palyra.state.transaction import Transaction
from palyra.state.trouble import NoRoom, hint_for, no_room
from palyra.state.upkeep import AfterCommits

T = TypeVar("T")
Work = Callable[[Transaction], T]

RECOVER_EVERY_S = 1.0
COMMITS_BEFORE_HASTE = 64
"""A process that signs so much will go on: the library that signs faster is loaded."""


class Writer:
    """One for each process and home. Used by one event loop at a time, and by plain code through `commit_now`."""

    def __init__(self, home: Home, database: Database) -> None:
        self.home = home
        self.database = database
        self._pid = os.getpid()
        self._guard = waited_for(threading.RLock())
        self._head = Head(NoteSigner(home.origin, home.key))
        self._sharing = Sharing(self)
        self._down: StateError | None = None
        self._closings_only = False
        self._recover_after_s = 0.0
        self._absence = Absence()
        self._haste = AfterCommits(COMMITS_BEFORE_HASTE)

    @classmethod
    def open(cls, root: Path, *, passphrase: bytes | None = None) -> Writer:
        home, connection = open_home(root, passphrase=passphrase)
        return cls(home, SqliteDatabase(home, connection))

    # ── for callers ──

    def commit(self, work: Work[T]) -> asyncio.Future[tuple[T, Receipt | None]]:
        """Run `work` in the next transaction. Done when it is durable; raises what it raised, and that is undone."""
        self.notice_fork()
        return self._sharing.enqueue(Waiting(work, closing=False))

    def commit_closing(self, work: Work[T], *, stays: bool = False) -> asyncio.Future[tuple[T, Receipt | None]]:
        """The same for the record of something that has run: on a full disk it may use the reserved space. `stays`: it
        waits for a server that is away, too; without, it fails then as new work does."""
        self.notice_fork()
        return self._sharing.enqueue(Waiting(work, closing=True, stays=stays))

    def commit_alone(self, work: Work[T], *, closing: bool = False) -> tuple[T, Receipt | None] | None:
        """At once and in a transaction of its own; None, and nothing done, where others come or write: use `commit`.
        For a caller that knows of no other to share with: the loop's turns between are saved."""
        # When an answer from afar is lost, its caller must be found waiting.
        if self._sharing.has_company or self.database.is_far:
            return None
        waiting: Waiting[T] = Waiting(work, closing=closing)
        if not self.try_all([waiting]):
            return None
        loop = asyncio.get_running_loop()
        loop.call_soon(self.look_after, loop)  # after its caller has gone on
        return waiting.done()

    def commit_first(self, work: Work[T]) -> tuple[T, Receipt | None] | None:
        """The same for a caller that knows nothing of others: the first of a turn of the loop."""
        if self._pid != os.getpid():
            self.notice_fork()
        if self.database.is_far or not self._sharing.goes_at_once():
            return None
        waiting: Waiting[T] = Waiting(work, closing=False)
        return waiting.done() if self.try_all([waiting]) else None

    def commit_now(self, work: Work[T]) -> tuple[T, Receipt | None]:
        """For code without a loop: waits here."""
        waiting: Waiting[T] = Waiting(work, closing=False)
        deadline, pause_s = time.monotonic() + PATIENCE_S, FIRST_PAUSE_S
        while not self.try_all([waiting]):
            if time.monotonic() >= deadline:
                raise self.too_long()
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PAUSE_S)
        self.look_after(None)
        return waiting.done()

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Read what is committed."""
        self.notice_fork()
        with self._guard:
            return self.database.read(sql, parameters)

    def moment(self) -> object:
        """Another value after every commit, whoever made it; None where that cannot be told (state/remembered)."""
        self.notice_fork()
        with self._guard:
            return self.database.moment()

    def sweep(self, statements: tuple[str, ...]) -> None:
        """Statements that change nothing the journal tells of (state/retention)."""
        self.notice_fork()
        with self._guard:
            self.database.sweep(statements)

    def speak_as(self, home: Home) -> None:
        """The same home under a new key, from the next commit on (state/rotation)."""
        with self._guard:
            self.home, self._head.signer = home, NoteSigner(home.origin, home.key)
            self._haste = AfterCommits(COMMITS_BEFORE_HASTE)

    def close(self) -> None:
        self.notice_fork()
        with self._guard:
            self.database.close(is_sound=self._down is None)
            self._down = self._down or StateError("The state was closed.")

    # ── one commit ──

    def try_all(self, batch: list[Waiting[Any]], *, losses: int = 0) -> bool:
        """One transaction for all of `batch`; False when somebody else is writing, or the server is away and what is
        not over waits for it. Results are left in `batch`."""
        if self._pid != os.getpid():
            self.notice_fork()
        with self._guard:
            if self._down is not None:
                self._recover()
                batch = self._admit(batch)
            if not batch:
                return True
            if losses > MOST_LOSSES or not (self._absence.error is None or self._absence.is_over(self.database)):
                return self._absence.wait_out(batch)
            again: list[Waiting[Any]] = []
            try:
                if not self.database.try_begin(READ_HEAD):  # 1, 2
                    return False
                if self._absence.sent is not None:
                    self._absence.settle(self.database, self._take)
                    batch = [waiting for waiting in batch if not waiting.is_over]
                if batch:
                    self._transact(self.database, batch)
            except Exception as error:  # noqa: BLE001  # nobody may be left waiting for an answer
                trouble = self.database.trouble(error)
                if trouble is Trouble.WAIT:
                    return False
                again = self._lose(error, batch) if trouble is Trouble.LOST else self._stop(error, batch)
            except BaseException:  # KeyboardInterrupt, wherever it comes
                self._head.doubt()
                raise
            finally:
                self.database.let_go()
        return self.try_all(again, losses=losses + 1) if again else True

    def _lose(self, error: Exception, batch: list[Waiting[Any]]) -> list[Waiting[Any]]:
        self._absence.begin(error)
        return batch

    def _admit(self, batch: list[Waiting[Any]]) -> list[Waiting[Any]]:
        if self._down is None:
            return batch
        for waiting in batch:
            if not (waiting.closing and self._closings_only):
                waiting.error = StateError(self._down.detail, self._down.hint)
        return [waiting for waiting in batch if waiting.closing and self._closings_only]

    def _transact(self, database: Database, batch: list[Waiting[Any]]) -> None:
        transaction = self._run_all(database, batch, savepoints=False)
        if transaction is None:  # one was refused, and the others' work was undone with it
            transaction = self._run_all(database, batch, savepoints=True)
            assert transaction is not None, "each can be undone by itself"
        before, after = self._head.trusted.frontier.size, transaction.frontier.size
        sealed = None
        if after > before:
            sealed = self._head.seal(database, transaction.frontier, transaction.successor)  # 5
        if database.is_far:
            self._absence.sent = Sent(batch, sealed)
        database.commit(before=before, after=after, bytes_written=transaction.bytes_written)  # 6
        self._absence.sent = None
        if transaction.run_keys:
            self._head.remember(transaction.run_keys)
        self._take(batch, sealed)

    def _take(self, batch: list[Waiting[Any]], sealed: Sealed | None) -> None:
        """It is durable: what is trusted from now on, and everybody's receipt."""
        if sealed is None:
            return
        self._head.trusted = sealed
        size, note = sealed.frontier.size, sealed.note
        for waiting in batch:
            if waiting.index is not None:
                waiting.receipt = Receipt(index=waiting.index, tree_size=size, checkpoint=note)

    def _run_all(self, database: Database, batch: list[Waiting[Any]], *, savepoints: bool) -> Transaction | None:
        """None, and nothing done, when one of several was refused that could not be undone by itself. Refusals are
        rare, and two statements for each piece of work are not free."""
        head = self._head
        transaction = Transaction(database, head.read(database), savepoints=savepoints, run_keys=head.run_keys)  # 3
        for waiting in batch:  # 4
            waiting.error = waiting.index = transaction.last_index = None
            if savepoints:
                transaction.begin_work()
            try:
                waiting.value = waiting.work(transaction)
                # What was sent is known to be done. Until then a refusal may turn up in another's work; then each is
                # run again by itself, and settles.
                if transaction.is_far and (savepoints or waiting is batch[-1]):
                    database.settle()
                waiting.index = transaction.last_index
            except Exception as error:  # noqa: BLE001  # whatever it is, it is its caller's, and undone
                self._undo(transaction, waiting, error)
                if not savepoints and len(batch) > 1:
                    return None
            if savepoints:
                transaction.end_work()
        return transaction

    def _undo(self, transaction: Transaction, waiting: Waiting[Any], error: Exception) -> None:
        """Raises what is not the work's own fault."""
        if isinstance(error, HeadBroken) or self.database.trouble(error) is not Trouble.OF_THE_WORK:
            raise error
        transaction.undo_work()
        # A future refuses to carry StopIteration, and then nobody behind it would be answered.
        waiting.error = RuntimeError(repr(error)) if isinstance(error, StopIteration) else error

    # ── when something is wrong ──

    def _stop(self, error: Exception, batch: list[Waiting[Any]]) -> list[Waiting[Any]]:
        """Fail-stop: after a failed write nobody knows what the disk holds.

        Returns what may be tried once more: with the disk full, the records of what has run already get the space
        that was kept for them.
        """
        self._absence.sent = None
        full = self.database.trouble(error) is Trouble.FULL
        self._closings_only = full and self._down is None and self.database.give_reserve()
        if isinstance(error, KeyChanged):
            self._down = StateError("Another process gave the journal a new key.", "Start again.")
        elif isinstance(error, HeadBroken):
            self._down = StateError(
                f"The journal does not agree with its own signed head: {error}.", "Run: palyra journal verify"
            )
        elif isinstance(error, StateError):
            self._down = error
        elif full:
            self._down = no_room()
        else:
            self._down = StateError(f"The journal could not be written: {error}.", hint_for(error))
        return self._admit(batch)

    def _recover(self) -> None:
        """After a full disk has room again, go on as a new start would; what failed for want of room was undone."""
        now_s = time.monotonic()
        if not isinstance(self._down, NoRoom) or now_s < self._recover_after_s:
            return
        self._recover_after_s = now_s + RECOVER_EVERY_S
        try:
            if not self.database.reopen():
                return
        except StateError as error:
            self._down = error
            return
        self._head.doubt()
        self._down, self._closings_only = None, False

    def failure(self) -> StateError | None:
        """Why nothing can be recorded now. `NoRoom` ends with the shortage, anything else with the next start alone."""
        self.notice_fork()
        with self._guard:
            self._recover()
            return self._down

    def is_away(self) -> bool:
        return self._absence.error is not None

    def too_long(self) -> StateError:
        if self._absence.error is not None:
            return self._absence.error
        return StateError(
            f"Another process has held the journal's lock for {PATIENCE_S:.0f} s.",
            self.database.who_holds(),
        )

    def notice_fork(self) -> None:
        """After a fork the parent's connection is not ours."""
        if self._pid != os.getpid():
            self.database.forked()
            self._pid, self._guard = os.getpid(), waited_for(threading.RLock())
            self._head.forget()
            self._absence = Absence()
            self._sharing.forget()

    def look_after(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._down is None:
            if not self._haste.is_done:
                self._haste.count(loop, self.home.key.hasten)
            self.database.look_after(loop, self._fail)

    def _fail(self, error: StateError) -> None:
        self._closings_only = self._closings_only or (self._down is None and isinstance(error, NoRoom))
        self._down = self._down or error
