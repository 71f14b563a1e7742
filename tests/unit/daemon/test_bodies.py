"""Bodies of many requests at once: bounded together, a share for each, given back whatever comes of the request."""

from __future__ import annotations

import asyncio

import pytest

from palyra.daemon.auth import CALLER, Caller, Proof
from palyra.daemon.bodies import Bodies, Counted
from palyra.daemon.console.login import MAX_LOGIN_BYTES
from palyra.daemon.routes import Refused
from tests.promises import promise

ONE, TWO = (Caller(principal=name, operator=False, proof=Proof.TOKEN) for name in ("agent:one", "agent:two"))


@promise("daemon.bounded-memory")
def test_nobody_takes_more_than_three_quarters_and_all_have_one_bound():
    bodies = Bodies(100)
    with bodies.hold(ONE) as first:
        first.add(75)
        with pytest.raises(Refused) as refused:
            first.add(1)
        assert (refused.value.status, refused.value.code) == (429, "BUSY")
        with bodies.hold(TWO) as second:
            second.add(25)
            with pytest.raises(Refused):
                second.add(1)
    with bodies.hold(ONE) as again:
        again.add(75)


@promise("daemon.bounded-memory")
def test_what_is_mounted_counts_too_and_gives_back_what_it_took():
    bodies, seen, sent = Bodies(100), [], []

    async def app(scope, receive, send):
        scope[CALLER] = ONE
        seen.extend([(await receive())["type"] for _ in range(4)])
        await send({"type": "http.response.start", "status": 500, "headers": []})
        raise RuntimeError("whatever comes of it")

    async def receive():
        return {"type": "http.request", "body": b"x" * 30, "more_body": True}

    async def send(message):
        sent.append(message)

    with pytest.raises(RuntimeError):
        asyncio.run(Counted(app, bodies, answer=Refused.response)({"type": "http"}, receive, send))
    assert seen == ["http.request", "http.request", "http.disconnect", "http.disconnect"]
    assert ([one.get("status") for one in sent], b"BUSY" in sent[-1]["body"]) == ([429, None], True), "told why, once"
    with bodies.hold(ONE) as again:
        again.add(75)


@promise("daemon.bounded-memory")
def test_many_large_bodies_are_refused_before_they_are_kept(served):
    secret = served.token()
    served.state.bodies = Bodies(1 << 20)

    async def story():
        first = asyncio.Event()

        async def never_ends():
            yield b'{"tool": "palyra.echo", "input": {"a": "' + b"x" * 700_000
            first.set()
            await asyncio.sleep(60)

        waits = asyncio.ensure_future(served.asking("POST", "/v1/calls", token=secret, content=never_ends()))
        await first.wait()
        second = await served.asking("POST", "/v1/calls", token=secret, content=b"x" * 700_000)
        waits.cancel()
        await asyncio.wait([waits])
        third = await served.asking("POST", "/v1/calls", token=secret, content=b"x" * 700_000)
        return second.status_code, third.status_code

    try:
        assert served.run(story()) == (429, 400)
    finally:
        served.state.bodies = Bodies()


@promise("daemon.bounded-memory")
def test_who_has_not_logged_in_sends_a_small_form_or_none(served):
    form = b"token=" + b"x" * MAX_LOGIN_BYTES
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert served.ask("POST", "/console/login", content=form, headers=headers).status_code == 413
