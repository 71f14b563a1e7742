"""Where the state lies, as the writer uses it: one connection, one turn to write, one transaction at a time.

SQL here and in every store is the part that SQLite and PostgreSQL share, with `?` for values; what differs (turns,
errors, upkeep) is behind this port. `state/sqlite` fits it with a file and a lock beside it, `cluster/postgres` with a
server and a lock in it. Not here: what a commit is made of (state/writer), the tables (state/schema).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any, Protocol, TypeAlias

from palyra.errors import StateError


class Trouble(Enum):
    WAIT = auto()
    """Somebody else writes: try again."""
    OF_THE_WORK = auto()
    """A statement was refused, as the work's own mistake would be: that work is undone, and no other."""
    FULL = auto()
    """There is no room left."""
    LOST = auto()
    """The way to the server is gone, and with it what was not committed; `come_back` finds a new one."""
    STOP = auto()
    """Nobody knows what was kept."""


class Cursor(Protocol):
    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Rows(Protocol):
    """What may be asked: a transaction under way, or the writer for what is committed."""

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple[Any, ...]]: ...


InVain: TypeAlias = Callable[[tuple[object, ...]], Exception]


class Database(Protocol):
    is_far: bool
    """On a server, which may be away for a while."""

    def execute(self, sql: str, parameters: tuple[object, ...] = ()) -> Cursor: ...

    def send(self, sql: str, parameters: tuple[object, ...], *, in_vain: InVain | None = None) -> None:
        """In a transaction, for what has no answer: when it is refused, that may be known only with the answer to a
        later statement, or by `settle`. `in_vain` makes of the values what is raised where a row's place
        was taken."""

    def settle(self) -> None:
        """All that was sent was done, or what is wrong is raised."""

    def read(self, sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
        """What is committed; `StateError` when it cannot be read."""

    def version(self) -> int | None:
        """Inside a transaction: another number whenever somebody else has committed since it was last asked; None where
        that cannot be told."""

    def moment(self) -> object:
        """Outside of a transaction: another value whenever anybody has committed since, this process included; None
        where that cannot be told."""

    def try_begin(self, first: str) -> bool:
        """The turn to write, and a transaction in it. False, and nothing begun, while somebody else has it. `first` is
        the question that will be asked first: from afar its answer comes with the turn."""

    def begin_again(self) -> None:
        """Undo all of this transaction and go on in a new one, in the same turn."""

    def commit(self, *, before: int, after: int, bytes_written: int) -> None:
        """Durable when it returns. It makes the tree so much larger."""

    def let_go(self) -> None:
        """Give the turn back; what was not committed is undone."""

    def trouble(self, error: BaseException) -> Trouble: ...

    def come_back(self) -> bool:
        """After `LOST`: whether there is a way again. Waits a moment at most; goes on looking by itself."""

    def was_kept(self) -> bool:
        """In a turn after `LOST`: whether the last commit that was asked for is there."""

    def look_after(self, loop: asyncio.AbstractEventLoop | None, fail: Callable[[StateError], None]) -> None:
        """Upkeep that is due, off the way of commits; `fail` is told what went wrong for good."""

    def give_reserve(self) -> bool:
        """Room that was held back for closing what has run; False when there is none."""

    def reopen(self) -> bool:
        """After `FULL`: go on as a new start would, everything checked; False while there is no room. `StateError`
        when what is found is not sound."""

    def sweep(self, statements: tuple[str, ...]) -> None:
        """Run these in a turn of their own, and see to it that what they delete is not read from anywhere again."""

    def who_holds(self) -> str:
        """A hint that names whoever has had the turn for too long."""

    def forked(self) -> None:
        """This process is a child: what it inherited is its parent's."""

    def close(self, *, is_sound: bool) -> None: ...
