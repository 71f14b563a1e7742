"""Exports: whole, in part, or of some calls; a line missing, added, moved or changed is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import pytest

from palyra.journal.checkpoint import sign_head
from palyra.journal.export import MAX_SELECTED, Shown, check_lines, export_lines, selection_lines
from palyra.journal.merkle import Frontier
from palyra.signing import NoteSigner, NoteVerifier, SigningKey
from tests.promises import promise
from tests.unit.journal.evidence import Evidence, make_evidence


@pytest.fixture
def evidence(home: Path) -> Iterator[Evidence]:
    made = make_evidence(home)
    yield made
    made.writer.close()


def whole(evidence: Evidence, first: int = 0) -> list[bytes]:
    begin = evidence.tree.frontier(first)
    return list(export_lines(evidence.bodies()[first:], evidence.head, begin=begin, links=()))


def chosen(evidence: Evidence) -> list[bytes]:
    entries = [entry for call_id in evidence.calls for entry in evidence.lookup.by_call(call_id)]
    shown = [Shown(e.index, e.body, evidence.tree.inclusion(e.index, evidence.head)) for e in entries]
    return list(selection_lines(shown, evidence.head, links=()))


def check(lines: list[bytes], held: NoteVerifier) -> list[str]:
    report = check_lines(orjson.loads(lines[0]), iter(lines[1:]), held)
    return [finding.code for finding in report.findings]


def test_a_whole_export_holds_and_every_line_is_the_bytes_that_were_signed(evidence: Evidence) -> None:
    lines = whole(evidence)
    assert check(lines, evidence.writer.home.verifier) == []
    assert [line[:-1] for line in lines[1:-1]] == evidence.bodies()
    assert orjson.loads(lines[-1]) == {"end": True, "count": 16}


@pytest.mark.parametrize("first", [1, 5, 8, 15])
def test_an_export_that_begins_later_holds_on_the_tree_before_it(evidence: Evidence, first: int) -> None:
    lines = whole(evidence, first)
    assert check(lines, evidence.writer.home.verifier) in ([], ["UNASKED"])  # its intent may lie before
    header = orjson.loads(lines[0])
    assert (header["first"], header["count"]) == (first, 16 - first)


@pytest.mark.parametrize("first", [0, 9, 16])
def test_what_is_said_to_be_shown_is_what_an_export_shows(evidence: Evidence, first: int) -> None:
    """Its beginning cut off on the way, the tree before it put in its place: it was said to hold all entries."""
    lines = whole(evidence, first)
    report = check_lines(orjson.loads(lines[0]), iter(lines[1:]), evidence.writer.home.verifier)
    assert (report.findings, report.entries) == ((), 16 - first)


def test_a_selection_shows_some_calls_and_proves_them_in_the_whole(evidence: Evidence) -> None:
    lines = chosen(evidence)
    assert check(lines, evidence.writer.home.verifier) == []
    assert orjson.loads(lines[0])["indices"] == [5, 6, 7, 8]
    assert b"test.0" not in b"".join(lines)


def resized(header: bytes, **fields: object) -> bytes:
    return orjson.dumps(orjson.loads(header) | fields) + b"\n"


CHANGES: list[Callable[[list[bytes]], list[bytes]]] = [
    *(lambda lines, at=at: lines[:at] + lines[at + 1 :] for at in range(1, 6)),
    lambda lines: lines[:-1],
    lambda lines: [*lines[:-1], lines[-2], lines[-1]],
    lambda lines: [*lines, lines[-1]],
    lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    lambda lines: [lines[0], lines[1].replace(b"urn:palyra", b"urn:Palyra"), *lines[2:]],
    lambda lines: [*lines[:-1], b'{"end":true,"count":3}\n'],
    lambda lines: [*lines[:-1], b'{"end":true,"count":true}\n'],
    lambda lines: [*lines[:-2], lines[-2][:-1]],
    lambda lines: [lines[0], lines[1][:-1] + b" " * 70_000 + b"\n", *lines[2:]],
    lambda lines: [resized(lines[0], count=4), *lines[1:]],
    lambda lines: [resized(lines[0], first=1), *lines[1:]],
    lambda lines: [resized(lines[0], count=-1), *lines[1:]],
    lambda lines: [resized(lines[0], count=10**15), *lines[1:]],
    lambda lines: [resized(lines[0], count="16"), *lines[1:]],
    lambda lines: [resized(lines[0], more=1), *lines[1:]],
    lambda lines: [resized(lines[0], checkpoint=orjson.loads(lines[0])["checkpoint"].replace("16", "17")), *lines[1:]],
    lambda lines: [resized(lines[0], frontier=["A" * 43 + "="]), *lines[1:]],
    lambda lines: [resized(lines[0], keys=[[]] * 1001), *lines[1:]],
]


@promise("journal.edited-evidence")
@pytest.mark.parametrize("change", CHANGES)
def test_an_export_that_was_edited_does_not_verify(
    evidence: Evidence, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    assert check(change(whole(evidence)), evidence.writer.home.verifier) != []


SELECTED: list[Callable[[list[bytes]], list[bytes]]] = [
    lambda lines: [lines[0], *lines[2:]],
    lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    lambda lines: [*lines, b"\n"],
    lambda lines: [resized(lines[0], indices=[5, 5, 7, 8]), *lines[1:]],
    lambda lines: [resized(lines[0], indices=[5, 6, 7, "8"]), *lines[1:]],
    lambda lines: [resized(lines[0], proofs=[]), *lines[1:]],
    lambda lines: [resized(lines[0], count=MAX_SELECTED + 1, indices=[0] * (MAX_SELECTED + 1)), *lines[1:]],
    lambda lines: lines[:2],
]


@promise("journal.edited-evidence")
@pytest.mark.parametrize("change", SELECTED)
def test_a_selection_that_was_edited_does_not_verify(
    evidence: Evidence, change: Callable[[list[bytes]], list[bytes]]
) -> None:
    assert check(change(chosen(evidence)), evidence.writer.home.verifier) != []


@promise("journal.replaced-key")
def test_an_export_by_another_key_of_the_same_origin_does_not_verify(evidence: Evidence) -> None:
    other = NoteSigner(evidence.writer.home.origin, SigningKey.generate()).verifier
    assert check(whole(evidence), other) == check(chosen(evidence), other) == ["EXPORT"]


def test_what_was_appended_after_the_head_is_not_shown(evidence: Evidence) -> None:
    head, bodies = evidence.head, evidence.bodies()
    lines = list(export_lines([*bodies, b"{}"], head, begin=Frontier(), links=()))
    assert check(lines, evidence.writer.home.verifier) == []


@pytest.mark.parametrize(
    "end",
    [
        b'{"end":1,"count":%d}\n',
        b'{"end": true, "count": %d}\n',
        b'{"count":%d,"end":true}\n',
        b'{"end":true,"count":7,"count":%d}\n',
        b'{"end":true,"count":%d}',
        b'{"end":true,"count":%d}\r\n',
    ],
)
def test_an_end_has_one_spelling(evidence: Evidence, end: bytes) -> None:
    lines = list(export_lines(evidence.bodies(), evidence.head, begin=Frontier(), links=[]))
    header, count = orjson.loads(lines[0]), len(lines) - 2
    assert check_lines(header, iter(lines[1:]), evidence.keys.newest).findings == ()
    lines[-1] = end % count
    assert [one.code for one in check_lines(header, iter(lines[1:]), evidence.keys.newest).findings] == ["EXPORT"]


def test_how_many_entries_are_missing_is_said(evidence: Evidence) -> None:
    lines = whole(evidence)
    report = check_lines(orjson.loads(lines[0]), iter([*lines[1:3], *lines[5:]]), evidence.writer.home.verifier)
    assert [finding.detail for finding in report.findings] == [
        "It holds 14 of the 16 entries that its header announces: 2 missing."
    ]


# ── a checkpoint that its reader kept ──


def note_of(evidence: Evidence, size: int) -> str:
    return evidence.tree.note(size)


def held_against(evidence: Evidence, lines: list[bytes], known: list[str]) -> tuple[list[str], int]:
    report = check_lines(orjson.loads(lines[0]), iter(lines[1:]), evidence.writer.home.verifier, known)
    return [finding.code for finding in report.findings], report.anchored


@pytest.mark.parametrize(("first", "size"), [(0, 16), (0, 5), (5, 5), (5, 9)])
def test_an_export_holds_the_head_that_its_reader_saw_before(evidence: Evidence, first: int, size: int) -> None:
    lines = whole(evidence, first)
    assert held_against(evidence, lines, [note_of(evidence, size)]) == ([], size)


def test_an_export_that_is_another_journals_or_an_older_one_or_begins_too_late_does_not(
    evidence: Evidence, tmp_path: Path
) -> None:
    signer = NoteSigner(evidence.writer.home.verifier.name, evidence.writer.home.key)
    other = sign_head(signer, 9, bytes(32))
    later, stranger = sign_head(signer, 17, bytes(32)), make_evidence(tmp_path / "other")
    assert held_against(evidence, whole(evidence), [other]) == (["FORK"], 0)
    assert held_against(evidence, whole(evidence, 9), [other]) == (["FORK"], 0)
    assert held_against(evidence, whole(evidence), [note_of(evidence, 5), later]) == (["TRUNCATED"], 5)
    for lines, note in (
        (whole(evidence, 9), note_of(evidence, 5)),
        (chosen(evidence), note_of(evidence, 5)),
        (whole(evidence), note_of(stranger, 5)),
    ):
        assert held_against(evidence, lines, [note]) == (["EXPORT"], 0)
    stranger.writer.close()
