"""While the server is away: who waits for it, who is told, and what became of a commit whose answer was lost.

Rules: new work is refused (`StateError`), and nothing of it was done; the record of what has run waits, however long it
takes; whoever was in a commit without an answer waits as well. In the next turn the server is asked about that commit:
whoever has the turn knows that the lost one is over. Kept: its callers get what they were owed. Not kept: it is done
again. Never both. Not here: finding the server again, and what it remembers of commits (the database), commits
(state/writer).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from palyra.errors import StateError
from palyra.model.record import Receipt
from palyra.state.database import Database
from palyra.state.head import Sealed
from palyra.state.transaction import Transaction
from palyra.values import dataclass

T = TypeVar("T")
AWAY_PAUSE_S = 0.1
MOST_LOSSES = 1
"""So many times in a row a batch is tried again at once; then whoever may not wait is told."""


class Unbroken(asyncio.Future[T]):
    """Of a record of what has run: whoever waits for it may be cancelled, and learns that when it is durable."""

    def cancel(self, msg: Any = None) -> bool:
        return False


@dataclass(slots=True, eq=False)
class Waiting(Generic[T]):
    work: Callable[[Transaction], T]
    closing: bool
    stays: bool = False
    """It waits for a server that is away, however long that takes."""
    is_over: bool = False
    """To be answered, though others of its batch go on waiting."""
    future: asyncio.Future[tuple[T, Receipt | None]] | None = None
    value: T | None = None
    index: int | None = None
    error: BaseException | None = None
    receipt: Receipt | None = None

    def done(self) -> tuple[T, Receipt | None]:
        """What its caller gets, when it is over."""
        if self.error is not None:
            raise self.error
        return self.value, self.receipt  # type: ignore[return-value]  # set when error is not

    def answer(self) -> None:
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result((self.value, self.receipt))  # type: ignore[arg-type]  # set when error is not


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """A commit as it was asked for."""

    batch: list[Waiting[Any]]
    sealed: Sealed | None
    """None where no entry was appended."""


class Absence:
    def __init__(self) -> None:
        self.error: StateError | None = None
        """Why nothing can be written now; None while the server is there."""
        self.sent: Sent | None = None
        """Asked for and not answered."""

    def begin(self, error: Exception) -> None:
        words = str(error).strip().splitlines()
        self.error = StateError(
            f"The journal's server is unreachable: {words[0].rstrip('.') if words else 'no answer'}.",
            "Palyra keeps trying to reconnect. Check the server, and database in [cluster].",
        )

    def is_over(self, database: Database) -> bool:
        if self.error is not None and database.come_back():
            self.error = None
        return self.error is None

    def wait_out(self, batch: list[Waiting[Any]]) -> bool:
        """Whether nothing of `batch` has to wait on."""
        asked = {id(waiting) for waiting in self.sent.batch} if self.sent is not None else set()
        for waiting in batch:
            if self.error is not None and not waiting.stays and id(waiting) not in asked:
                waiting.error, waiting.is_over = StateError(self.error.detail, self.error.hint), True
        return all(waiting.is_over for waiting in batch)

    def settle(self, database: Database, take: Callable[[list[Waiting[Any]], Sealed | None], None]) -> None:
        """In a turn. `take` is given the commit that turns out to have been kept."""
        if self.sent is None:
            return
        if database.was_kept():
            take(self.sent.batch, self.sent.sealed)
            for waiting in self.sent.batch:
                waiting.is_over = True
        self.sent = None
