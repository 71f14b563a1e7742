"""Streams end with the credential that opened them, with a reason, whichever route or mounted application they are."""

from __future__ import annotations

import asyncio

import pytest
from starlette.responses import PlainTextResponse, StreamingResponse

from palyra.daemon import holding
from palyra.daemon.auth import Caller, Proof
from palyra.daemon.holding import Held, closing_event, lapse_of, while_held
from palyra.daemon.sessions import COOKIE
from palyra.errors import StateError
from tests.daemons import AGENT, OPERATOR, daemon
from tests.promises import promise


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(holding, "LOOK_S", 0.02)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with daemon(tmp_path_factory.mktemp("holding") / "home") as made:
        yield made


SLOW = {"tool": "palyra.process.run", "input": {"command": "sleep", "args": ["30"]}}


def place(served) -> str:
    folder = served.state.installation.home.root.parent / "work"
    folder.mkdir(exist_ok=True)
    return str(folder)


def follow_then(served, take_away, *, path: str = "", **credential) -> tuple[list[str], str]:
    """Follow a call that goes on, take the credential away, and read the stream to its end: (events, reason)."""

    async def work():
        secret = (await served.state.tokens.create(principal=AGENT, operator=False, by=OPERATOR))[1]
        folder = place(served)
        begun = await served.asking("POST", "/v1/calls", token=secret, json=SLOW | {"workspace": folder, "wait": False})
        call_id = begun.json()["call_id"]
        stream = asyncio.ensure_future(served.asking("GET", path or f"/v1/calls/{call_id}/stream", **credential))
        await asyncio.sleep(0.1)
        assert not stream.done(), "it is followed while the credential holds"
        await take_away()
        answer = await asyncio.wait_for(stream, 20)
        assert served.state.calls.find(call_id) is not None, "who only followed it does not end it"
        await served.asking("POST", f"/v1/calls/{call_id}/cancel", token=secret)
        return answer.text

    text = served.run(work())
    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    return names, text


PATHS = ["", "/console/v1/events"]


@promise("daemon.revoked-streams")
@pytest.mark.parametrize("path", PATHS)
def test_a_feed_ends_when_its_token_is_revoked(served, path):
    token, secret = served.run(served.state.tokens.create(principal=OPERATOR, operator=True, by=OPERATOR))
    names, text = follow_then(
        served, lambda: served.state.tokens.revoke(token.token_id, by=OPERATOR), path=path, token=secret
    )
    assert names[-1] == "closed"
    assert text.endswith('data: {"reason":"token_revoked","message":"The token was revoked."}\n\n')


@promise("daemon.revoked-streams")
@pytest.mark.parametrize("path", PATHS)
def test_a_feed_ends_when_its_token_expires(served, path):
    _, secret = served.run(served.state.tokens.create(principal=OPERATOR, operator=True, by=OPERATOR, lifetime_ms=1000))
    names, text = follow_then(served, lambda: asyncio.sleep(0), path=path, token=secret)
    assert (names[-1], '"token_expired"' in text) == ("closed", True)


@promise("daemon.revoked-streams")
@pytest.mark.parametrize("path", PATHS)
def test_a_feed_of_the_console_ends_at_logout(served, path):
    session = served.login()

    async def log_out():
        answer = await served.asking("POST", "/console/logout", session=session, data={"csrf": session[1]})
        assert answer.status_code == 303, answer.text

    names, text = follow_then(served, log_out, path=path, session=session)
    assert (names[-1], '"session_ended"' in text) == ("closed", True)


def test_the_last_event_bears_no_id_so_a_listener_goes_on_where_it_was():
    assert closing_event("token_revoked").startswith(b"event: closed\ndata: {")


def test_a_call_that_ends_with_its_listener_ends_with_the_listeners_credential(served):
    async def work():
        token, secret = await served.state.tokens.create(principal=AGENT, operator=False, by=OPERATOR)
        folder = place(served)
        stream = asyncio.ensure_future(
            served.asking(
                "POST",
                "/v1/calls",
                token=secret,
                json=SLOW | {"workspace": folder},
                headers={"Accept": "text/event-stream"},
            )
        )
        await asyncio.sleep(0.1)
        await served.state.tokens.revoke(token.token_id, by=OPERATOR)
        text = (await asyncio.wait_for(stream, 20)).text
        async with asyncio.timeout(20):
            while served.state.calls.count:
                await asyncio.sleep(0.02)
        return text

    assert "event: closed" in served.run(work())


@promise("daemon.revoked-streams")
def test_a_session_ends_for_its_feed_with_the_token_that_opened_it(served):
    token = served.run(served.state.tokens.create(principal=OPERATOR, operator=True, by=OPERATOR))[0]
    secret, session = served.run(served.state.sessions.open(OPERATOR, token.token_id))
    caller = Caller(principal=OPERATOR, operator=True, proof=Proof.SESSION, session=session)
    assert lapse_of(served.state, caller, {COOKIE: secret}) is None
    served.run(served.state.tokens.revoke(token.token_id, by=OPERATOR))
    assert lapse_of(served.state, caller, {COOKIE: secret}) == "token_revoked"


def test_the_sockets_owner_keeps_its_streams(served):
    assert lapse_of(served.state, Caller(principal=OPERATOR, operator=True, proof=Proof.PEER), {}) is None


# ── whatever is behind it ──


async def _silence():
    yield b": begun\n\n"
    await asyncio.Event().wait()


async def _sent(app, lapse) -> list:
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        await asyncio.Event().wait()

    await asyncio.wait_for(while_held(app, {"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send, lapse), 20)
    return sent


def test_what_is_no_stream_is_never_cut():
    async def slow(scope, receive, send):
        await asyncio.sleep(0.1)
        await PlainTextResponse("whole")(scope, receive, send)

    sent = asyncio.run(_sent(slow, lambda: "token_revoked"))
    assert sent[-1]["body"] == b"whole"


@promise("daemon.revoked-streams")
def test_a_listener_that_does_not_read_is_cut_off_too(monkeypatch):
    """Else a revoked token's stream would live as long as its holder leaves its own buffer full."""
    monkeypatch.setattr(holding, "LAST_WORD_S", 0.05)

    async def work():
        async def stuck(message):
            if message["type"] == "http.response.body":
                await asyncio.Event().wait()

        async def receive():
            await asyncio.Event().wait()

        app = StreamingResponse(_silence(), media_type="text/event-stream")
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
        await asyncio.wait_for(while_held(app, scope, receive, stuck, lambda: "token_revoked"), 20)

    asyncio.run(work())


@promise("daemon.revoked-streams")
def test_a_stream_whose_credential_cannot_be_looked_at_is_cut():
    """The look would never come again, and a revoked token's stream would go on for ever."""

    def broken():
        raise StateError("The database cannot be read.")

    sent = asyncio.run(_sent(StreamingResponse(_silence(), media_type="text/event-stream"), broken))
    assert sent[-1]["body"] == closing_event("not_known")


def test_a_failure_behind_a_stream_is_not_swallowed():
    async def broken(scope, receive, send):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        asyncio.run(_sent(broken, lambda: None))


def test_other_kinds_of_connections_pass():
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["type"])

    asyncio.run(Held(app, None)({"type": "websocket"}, None, None))
    assert seen == ["websocket"]
