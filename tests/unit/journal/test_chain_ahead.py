"""Entries written around members that were made ahead are, byte for byte, the entries written whole."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.canon import MAX_DEPTH, Json, canonical_around, canonical_strict, made_ahead
from palyra.journal.chain import ACT, INTENT, MAX_WRITTEN_BYTES, RESULT, entry_bytes
from palyra.journal.commitments import commit_value
from palyra.journal.entry import parse_entry
from palyra.model.record import EntryDraft

PLACE = {"index": 7, "sequence": 3, "at_unix_ms": 1_700_000_000_000}
leaves = st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8)
names = st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=6)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3))


def draft(predicate, *, kind=INTENT, subject="call/01HF7YAT00000000000000CA11", ahead=()) -> EntryDraft:
    whole = EntryDraft(
        predicate_type=kind,
        subject=subject,
        predicate=predicate,
        run_id="r",
        commitments=(commit_value("input", b"{}", bytes(32)),),
    )
    return replace(whole, fixed={name: made_ahead(predicate[name]) for name in ahead})


def written_whole(draft: EntryDraft) -> bytes:
    with patch("palyra.journal.chain.fits_around", lambda *_: False):
        return entry_bytes(draft, **PLACE)


@given(st.dictionaries(names.filter(lambda name: name not in ("place", "commitments")), values, max_size=5), st.data())
def test_an_entry_written_around_is_the_entry_written_whole(predicate, data):
    ahead = data.draw(st.sets(st.sampled_from(sorted(predicate)))) if predicate else set()
    kind = data.draw(st.sampled_from([INTENT, RESULT, ACT]))
    body = entry_bytes(draft(predicate, kind=kind, ahead=ahead), **PLACE)
    assert body == written_whole(draft(predicate, kind=kind))
    assert parse_entry(body).index == 7


@pytest.mark.parametrize("subject", ['call/"', "call/\\", "call/é", "call/\n", "", "home"])
@pytest.mark.parametrize("named", [None, "a" * 64, 'x","name":"forged', 7])
def test_odd_subjects_and_digests_are_written_as_ever(subject, named):
    predicate = {"limits": {"a": 1}, "execution_sha256": named}
    whole = written_whole(draft(predicate, subject=subject))
    assert entry_bytes(draft(predicate, subject=subject, ahead=["limits"]), **PLACE) == whole
    assert entry_bytes(draft(predicate, subject=subject), **PLACE) == whole


@pytest.mark.parametrize("depth", range(10, 20))
def test_an_entry_is_never_written_deeper_than_it_may_be_read(depth):
    details = {}
    for _ in range(depth):
        details = {"a": details}
    body = entry_bytes(draft({"details": details}), **PLACE)
    assert body == written_whole(draft({"details": details}))
    assert parse_entry(body).index == 7


def test_an_entry_that_is_too_long_is_cut_as_ever():
    predicate = {"limits": {"a": 1}, "decision": {"policies": ["p" * 100] * 2000}}
    body = entry_bytes(draft(predicate, ahead=["decision"]), **PLACE)
    assert len(body) <= MAX_WRITTEN_BYTES
    assert body == written_whole(draft(predicate))


def test_what_is_no_json_is_not_written_around():
    assert canonical_around({"a": 1.5}, {}) is None
    assert canonical_around({"a": 2**60}, {}) is None
    assert canonical_around({"a": "é"}, {}) is None
    assert canonical_around({"a": b"bytes"}, {}) is None
    assert canonical_around({"b": 1}, {"a": made_ahead([1])}) == canonical_strict({"a": [1], "b": 1})


def test_what_is_too_deep_inside_an_entry_is_not_made_ahead() -> None:
    """By itself it would be deep enough to fit; with the entry's object and predicate around it, it is not."""
    value: Json = 1
    for _ in range(MAX_DEPTH - 2):
        value = [value]
    assert canonical_around({}, {"a": made_ahead(value)}) == canonical_strict({"a": value})
    with pytest.raises(ValueError, match="deep"):
        made_ahead([value])
