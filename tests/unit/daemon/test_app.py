"""The door: hosts, origins, bodies, errors. Nothing internal leaks, and every answer is of the documented shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from starlette.responses import Response

from palyra.daemon.routes import FORM_TYPE, Answer, Asked, Model, Route, Who
from palyra.daemon.sessions import MAX_FAILURES, Failures
from tests.daemons import Daemon, daemon
from tests.promises import promise

ERROR_KEYS = {"code", "message", "hint", "fields"}


class Numbers(Model):
    one: int
    two: int = 2


async def fails(asked: Asked) -> Response:
    raise RuntimeError("the vault's passphrase is hunter2")


async def takes(asked: Asked) -> Response:
    return Response(f"{asked.body}".encode())


OK = {200: Answer(meaning="fine")}
EXTRA = (
    Route(method="GET", path="/fails", name="fails", who=Who.ANYBODY, handler=fails, summary="", answers=OK),
    Route(
        method="POST", path="/takes", name="takes", who=Who.OPERATOR, handler=takes, summary="", answers=OK,
        body=Numbers,
    ),
    Route(
        method="POST", path="/form", name="form", who=Who.OPERATOR, handler=takes, summary="", answers=OK,
        body=Numbers, accepts=FORM_TYPE, page=True,
    ),
    Route(
        method="GET", path="/page", name="page", who=Who.OPERATOR, handler=takes, summary="", answers=OK, page=True
    ),
)  # fmt: skip


@pytest.fixture(scope="module")
def door(tmp_path_factory):
    root = tmp_path_factory.mktemp("app") / "home"
    with daemon(root, EXTRA, max_body_bytes=1024, names=("palyra.example",)) as made:
        yield made


def error(response) -> dict:
    assert set(response.json()) == {"error"}
    assert set(response.json()["error"]) == ERROR_KEYS
    return response.json()["error"]


def test_an_error_of_ours_tells_nothing(door, caplog):
    response = door.ask("GET", "/fails")
    assert (response.status_code, error(response)["code"]) == (500, "INTERNAL")
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text, "the log says where it happened"


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1@evil.example", "[::1", "a b"]
)
def test_dns_rebinding_another_host_name_is_refused(door, host):
    response = door.ask("GET", "/fails", headers={"Host": host})
    assert (response.status_code, error(response)["code"]) == (403, "HOST_DENIED")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:9", "127.0.0.1:7142", "[::1]:7142", "palyra.example"])
def test_our_own_names_are_answered(door, host):
    assert door.ask("GET", "/nothing", headers={"Host": host}).status_code == 404


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "https://localhost:7142.evil.example", "file://"]
)
def test_a_page_of_another_origin_is_refused(door, origin):
    response = door.ask("GET", "/fails", headers={"Origin": origin})
    assert (response.status_code, error(response)["code"]) == (403, "ORIGIN_DENIED")


def test_our_own_pages_may_ask(door):
    sent = {"Origin": "http://localhost:7142"}
    session = door.login()
    response = door.ask("POST", "/takes", headers=sent, session=session, csrf=session[1], json={"one": 1})
    assert response.text == "one=1 two=2"


def test_a_wrong_method_names_the_right_ones(door):
    response = door.ask("DELETE", "/takes")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_every_answer_forbids_sniffing_framing_and_caching(door):
    for path in ("/nothing", "/fails", "/page"):
        headers = door.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


@promise("daemon.connection-bounds")
def test_the_credential_is_checked_before_the_body_is_read(door):
    async def body():
        raise AssertionError("the body was read")
        yield b""

    assert door.ask("POST", "/takes", content=body()).status_code == 401


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"", 400, "MALFORMED"),
        (b"{", 400, "MALFORMED"),
        (b'{"one": 1, "one": 2}', 400, "MALFORMED"),
        (b'{"one": NaN}', 400, "MALFORMED"),
        (b"\xff", 400, "MALFORMED"),
        (b"[" * 500, 400, "MALFORMED"),
        (b"{}", 422, "BAD_ARGUMENTS"),
        (b'{"one": "1"}', 422, "BAD_ARGUMENTS"),
        (b'{"one": true}', 422, "BAD_ARGUMENTS"),
        (b'{"one": 1, "surprise": 1}', 422, "BAD_ARGUMENTS"),
        (b'{"one": 1, "pad": "' + b"x" * 2000 + b'"}', 413, "TOO_LARGE"),
    ],
)
def test_a_body_that_is_not_what_is_documented(door, sent, status, code):
    response = door.ask("POST", "/takes", peer_uid=door.owner_uid, content=sent)
    assert (response.status_code, error(response)["code"]) == (status, code)


@promise("daemon.connection-bounds")
def test_a_body_without_a_length_is_counted(door):
    async def body():
        for _ in range(100):
            yield b" " * 100

    response = door.ask("POST", "/takes", peer_uid=door.owner_uid, content=body())
    assert response.status_code == 413


def test_wrong_fields_are_named(door):
    response = door.ask("POST", "/takes", peer_uid=door.owner_uid, json={"one": "x", "more": 1})
    assert {one["path"] for one in error(response)["fields"]} == {"one", "more"}


def test_a_form_carries_its_csrf_token_itself(door):
    session = door.login()
    good = {"one": "1", "csrf": session[1]}
    sent = {"Content-Type": FORM_TYPE}
    assert door.ask("POST", "/form", session=session, data=good, headers=sent).text == "one=1 two=2"
    for bad in ({"one": "1"}, {"one": "1", "csrf": "no"}, {"one": "1", "csrf": door.login()[1]}):
        response = door.ask("POST", "/form", session=session, data=bad, headers=sent)
        assert (response.status_code, "CSRF" in response.text) == (403, True)


def test_a_page_leads_to_the_login(door):
    response = door.ask("GET", "/page")
    assert (response.status_code, response.headers["location"]) == (303, "/console/login?next=%2Fpage")


def test_who_guesses_is_slowed_and_who_knows_is_not(door):
    door.state.failures = Failures(now_unix_ms=door.state.clock.now_unix_ms)
    answers = [door.ask("GET", "/page", token="wrong").status_code for _ in range(MAX_FAILURES + 2)]
    assert answers == [401] * MAX_FAILURES + [429, 429]
    known = door.token("user:operator", operator=True)
    assert door.ask("POST", "/takes", token=known, json={"one": 1}).status_code == 200


def test_a_session_that_ended_is_nobody(door):
    session = door.login()
    door.run(door.state.sessions.end(session[0]))
    assert door.ask("POST", "/takes", session=session, csrf=session[1], json={"one": 1}).status_code == 401


def test_two_routes_for_one_place_are_a_mistake(tmp_path):
    with pytest.raises(ValueError, match="two routes"), daemon(tmp_path / "home", (EXTRA[0], replace(EXTRA[0]))):
        pass


def test_a_head_request_is_answered_as_its_get(served: Daemon):
    assert served.ask("HEAD", "/healthz").headers == served.ask("GET", "/healthz").headers
