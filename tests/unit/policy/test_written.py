"""A request written around what changes is, byte for byte, the request written whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from palyra.canon import MAX_INT
from palyra.model.call import parse_principal
from palyra.model.run_facts import RunFacts, RunLabel
from palyra.policy.request import ATTRIBUTES, EXECUTE, MAX_TEXT, Request, ask_again
from palyra.policy.written import write_with_holes

texts = st.text(st.characters(codec="utf-8"), max_size=12)
VALUES: dict[type, st.SearchStrategy[Any]] = {str: texts, bool: st.booleans(), int: st.integers(0, MAX_INT)}
counts = st.integers(0, MAX_INT)


def whole(request: Request) -> bytes:
    return orjson.dumps(request.as_json(), option=orjson.OPT_SORT_KEYS)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    return Request(
        principal=parse_principal("agent:demo"),
        roles=tuple(draw(st.lists(texts, max_size=2))),
        action=EXECUTE,
        tool=draw(texts),
        groups=("palyra", "100%"),
        context={name: draw(VALUES[kind]) for name, kind in ATTRIBUTES.items()},
    )


@given(requests(), counts, counts, counts, counts, st.integers(0, 23), st.sets(st.sampled_from(RunLabel)))
def test_a_request_asked_again_is_written_as_it_would_be_whole(first, used, most, calls, denials, hour, labels):
    written = write_with_holes(first)
    facts = RunFacts(labels=frozenset(labels), calls_last_minute=calls, denials_last_minute=denials)
    again = ask_again(first, run_id="one", calls_used=used, calls_max=most, hour=hour, run=facts)
    once_more = ask_again(again, run_id='a "%d', calls_used=most, calls_max=used, hour=hour, run=facts)
    for one in (first, again, once_more):
        assert written.bytes_of(one) == whole(one)
    assert write_with_holes(once_more).bytes_of(again) == whole(again)


def test_another_request_is_not_taken_for_it():
    context = {name: kind() for name, kind in ATTRIBUTES.items()}
    first = Request(
        principal=parse_principal("agent:demo"), roles=(), action=EXECUTE, tool="t", groups=(), context=context
    )
    again = ask_again(first, run_id="one", calls_used=1, calls_max=2, hour=3, run=RunFacts())
    written = write_with_holes(first)
    others = (
        first.with_context(approved=True),
        again.with_context(approved=True),
        again.with_context(program="x" * MAX_TEXT),
        replace(again, tool="u"),
        replace(first, roles=("agent",)),
    )
    assert [written.bytes_of(one) for one in others] == [None] * len(others)
