"""Entries: one form, always small enough, nothing in them that could be guessed."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from palyra.canon import sha256_hex
from palyra.journal.chain import ACT, INTENT, MAX_ENTRY_BYTES, MAX_WRITTEN_BYTES, RESULT, act_draft, entry_bytes
from palyra.journal.commitments import commit_value
from palyra.journal.entry import parse_entry
from palyra.model.record import EntryDraft
from tests.journaling import NOW, act, intent, result, ulid

CALL, RUN = ulid(1), ulid(2)


def written(draft: EntryDraft, index: int = 7, sequence: int | None = 3) -> bytes:
    return entry_bytes(draft, index=index, sequence=sequence, at_unix_ms=NOW)


@pytest.mark.parametrize(("draft", "kind"), [(intent(CALL, RUN), INTENT), (result(CALL, RUN), RESULT), (act(), ACT)])
def test_an_entry_is_an_in_toto_statement_in_canonical_form(draft: EntryDraft, kind: str) -> None:
    body = written(draft)
    statement = json.loads(body)
    assert rfc8785.dumps(statement) == body
    assert (statement["_type"], statement["predicateType"]) == ("https://in-toto.io/Statement/v1", kind)
    view = parse_entry(body)
    assert (view.kind, view.index, view.sequence, view.at_unix_ms, view.subject) == (kind, 7, 3, NOW, draft.subject)
    assert {name: view.predicate[name] for name in draft.predicate} == json.loads(json.dumps(dict(draft.predicate)))


def test_the_subject_of_a_result_has_the_digest_of_its_execution() -> None:
    assert json.loads(written(result(CALL, RUN)))["subject"] == [
        {"name": f"call/{CALL}", "digest": {"sha256": "2" * 64}}
    ]
    assert json.loads(written(intent(CALL, RUN)))["subject"] == [
        {"name": f"call/{CALL}", "digest": {"sha256": sha256_hex(f"call/{CALL}".encode())}}
    ]


def test_a_time_that_is_no_whole_number_never_enters_the_journal() -> None:
    draft = act_draft(act="x", actor="y", subject="home", details={})
    with pytest.raises(ValueError, match="float"):
        entry_bytes(draft, index=0, sequence=None, at_unix_ms=1.5)  # type: ignore[arg-type]


def test_calls_know_their_ids_and_acts_need_none() -> None:
    view = parse_entry(written(intent(CALL, RUN)))
    assert (view.call_id, view.run_id) == (CALL, RUN)
    view = parse_entry(written(act(), sequence=None))
    assert (view.call_id, view.run_id, view.sequence) == (None, None, None)


# ── commitments ──────────────────────────────────────────────────────────────


def test_an_entry_holds_macs_and_never_salts() -> None:
    secret = commit_value("input", b"1234", bytes(range(32)))
    body = written(replace(act(), commitments=(secret,)))
    assert json.loads(body)["predicate"]["commitments"] == {"input": secret.mac}
    assert bytes(range(32)).hex().encode() not in body


# ── always small enough ──────────────────────────────────────────────────────

wild = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800") | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text() | st.just("\udfff"), inner, max_size=6),
    max_leaves=40,
)


@given(st.dictionaries(st.text(max_size=8), wild, max_size=10), st.text(max_size=40))
def test_whatever_a_draft_holds_becomes_an_entry(details: dict[str, Any], subject: str) -> None:
    draft = act_draft(act="x", actor="y", subject=subject, details=details)
    body = written(draft)
    assert len(body) <= MAX_WRITTEN_BYTES
    assert parse_entry(body).index == 7
    assert body == written(draft)


@pytest.mark.parametrize(
    ("details", "trace"),
    [
        ({"text": "é" * 200_000}, "(197952 more)"),
        ({"list": list(range(100_000))}, '{"omitted":99744}'),
        ({"texts": ["x" * 5000] * 500}, '{"omitted":436}'),
        ({"big": 10**6000}, "0x"),
        ({f"name{number}": "y" * 300 for number in range(5000)}, '"omitted":4936'),
        ({"deep": [[[["z" * 400] * 9] * 9] * 9] * 9}, '"omitted'),
        ({"n" * 70_000: 1}, f'"{"n" * 128}"'),
    ],
)
def test_a_draft_that_is_too_long_is_cut_and_says_so(details: dict[str, Any], trace: str) -> None:
    body = written(act_draft(act="x", actor="y", subject="home", details=details))
    assert len(body) <= MAX_WRITTEN_BYTES
    assert parse_entry(body).predicate["act"] == "x"
    assert trace in body.decode()


def test_a_cut_keeps_the_ids_the_place_and_the_commitments() -> None:
    draft = intent(CALL, RUN)
    long = replace(draft, predicate={**draft.predicate, "tool": "t" * 100_000, "extra": ["e" * 1000] * 1000})
    view = parse_entry(written(long))
    assert (view.call_id, view.run_id, view.index, view.sequence) == (CALL, RUN, 7, 3)
    assert view.predicate["commitments"] == {c.field: c.mac for c in draft.commitments}
    assert view.predicate["extra"][-1] == {"omitted": 936}
    assert view.predicate["tool"] == "t" * 512 + "… (99488 more)"


def test_forty_eight_hopeless_fields_still_fit() -> None:
    predicate = {f"field{number}": [["w" * 120] * 8] * 8 for number in range(47)}
    body = written(EntryDraft(predicate_type=ACT, subject="s" * 9000, predicate=predicate))
    assert len(body) <= MAX_WRITTEN_BYTES
    assert parse_entry(body).predicate["field1"] == {"omitted_bytes": 7889}


@pytest.mark.parametrize(
    "draft",
    [
        EntryDraft(predicate_type="urn:palyra:other:v1", subject="s", predicate={}),
        EntryDraft(predicate_type=ACT, subject="s", predicate={"place": {}}),
        EntryDraft(predicate_type=ACT, subject="s", predicate={str(n): n for n in range(49)}),
    ],
)
def test_drafts_of_no_known_shape_are_a_mistake_of_ours(draft: EntryDraft) -> None:
    with pytest.raises(ValueError, match="not a draft"):
        written(draft)


# ── reading back ─────────────────────────────────────────────────────────────


def bent(change: Any) -> bytes:
    statement = json.loads(written(act()))
    change(statement)
    return orjson.dumps(statement, option=orjson.OPT_SORT_KEYS)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"1",
        b"\xff\xfe",
        b"{" * 5000,
        b"[" * 900 + b"]" * 900,
        written(act()) + b" ",
        b" " + written(act()),
        written(act()).replace(b'"act":"policy.swapped"', b'"act":"policy.swapped","act":"policy.swapped"'),
        written(act()).replace(b'"why":"test"', b'"why":1.5'),
        written(act()).replace(b'"why":"test"', b'"why":1e3'),
        written(act()).replace(b'"why":"test"', b'"why":9007199254740992'),
        written(act()).replace(b'"why":"test"', b'"why":"\\u0074est"'),
        written(act()).replace(b'"why":"test"', b'"why":"\\ud800"'),
        written(act()).replace(b'"why":"test"', '"wé":"test"'.encode()),
        written(act()).replace(b'"why":"test"', b'"why": "test"'),
        written(act()).replace(b'"why":"test"', b'"why":' + b"[" * 20 + b"]" * 20),
        bent(lambda s: s.update(_type="https://in-toto.io/Statement/v0.1")),
        bent(lambda s: s.update(extra=1)),
        bent(lambda s: s.update(predicateType="urn:palyra:other:v1")),
        bent(lambda s: s.update(predicateType=[])),
        bent(lambda s: s.update(subject=[])),
        bent(lambda s: s.update(subject=s["subject"] * 2)),
        bent(lambda s: s["subject"][0].update(name=5)),
        bent(lambda s: s["subject"][0]["digest"].update(sha256="0" * 64)),
        bent(lambda s: s.update(predicate=[])),
        bent(lambda s: s["predicate"].pop("place")),
        bent(lambda s: s["predicate"]["place"].pop("index")),
        bent(lambda s: s["predicate"]["place"].update(index=True)),
        bent(lambda s: s["predicate"]["place"].update(index="7")),
        bent(lambda s: s["predicate"]["place"].update(sequence="3")),
        bent(lambda s: s["predicate"]["place"].update(more=1)),
        b'{"a":"' + b"x" * MAX_ENTRY_BYTES + b'"}',
    ],
)
def test_bytes_that_we_would_not_have_written_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="entry"):
        parse_entry(body)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_no_bytes_crash_the_reader(body: bytes) -> None:
    with pytest.raises(ValueError, match="entry"):
        parse_entry(body)


@given(st.integers(0, 2**50), st.integers(0, 7))
def test_a_flipped_bit_is_another_entry_or_none(position: int, bit: int) -> None:
    body = bytearray(written(result(CALL, RUN)))
    body[position % len(body)] ^= 1 << bit
    try:
        view = parse_entry(bytes(body))
    except ValueError:
        return
    assert view != parse_entry(written(result(CALL, RUN)))
