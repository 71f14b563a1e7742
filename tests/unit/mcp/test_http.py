"""Bodies of MCP over HTTP: in time, and from whoever still may send them."""

from __future__ import annotations

import asyncio

import pytest

from palyra.errors import Reason, Rejected
from palyra.mcp import http
from palyra.mcp.http import _timed

TAKEN = Rejected(Reason.CAPABILITY_DENIED, "The token that asked for this call no longer holds.")
WHOLE = {"type": "http.request", "body": b"{}", "more_body": False}
GONE = {"type": "http.disconnect"}


async def heard(lapse, *, after_s: float = 0.0):
    async def receive():
        await asyncio.sleep(after_s)
        return WHOLE

    return await _timed(receive, lapse)()


@pytest.mark.parametrize(
    ("lapse", "slow", "came"),
    [
        (lambda: TAKEN, True, GONE),
        (lambda: None, True, WHOLE),
        (None, True, WHOLE),
        (lambda: TAKEN, False, WHOLE),
    ],
)
def test_a_request_that_was_held_open_half_sent_is_nothing_once_its_token_is_revoked(monkeypatch, lapse, slow, came):
    """What comes at once was let in a blink ago."""
    monkeypatch.setattr(http, "BLINK_US", 10_000 if slow else 60_000_000)
    assert asyncio.run(heard(lapse, after_s=0.02)) == came


def test_a_body_that_never_comes_is_a_client_that_left(monkeypatch):
    monkeypatch.setattr(http, "BODY_TIMEOUT_S", 0.01)
    assert asyncio.run(heard(None, after_s=60)) == GONE
