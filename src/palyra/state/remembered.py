"""Rows that are asked for with every call and seldom change: read again only after somebody has committed something.

The sign is the database's own moment (state/log_index): what every commit changes before it is acknowledged, whichever
process made it. It is looked at before every answer, so what was committed before a question is in its answer, as if
it had been read. Inside a transaction, where changes may be undone again, and on a server, which gives no such sign,
nothing is remembered.

Not here: what the rows mean, and when they hold (tokens/store, wiring/standing).
"""

from __future__ import annotations

from typing import Any, Protocol

MAX_QUESTIONS = 256

Row = tuple[Any, ...]


class Asked(Protocol):
    """The writer's side."""

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Row]: ...

    def moment(self) -> object:
        """Another value after every commit, whoever made it; None where that cannot be told."""


class Remembered:
    """One for each kind of question: its answers are dropped together."""

    def __init__(self, writer: Asked) -> None:
        self._writer = writer
        self._moment: object = None
        self._found: dict[tuple[str, tuple[object, ...]], list[Row]] = {}

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Row]:
        moment = self._writer.moment()
        if moment is None:
            return self._writer.rows(sql, parameters)
        if moment != self._moment:
            self._found.clear()
            self._moment = moment
        question = (sql, parameters)
        found = self._found.get(question)
        if found is None:
            # The moment was looked at first: what is committed between the two is another moment for the next question.
            found = self._writer.rows(sql, parameters)
            self._keep(question, found)
        return found

    def _keep(self, question: tuple[str, tuple[object, ...]], found: list[Row]) -> None:
        """Nothing found is not kept: whoever guesses would fill the memory with what is not there."""
        if found:
            if len(self._found) >= MAX_QUESTIONS:
                self._found.clear()
            self._found[question] = found
