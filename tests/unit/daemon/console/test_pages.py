"""Every page: it comes, it is sound HTML, it runs and loads nothing of others', and hostile text stays text."""

from __future__ import annotations

import re
import unicodedata

import pytest

from palyra.daemon.routes import Who
from palyra.daemon.table import ROUTES
from tests.consoles import ANSI, BIDI, HOSTILE, IMAGE, LONG_LINE, SCRIPT
from tests.markup import Markup
from tests.promises import promise

MAX_PAGE_BYTES = 512 * 1024
PLAIN = [
    "", "/approvals", "/approvals?state=all", "/calls", "/calls?status=refused", "/calls?status=open", "/runs",
    "/journal", "/journal?kind=act", "/journal?since=24h&text=process", "/journal/verify", "/journal/0", "/policy",
    "/policy/explain", "/policy/replay", "/policy/replay?posture=locked", "/processes", "/secrets", "/tokens",
    "/doctor", "/skills", "/skills/acme.echo", "/skills/acme.other",
    "/skills/acme.echo?version=0.2.0",
]  # fmt: skip


def named(lived) -> list[str]:
    """Pages of single things."""
    (item,) = lived.daemon.ask("GET", "/console/v1/approvals", session=lived.session).json()["items"]
    calls = [f"/calls/{lived.calls[name].call_id}" for name in ("hostile", "long", "echo", "refused", "failed")]
    run = lived.calls["hostile"].run_id
    explained = f"/policy/explain?call_id={lived.calls['refused'].call_id}"
    return [f"/approvals/{item['approval_id']}", *calls, f"/runs/{run}", explained]


@pytest.fixture(scope="module")
def pages(lived) -> dict[str, object]:
    return {path: lived.page(f"/console{path}") for path in (*PLAIN, *named(lived))}


def test_every_page_answers_an_operator(pages):
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)


def test_every_page_is_sound_html_with_labels_and_landmarks(pages):
    found = {path: Markup(page.text).problems for path, page in pages.items()}
    assert {path: problems for path, problems in found.items() if problems} == {}


@promise("daemon.console-output")
def test_every_page_forbids_what_it_does_not_need(pages):
    for path, page in pages.items():
        policy = page.headers["content-security-policy"]
        nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", policy)
        assert nonce, path
        assert policy.startswith("default-src 'none'; "), path
        assert "unsafe" not in policy, path
        assert {script["nonce"] for script in Markup(page.text).of("script")} == {nonce[1]}, path
        kept = {name: page.headers[name] for name in ("x-frame-options", "x-content-type-options", "cache-control")}
        assert kept == {
            "x-frame-options": "DENY",
            "x-content-type-options": "nosniff",
            "cache-control": "no-store",
        }


@promise("daemon.console-output")
def test_a_nonce_is_used_once(lived):
    found = {lived.page("/console/login", session=("", "")).headers["content-security-policy"] for _ in range(5)}
    assert len(found) == 5


@promise("daemon.console-output")
def test_scripts_and_markup_of_tools_are_text(pages):
    for path, page in pages.items():
        for hostile in (SCRIPT, IMAGE, "<b>first</b>", "</pre></textarea>"):
            assert hostile not in page.text, path
        assert "49{% raw %}" not in page.text, f"{path}: a tool's text was taken for a template"


@promise("daemon.console-output")
def test_control_and_bidi_characters_are_spelled_out(pages):
    for path, page in pages.items():
        hidden = {c for c in page.text if c != "\n" and unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")}
        assert hidden == set(), path


@promise("daemon.console-output")
def test_hostile_output_is_shown_whole_and_readable(lived, pages):
    shown = Markup(pages[f"/calls/{lived.calls['hostile'].call_id}"].text).text
    assert SCRIPT in shown
    assert "\\x1b[2J\\x1b]0;owned\\x07\\x9b31m" in shown
    assert "safe\\u202etxt.exe\\u2066\\u200b\\ufeff\\x0d\\x00{{ 7*7 }}" in shown


def test_what_is_asked_for_is_shown_exactly(lived, pages):
    path = next(path for path in pages if path.startswith("/approvals/"))
    for place in (path, "/approvals"):
        shown = Markup(pages[place].text).text
        assert f'"git" "log" "{SCRIPT}' in shown
        assert "safe\\u202etxt.exe" in shown


@promise("daemon.console-output")
def test_a_line_of_a_megabyte_is_cut_and_can_be_taken_whole(lived, pages):
    call_id = lived.calls["long"].call_id
    page = pages[f"/calls/{call_id}"]
    assert max(len(each.content) for each in pages.values()) < MAX_PAGE_BYTES
    assert "A" * 65536 in page.text
    assert "A" * 65537 not in page.text
    whole = lived.page(f"/console/v1/calls/{call_id}/output?stream=stdout")
    assert whole.text == LONG_LINE
    assert whole.headers["content-type"].startswith("text/plain")
    assert whole.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in whole.headers["content-security-policy"]


@pytest.mark.parametrize(
    "hostile", [SCRIPT, IMAGE, ANSI, BIDI, HOSTILE], ids=["script", "image", "ansi", "bidi", "all"]
)
@pytest.mark.parametrize("name", ["principal", "tool", "status", "reason", "run_id", "text"])
def test_a_question_is_shown_as_text(lived, name, hostile):
    for place in ("calls", "journal"):
        page = lived.daemon.ask("GET", f"/console/{place}", session=lived.session, params={name: hostile})
        assert page.status_code == 200
        assert Markup(page.text).problems == []
        assert hostile not in page.text


def test_nothing_is_missed_between_the_queue_and_its_events(lived):
    """A request that comes after the page was made and before its stream begins must be an event of that stream."""
    (place,) = re.findall(r'data-events="/console/v1/events\?after=([0-9]+)"', lived.page("/console/approvals").text)
    assert int(place) == lived.daemon.state.installation.journal.checkpoint().size - 1


def test_a_page_says_only_what_palyra_may_be_told_to_say(lived):
    assert "Approved." in lived.page("/console/approvals?said=approved").text
    assert "phishing" not in lived.page("/console/approvals?said=phishing").text


def test_what_goes_wrong_is_a_page_too(lived):
    for path, status in (("/calls/nothing", 404), ("/journal/999999", 404), ("/journal?since=yesterday", 422),
                         ("/calls?before=x", 422), ("/calls?unknown=1", 422), ("/runs/%3Cscript%3E", 404)):  # fmt: skip
        page = lived.page(f"/console{path}")
        assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert Markup(page.text).problems == [], path


def test_who_is_not_logged_in_is_led_to_the_login_page_and_back(lived):
    for route in ROUTES:
        if route.page and route.who is Who.OPERATOR and route.method == "GET":
            path = route.path.replace("{", "").replace("}", "")
            answer = lived.daemon.ask("GET", path)
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/console/login"), path


@promise("daemon.console-operators")
def test_an_agent_is_refused_everywhere(lived):
    token = lived.daemon.token("agent:curious")
    for route in ROUTES:
        if route.path.startswith("/console") and route.who is Who.OPERATOR:
            path = route.path.replace("{", "").replace("}", "")
            answer = lived.daemon.ask(route.method, path, token=token)
            assert answer.status_code == 403, (route.method, path)


@promise("daemon.cross-site")
def test_a_page_that_is_rebound_to_another_name_is_refused(lived):
    """DNS rebinding: the attacker's name points here, and the browser sends it as Host."""
    for host in ("attacker.example", "attacker.example:7142", "localhost.attacker.example", ""):
        answer = lived.page("/console", headers={"Host": host})
        assert answer.status_code == 403, host


@promise("daemon.console-output")
def test_no_template_takes_escaping_away():
    from palyra.daemon.console.rendering import FOLDER, environment

    for template in (FOLDER / "templates").iterdir():
        text = template.read_text(encoding="utf-8")
        for word in ("|safe", "| safe", "autoescape", "Markup", " style=", " onclick", "javascript:"):
            assert word not in text, (template.name, word)
        environment().get_template(template.name)
