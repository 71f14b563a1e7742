"""A second process for the audit of a large journal: it checks what is kept of each call, as claims of it arrive.

Rules: both processes read the same snapshot, or there is no second one: each says which head it sees before they begin,
and every change that Palyra makes moves the head. Claims go through a pipe in batches, so neither runs far ahead of the
other; findings come back once, at the end. The process is isolated Python that imports what this one imports from, less
the current folder (agents write there). Its death is `BesideLost`: whoever asked audits alone.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sqlite3
import subprocess  # noqa: TID251 - a program of our own, with a fixed argv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NoReturn

import orjson

from palyra.errors import StateError
from palyra.journal.audit_kept import Claim, Finding, Located
from palyra.state.connection import snapshot
from palyra.state.rows import JournalRows

BATCH = 512
ATTEMPTS = 50
_BOOT = """import sys, json
sys.path[:0] = json.loads(sys.argv[1])
from palyra.state.beside import serve
serve(sys.argv[2])"""


class BesideLost(Exception):
    """The second process could not be had, or is gone."""


class _Beside:
    """The claims' way there and the findings' way back."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._to, self._back = process.stdin, process.stdout
        self._batch: list[tuple[object, ...]] = []
        self._found: Sequence[Located] | None = None

    def say(self, line: bytes) -> bytes:
        """One line there, one line back."""
        try:
            self._to.write(line + b"\n")
            self._to.flush()
        except OSError as error:
            raise BesideLost from error
        answer = self._back.readline()
        if not answer.endswith(b"\n"):
            raise BesideLost
        return answer.rstrip(b"\n")

    def check(self, claim: Claim) -> None:
        self._batch.append(tuple(claim))  # orjson writes no named one
        if len(self._batch) >= BATCH:
            self._send()

    def findings(self) -> Sequence[Located]:
        if self._found is None:
            self._send()
            told = orjson.loads(self.say(b"end"))
            if told is None:  # it could not read on: the audit by one process says what the matter is
                raise BesideLost
            self._found = [(after, Finding(*finding)) for after, *finding in told]
        return self._found

    def _send(self) -> None:
        try:
            self._to.write(orjson.dumps(self._batch) + b"\n")
        except OSError as error:
            raise BesideLost from error
        self._batch = []


@contextlib.contextmanager
def begin_beside(database: Path) -> Iterator[tuple[sqlite3.Connection, _Beside]]:
    """A snapshot here, and a process that has the same. `BesideLost` where that cannot be."""
    with _started(database) as beside:
        for _ in range(ATTEMPTS):
            with snapshot(database) as connection:
                seen = _head(connection)  # a snapshot is of the moment of its first reading
                if beside.say(b"look") == seen:
                    yield connection, beside
                    return
    raise BesideLost


@contextlib.contextmanager
def _started(database: Path) -> Iterator[_Beside]:
    if not sys.executable:
        raise BesideLost
    places = [place for place in sys.path if os.path.isabs(place) and not _is_here(place)]
    argv = [sys.executable, "-I", "-S", "-B", "-c", _BOOT, orjson.dumps(places).decode(), str(database)]
    try:
        process = subprocess.Popen(  # noqa: S603
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd="/", env={}
        )
    except OSError as error:
        raise BesideLost from error
    with process:
        try:
            yield _Beside(process)
        finally:
            process.kill()  # it only reads
            with contextlib.suppress(OSError):
                process.communicate()


def _is_here(place: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samefile(place, ".")
    return False


def _head(connection: sqlite3.Connection) -> bytes:
    head = JournalRows(connection).head()
    return f"{head.size} {head.frontier.hex()}".encode()


# ── the second process ───────────────────────────────────────────────────────


def serve(database: str) -> NoReturn:
    """Look at a snapshot as often as asked, then check claims against the last one until there are no more."""
    gc.disable()
    told, answers = sys.stdin.buffer, sys.stdout.buffer
    line = told.readline()
    while line == b"look\n":
        with snapshot(Path(database)) as connection:
            _answer(answers, _head(connection))
            line = told.readline()
            if line != b"look\n" and line:
                _answer(answers, _check(JournalRows(connection), line, told))
                line = b""
    sys.exit(0)


def _check(rows: JournalRows, line: bytes, told: IO[bytes]) -> bytes:
    try:
        audit = rows.kept_audit()
        while line and line != b"end\n":
            for claim in orjson.loads(line):
                audit.check(Claim(*claim))
            line = told.readline()
    except (sqlite3.Error, StateError):
        while line and line != b"end\n":
            line = told.readline()
        return b"null"
    return orjson.dumps([(after, found.code, found.index, found.detail) for after, found in audit.findings()])


def _answer(answers: IO[bytes], line: bytes) -> None:
    answers.write(line + b"\n")
    answers.flush()
