"""Statements of one turn on their way to the server: those whose answer nobody needs wait for no answer.

A turn is held by one daemon of all, and each answer waited for is a journey to the server and back, so what is only
written (an entry, its openings, a checkpoint) is sent and goes on; the next statement that is asked for something, or
the commit, brings all answers at once. A statement sent in vain is found then, and by its own name: after it the server
does nothing until that moment, so nothing behind it was done either.

Not here: when a turn begins and ends (cluster/postgres), what is written (state/transaction).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from palyra.cluster import dialect
from palyra.state.database import Cursor, InVain


class Sending:
    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], answered: dict[str, Cursor]) -> None:
        """`answered`: questions whose answers came with the turn; good until something else is asked or sent."""
        self._connection, self._answered = connection, answered
        self._way = contextlib.ExitStack()
        self._pipeline = self._way.enter_context(connection.pipeline())
        self._sent: list[tuple[psycopg.Cursor[tuple[Any, ...]], Callable[[], Exception] | None]] = []
        """Without an answer yet, and what it means if they were refused."""

    def send(self, sql: str, parameters: tuple[object, ...] = (), *, in_vain: InVain | None = None) -> Any:
        self._answered.clear()
        # A command without values is not worth a prepared statement of its own.
        is_prepared = None if parameters else False
        try:
            cursor: psycopg.Cursor[tuple[Any, ...]] = self._connection.execute(
                dialect.query(sql), tuple(map(dialect.value, parameters)), prepare=is_prepared
            )
        except psycopg.Error as error:  # an earlier one's, whose answer came by itself
            meaning = self._meaning(error)
            with contextlib.suppress(psycopg.Error):
                self._pipeline.sync()  # until then the server does nothing at all, not even take back
            raise meaning from error
        self._sent.append((cursor, partial(in_vain, parameters) if in_vain else None))
        return cursor

    def ask(self, sql: str, parameters: tuple[object, ...] = ()) -> Cursor:
        if not parameters and (answer := self._answered.pop(sql, None)) is not None:
            return answer
        cursor: Cursor = self.send(sql, parameters)
        self.settle()
        return cursor

    def settle(self) -> None:
        """All that was sent is answered. Raises what the first that was refused means."""
        if self._sent:
            self._bring(self._pipeline.sync)

    def end(self) -> None:
        """The same, and the way is closed."""
        self._bring(self._way.close)

    def _bring(self, answers: Callable[[], None]) -> None:
        try:
            answers()
        except psycopg.Error as error:
            raise self._meaning(error) from error
        finally:
            self._sent.clear()

    def _meaning(self, error: Exception) -> Exception:
        """Those before the one that was refused have their results; it and those behind it have none."""
        refused, self._sent = [why for cursor, why in self._sent if cursor.pgresult is None], []
        if refused and refused[0] is not None and isinstance(error, psycopg.IntegrityError):
            return refused[0]()
        return error
