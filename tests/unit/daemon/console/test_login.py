"""Logging in: by a link that works once or an operator's token; no session can be planted, no link leads elsewhere."""

from __future__ import annotations

import pytest

from palyra.daemon.console.login import onward
from palyra.daemon.sessions import COOKIE, Failures
from tests.daemons import OPERATOR
from tests.markup import Markup
from tests.promises import promise


@pytest.fixture(autouse=True)
def nobody_failed_yet(lived):
    lived.daemon.state.failures = Failures(now_unix_ms=lived.daemon.state.clock.now_unix_ms)


def enter(lived, **fields: str):
    return lived.daemon.ask("POST", "/console/login", data=fields)


def cookie_of(answer) -> str:
    name, _, value = answer.headers["set-cookie"].partition(";")[0].partition("=")
    assert name == COOKIE
    return value


@promise("daemon.cross-site")
def test_a_link_works_once_and_only_by_the_forms_post(lived):
    code = lived.daemon.state.sessions.make_link(OPERATOR)
    for _ in range(3):
        page = lived.daemon.ask("GET", f"/console/login?code={code}")
        assert page.status_code == 200
        assert "set-cookie" not in page.headers, "who only looks at a link (a scanner, a preview) does not use it up"
        assert Markup(page.text).problems == []
    answer = enter(lived, code=code)
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")
    assert lived.page("/console", session=(cookie_of(answer), "")).status_code == 200
    assert enter(lived, code=code).status_code == 401


@promise("daemon.cross-site")
def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(lived):
    answer = enter(lived, token=lived.daemon.token(OPERATOR, operator=True))
    parts = {part.strip().lower() for part in answer.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/console"} <= parts


def test_behind_a_proxy_that_ends_tls_the_cookie_is_for_tls_alone(lived):
    token = lived.daemon.token(OPERATOR, operator=True)
    for origin, secure in (("https://localhost:7142", True), ("http://localhost:7142", False)):
        answer = lived.daemon.ask("POST", "/console/login", data={"token": token}, headers={"Origin": origin})
        assert ("secure" in answer.headers["set-cookie"].lower()) is secure, origin


def test_an_agents_token_is_no_login(lived):
    answer = enter(lived, token=lived.daemon.token("agent:curious"))
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert Markup(answer.text).problems == []


@promise("daemon.cross-site")
def test_a_planted_session_is_never_taken_over(lived):
    """Fixation: whatever cookie comes along, the id after login is a new one, and an older session ends."""
    planted = "a" * 64
    token = lived.daemon.token(OPERATOR, operator=True)
    answer = lived.daemon.ask("POST", "/console/login", session=(planted, ""), data={"token": token})
    assert cookie_of(answer) != planted
    assert lived.page("/console", session=(planted, "")).status_code == 303
    old = lived.daemon.login()
    answer = lived.daemon.ask("POST", "/console/login", session=old, data={"token": token})
    assert answer.status_code == 303
    assert lived.page("/console", session=old).status_code == 303, "the session it came with has ended"


@promise("daemon.cross-site")
def test_a_session_ends_with_the_token_that_opened_it(lived):
    """Also one that came by a link which that token had made, and by a link of that session."""
    token = lived.daemon.token(OPERATOR, operator=True)
    lived.daemon.state.listening = ["http://localhost:7142"]

    def by_link(**credential) -> str:
        url = lived.daemon.ask("POST", "/console/v1/links", **credential).json()["url"]
        return cookie_of(enter(lived, code=url.rpartition("=")[2]))

    first, second = cookie_of(enter(lived, token=token)), by_link(token=token)
    csrf = lived.daemon.state.sessions.find(second).csrf
    third = by_link(session=(second, csrf), csrf=csrf)
    for cookie in (first, second, third):
        assert lived.page("/console/tokens", session=(cookie, "")).status_code == 200
    lived.daemon.run(lived.daemon.state.tokens.revoke(token.split("_")[1], by=OPERATOR))
    for cookie in (first, second, third):
        assert lived.page("/console/tokens", session=(cookie, "")).status_code == 303


def test_guessing_is_slowed_down_and_a_right_token_still_works(lived):
    statuses = [enter(lived, token=f"palyra_{'0' * 26}_{n:064x}").status_code for n in range(12)]
    assert statuses == [401] * 10 + [429] * 2
    assert enter(lived, token=lived.daemon.token(OPERATOR, operator=True)).status_code == 303


@promise("daemon.cross-site")
@pytest.mark.parametrize(
    ("wanted", "leads"),
    [
        ("/console/calls?status=refused", "/console/calls?status=refused"),
        ("/console/calls/01M7H6B7NBKVZWY9N6DQC5AECQ", "/console/calls/01M7H6B7NBKVZWY9N6DQC5AECQ"),
        ("", "/console"),
        ("//attacker.example/console", "/console"),
        ("https://attacker.example/", "/console"),
        ("/console@attacker.example", "/console"),
        ("/console/../../etc", "/console"),
        ("/console\\..\\x", "/console"),
        ("/console/x\r\nSet-Cookie: a=b", "/console"),
        ("javascript:alert(1)", "/console"),
        ("/consoleattacker", "/console"),
        ("/console/v1/journal", "/console"),
        ("/console/login?next=/console", "/console"),
    ],
)
def test_a_login_leads_to_our_pages_alone(lived, wanted, leads):
    assert onward(wanted) == leads
    answer = enter(lived, token=lived.daemon.token(OPERATOR, operator=True), next=wanted)
    assert answer.headers["location"] == leads


def test_files_of_the_console_need_no_login_and_nothing_else_is_served(lived):
    for name in ("console.css", "console.js", "icon.svg"):
        answer = lived.daemon.ask("GET", f"/console/static/{name}")
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (200, "nosniff")
        assert "immutable" in answer.headers["cache-control"]
    for name in ("login.py", "..%2frendering.py", "%2e%2e%2f%2e%2e%2fapp.py", "console.css%00"):
        assert lived.daemon.ask("GET", f"/console/static/{name}").status_code == 404


def test_who_types_the_address_alone_comes_to_the_console(lived):
    answer = lived.daemon.ask("GET", "/")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console")


def test_a_page_that_is_not_there_is_told_as_a_page_and_a_route_as_json(lived):
    for path, kind in (
        ("/console/nothing", "text/html"),
        ("/console/v1/nothing", "application/json"),
        ("/x", "application/json"),
    ):
        answer = lived.daemon.ask("GET", path)
        assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (404, kind)
