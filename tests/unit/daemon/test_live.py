"""Calls under way: what is over is gone by itself."""

from __future__ import annotations

import gc

import pytest

from palyra.daemon.live import LiveCall
from palyra.engine.trip import CallRequest, Trip
from palyra.model.outcome import Outcome
from tests.daemons import AGENT

ECHO = {"tool": "palyra.echo", "input": {"hello": "world"}}
REFUSED = {"tool": "palyra.process.run", "input": {"command": "no-such-program"}}


@pytest.fixture
def only_counting():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def _alive() -> dict[int, object]:
    return {id(one): one for one in gc.get_objects() if isinstance(one, LiveCall | CallRequest | Trip | Outcome)}


@pytest.mark.parametrize("body", [ECHO, REFUSED, ECHO | {"wait": False}], ids=["made", "refused", "not waited for"])
def test_a_call_that_is_over_leaves_nothing_for_the_collector(served, only_counting, body):
    """In circles, a daemon's calls stopped all others for a tenth of a second while somebody looked for them."""
    token, calls, before = served.token(AGENT), served.state.calls, _alive()
    for _ in range(3):
        assert served.ask("POST", "/v1/calls", token=token, json=body).status_code in (200, 202)
    served.run(calls.finish(within_s=10))
    calls.stopping = False
    calls._ended.clear()
    assert [type(one).__name__ for number, one in _alive().items() if number not in before] == []
