"""A record becomes a view whatever stands in it: records come from older versions, other doors and hostile tools."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palyra.daemon.console.call_view import Part, Reached, call_view, parts_of, reached_of, steps_of
from palyra.daemon.console.plots import Step

KEYS = st.sampled_from(
    "outcome details entries output attestation usage egress connections stdout stderr result message hint plan "
    "sandbox_enforcement receipt predicate place at_unix_ms executed_at_unix_ms wall_us index host port".split()
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, ANYTHING, max_size=6))
def test_any_record_becomes_a_view(record):
    view = call_view(record, "a.tool", None)
    assert view.tool == "a.tool"


def test_a_program_has_streams_and_a_plugin_a_result():
    assert parts_of({"stdout": "a", "stdout_bytes": 1, "stderr": "", "stderr_bytes": 0}) == (
        Part(name="stdout", text="a", bytes=1, source="stdout"),
        Part(name="stderr", text="", bytes=0, source="stderr"),
    )
    assert parts_of({"result": {"n": 1}, "exit_code": 0})[0].text == '{\n  "n": 1\n}'
    assert parts_of({}) == ()


def test_connections_are_told_with_their_verdict():
    output = {"egress": {"connections": [{"host": "h", "port": 443, "verdict": "denied", "bytes_up": 1}, "odd"]}}
    assert reached_of(output) == (Reached(host="h", port="443", verdict="denied", bytes_up=1, bytes_down=0),)


def test_steps_follow_the_times_of_the_entries():
    def entry(at):
        return {"index": 1, "entry": {"predicate": {"place": {"at_unix_ms": at}}}}

    steps = steps_of([entry(1010), entry(1050)], {"executed_at_unix_ms": 1000}, {"usage": {"wall_us": 30_000}})
    assert steps == (
        Step(name="decided and planned", begin_us=0, end_us=10_000, part="wait"),
        Step(name="ran", begin_us=10_000, end_us=40_000, part="run"),
        Step(name="attested, recorded", begin_us=40_000, end_us=50_000, part="wait"),
    )
    (refused,) = steps_of([entry(1004)], {"executed_at_unix_ms": 1000}, {})
    assert refused.part == "refused"
