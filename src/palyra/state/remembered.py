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
Question = tuple[str, tuple[object, ...]]


class Asked(Protocol):
    """The writer's side."""

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Row]: ...

    def moment(self) -> object:
        """Another value after every commit, whoever made it; None where that cannot be told."""


class Remembered:
    """One for each kind of question: its answers are dropped together."""

    def __init__(self, writer: Asked) -> None:
        self._writer = writer
        self._known: tuple[object, dict[Question, list[Row]]] = (None, {})
        """Of one moment; another has a dictionary of its own, so that a thread that read before it keeps its answer
        where nobody looks any more."""

    def rows(self, sql: str, parameters: tuple[object, ...] = ()) -> list[Row]:
        moment = self._writer.moment()
        if moment is None:
            return self._writer.rows(sql, parameters)
        known = self._known
        if moment != known[0]:
            known = self._known = (moment, {})
        answers, question = known[1], (sql, parameters)
        found = answers.get(question)
        if found is None:
            # The moment was looked at first: what is committed between the two is another moment for the next question.
            found = self._writer.rows(sql, parameters)
            _keep(answers, question, found)
        return found


def _keep(answers: dict[Question, list[Row]], question: Question, found: list[Row]) -> None:
    """Nothing found is not kept: whoever guesses would fill the memory with what is not there."""
    if found:
        if len(answers) >= MAX_QUESTIONS:
            answers.clear()
        answers[question] = found
