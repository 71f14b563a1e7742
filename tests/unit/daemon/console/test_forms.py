"""Every form: nothing happens without the session's CSRF token; with it, what the API does; who did it is journaled."""

from __future__ import annotations

import re

import pytest

from palyra.daemon.console.words import quoted
from palyra.daemon.routes import MULTIPART_TYPE
from palyra.daemon.sessions import COOKIE
from palyra.daemon.table import ROUTES
from palyra.skills.bundle import MAX_BYTES
from tests.consoles import packed, world
from tests.daemons import OPERATOR
from tests.making_skills import tool
from tests.markup import Markup
from tests.promises import promise

FORMS = [route for route in ROUTES if route.page and route.mutates and route.name != "log_in"]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A home of this file's own: its forms change things."""
    with world(tmp_path_factory.mktemp("forms")) as made:
        yield made


def waiting(fresh) -> str:
    (item,) = fresh.daemon.ask("GET", "/console/v1/approvals", session=fresh.session).json()["items"]
    return str(item["approval_id"])


def acts(fresh) -> list[tuple[str, str]]:
    answer = fresh.daemon.ask("GET", "/console/v1/journal?kind=act&count=200", session=fresh.session).json()
    found = [item["entry"]["predicate"] for item in answer["items"]]
    return [(one["act"], one["actor"]) for one in reversed(found)]


@promise("daemon.cross-site")
@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.path)
def test_a_form_without_its_csrf_token_changes_nothing(fresh, route):
    path = route.path.replace("{", "").replace("}", "")
    anothers = fresh.daemon.login()[1]
    before = fresh.daemon.state.installation.journal.checkpoint().size
    for data in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": anothers}):
        brings = {"files": {"package": ("x", b"x")}} if route.accepts == MULTIPART_TYPE else {}
        answer = fresh.send(path, data=data, **brings)
        assert answer.status_code == 403, data
        assert "CSRF" in answer.text
        assert Markup(answer.text).problems == []
    assert fresh.daemon.state.installation.journal.checkpoint().size == before


@promise("daemon.cross-site")
@pytest.mark.parametrize("route", FORMS, ids=lambda route: route.path)
def test_a_form_from_another_site_is_refused(fresh, route):
    path = route.path.replace("{", "").replace("}", "")
    for origin in ("http://attacker.example", "null", "http://localhost:9999"):
        assert fresh.send(path, headers={"Origin": origin}).status_code == 403, origin


@promise("daemon.cross-site")
def test_every_form_on_a_page_carries_the_token(fresh):
    for path in ("/approvals", f"/approvals/{waiting(fresh)}", "/secrets", "/tokens", "/policy", "/journal/verify"):
        page = Markup(fresh.page(f"/console{path}").text)
        posts = [form for form in page.of("form") if form["method"] == "post"]
        tokens = [field for field in page.of("input") if field.get("name") == "csrf"]
        assert {field["value"] for field in tokens} == {fresh.session[1]}, path
        assert len(posts) == len(tokens), path


def test_approving_lets_exactly_that_call_through_once(fresh):
    approval_id = waiting(fresh)
    answer = fresh.send(f"/console/approvals/{approval_id}/approve", {"reason": "looked at it"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/approvals?said=approved")
    assert "Grants that are still" in fresh.page("/console/approvals").text
    again = fresh.send(f"/console/approvals/{approval_id}/approve")
    assert again.status_code == 422, "a request is decided once"
    assert ("approval.decided", OPERATOR) in acts(fresh)
    revoked = fresh.send(f"/console/approvals/{approval_id}/revoke")
    assert revoked.status_code == 303
    assert fresh.page(f"/console/approvals/{approval_id}").text.count("revoked") >= 1


def test_a_no_can_be_taken_back_and_the_same_call_asks_again(fresh):
    def asks() -> str:
        return fresh.run_program("git", "gc", principal="agent:denied").approval["approval_id"]

    approval_id = asks()
    fresh.send(f"/console/approvals/{approval_id}/deny", {"reason": "in haste"})
    assert "Take the no back" in fresh.page(f"/console/approvals/{approval_id}").text
    assert fresh.send(f"/console/approvals/{approval_id}/revoke").status_code == 303
    assert "Take the no back" not in fresh.page(f"/console/approvals/{approval_id}").text
    assert asks() != approval_id


def test_nobody_decides_on_a_call_of_their_own(fresh):
    outcome = fresh.run_program("git", "status", principal=OPERATOR)
    approval_id = outcome.approval.as_json()["approval_id"] if hasattr(outcome.approval, "as_json") else None
    approval_id = approval_id or outcome.approval["approval_id"]
    page = fresh.page(f"/console/approvals/{approval_id}")
    assert "somebody else has to decide" in page.text
    assert not [form for form in Markup(page.text).of("form") if "approve" in form["action"]]
    assert fresh.send(f"/console/approvals/{approval_id}/approve").status_code == 403
    assert fresh.send(f"/console/approvals/{approval_id}/deny", {"reason": "x"}).status_code == 403


@pytest.mark.parametrize(
    "hidden",
    [("log", " " * 3000 + "--author=evil"), ("log", "\n" * 1000 + "--author=evil"), ("log", *("x" * 40,) * 60)],
    ids=["spaces", "newlines", "many words"],
)
def test_nothing_is_approved_from_the_queue_that_cannot_be_seen_there_whole(fresh, hidden):
    """An argument past a page of spaces would be out of sight when a person presses `a`."""
    approval_id = fresh.run_program("git", *hidden, principal="agent:hides").approval["approval_id"]
    queue = Markup(fresh.page("/console/approvals").text)
    actions = [form["action"].rpartition("/")[2] for form in queue.of("form") if approval_id in form["action"]]
    assert actions == ["deny"]
    assert "open the whole request to approve" in queue.text
    whole = Markup(fresh.page(f"/console/approvals/{approval_id}").text)
    assert all(quoted(word) in whole.text for word in hidden)


def test_what_is_given_on_stdin_is_seen_before_it_is_approved(fresh):
    """`sh` with three hundred bytes says nothing: what runs stands in them."""
    asked = fresh.run_program("git", "apply", "-", principal="agent:hides", input={"stdin": "hidden <b>\u202epart"})
    approval_id = asked.approval["approval_id"]
    queue = Markup(fresh.page("/console/approvals").text)
    actions = [form["action"].rpartition("/")[2] for form in queue.of("form") if approval_id in form["action"]]
    assert actions == ["deny"]
    assert "hidden <b>\\u202epart" in Markup(fresh.page(f"/console/approvals/{approval_id}").text).text
    assert fresh.send(f"/console/approvals/{approval_id}/deny").status_code == 303


def test_letters_that_look_like_others_are_pointed_out(fresh):
    def pointed_out() -> int:
        count: int = fresh.page("/console/approvals").text.count("plain ASCII")
        return count

    before = pointed_out()
    approval_id = fresh.run_program("git", "push", "оrigin", principal="agent:lookalike").approval["approval_id"]
    assert pointed_out() == before + 1
    assert fresh.send(f"/console/approvals/{approval_id}/deny").status_code == 303
    assert pointed_out() == before


def test_looking_at_a_request_is_journaled(fresh):
    outcome = fresh.run_program("git", "diff", principal="agent:looked-at")
    fresh.page(f"/console/approvals/{outcome.approval['approval_id']}")
    assert acts(fresh)[-1] == ("approval.viewed", OPERATOR)
    denied = fresh.send(f"/console/approvals/{outcome.approval['approval_id']}/deny", {"reason": "not <b>today</b>"})
    assert denied.status_code == 303
    page = fresh.page(f"/console/approvals/{outcome.approval['approval_id']}").text
    assert "not &lt;b&gt;today&lt;/b&gt;" in page


def test_a_budget_is_extended(fresh):
    run = fresh.calls["echo"].run_id
    assert fresh.send(f"/console/runs/{run}/extend", {"calls": "7", "attempts": ""}).status_code == 303
    shown = fresh.daemon.ask("GET", f"/console/v1/runs/{run}", session=fresh.session).json()
    assert shown["budget"]["calls_max"] == 207
    assert fresh.send(f"/console/runs/{run}/extend", {"calls": "", "attempts": ""}).status_code == 422
    assert fresh.send(f"/console/runs/{run}/extend", {"calls": "-1"}).status_code == 422


def test_a_run_is_ended_and_its_page_offers_nothing_more(fresh):
    run = fresh.calls["echo"].run_id
    assert "End the run" in fresh.page(f"/console/runs/{run}").text
    assert fresh.send(f"/console/runs/{run}/end", {}).status_code == 303
    shown = fresh.daemon.ask("GET", f"/console/v1/runs/{run}", session=fresh.session).json()
    assert shown["ended_at_unix_ms"] > 0
    page = fresh.page(f"/console/runs/{run}").text
    assert ("<dt>Ended</dt>" in page, "End the run" in page) == (True, False)
    assert "run.ended" in {act for act, _ in acts(fresh)}
    assert fresh.send("/console/runs/nobody/end", {}).status_code == 404


def test_a_secret_goes_in_and_never_comes_out(fresh):
    value = "swordfish-0123456789"
    answer = fresh.send("/console/secrets", {"name": "FORGE_TOKEN", "value": value, "host": "api.example.com",
                                             "header": "Authorization", "prefix": "Bearer "})  # fmt: skip
    assert answer.status_code == 303
    page = fresh.page("/console/secrets").text
    assert "FORGE_TOKEN" in page
    assert value not in page
    assert value not in fresh.daemon.ask("GET", "/console/v1/secrets", session=fresh.session).text
    refused = fresh.send("/console/secrets", {"name": "not a name!", "value": value})
    assert refused.status_code == 422
    assert value not in refused.text
    assert fresh.send("/console/secrets/FORGE_TOKEN/delete").status_code == 303
    assert fresh.send("/console/secrets/FORGE_TOKEN/delete").status_code == 404
    assert ("secrets.deleted", OPERATOR) in acts(fresh)


def test_a_token_is_shown_once(fresh):
    answer = fresh.send("/console/tokens", {"principal": "agent:made-here", "expires_s": "60"})
    assert answer.status_code == 200
    (token,) = re.findall(r"palyra_[0-9A-Z]{26}_[0-9a-f]{64}", answer.text)
    assert fresh.daemon.ask("GET", "/v1/tools", token=token).status_code == 200
    assert token not in fresh.page("/console/tokens").text
    token_id = token.split("_")[1]
    assert fresh.send(f"/console/tokens/{token_id}/revoke").status_code == 303
    assert fresh.daemon.ask("GET", "/v1/tools", token=token).status_code == 401
    assert fresh.send("/console/tokens", {"principal": "agent:x", "operator": "true"}).status_code == 403


def test_the_journal_is_verified_by_a_button(fresh):
    answer = fresh.send("/console/journal/verify", {"every_signature": "true", "replay": "true"})
    assert answer.status_code == 200
    assert "The journal verifies." in answer.text
    assert "decisions were replayed" in answer.text


def test_other_policies_are_tried_and_used_and_gone_back_from(fresh):
    bad = fresh.send("/console/policy/replay", {"text": "permit (nonsense", "since": ""})
    assert bad.status_code == 422
    assert Markup(bad.text).problems == []
    text = '@id("local.no-ls")\n@reason("No.")\nforbid (principal, action == Action::"tool::execute", resource)\nwhen { context.effective_program == "ls" };'  # noqa: E501
    tried = fresh.send("/console/policy/replay", {"text": text})
    assert tried.status_code == 200
    assert fresh.calls["failed"].call_id in tried.text, "its call to ls would be refused"
    used = fresh.send("/console/policy/use", {"text": text})
    assert used.headers["location"] == "/console/policy?said=used"
    assert fresh.run_program("ls").reason == "POLICY_DENIED"
    assert fresh.send("/console/policy/rollback").status_code == 303
    assert fresh.run_program("ls").reason is None
    assert [act for act, _ in acts(fresh)][-2:] != ["policy.used", "policy.used"]


def upload(fresh, package: bytes, fields=None, **options):
    data = {"csrf": fresh.session[1], **(fields or {})}
    files = {"package": ("../../../name.palyra-skill", package, "application/octet-stream")}
    return fresh.daemon.ask("POST", "/console/skills/install", session=fresh.session, data=data, files=files, **options)


def standing(fresh, skill_id: str):
    return fresh.daemon.ask("GET", f"/console/v1/skills/{skill_id}", session=fresh.session)


def test_a_package_that_is_uploaded_waits_in_quarantine(fresh):
    package = packed("acme.uploaded", "1.0.0", tools=(tool("acme.uploaded"),))
    answer = upload(fresh, package)
    assert (answer.status_code, answer.headers["location"]) == (
        303, "/console/skills/acme.uploaded?version=1.0.0&said=installed",
    )  # fmt: skip
    shown = standing(fresh, "acme.uploaded").json()
    assert (shown["status"], shown["enabled_by"], shown["audit"]["verdict"]) == ("quarantined", None, "pass")
    assert "in quarantine until it is enabled" in fresh.page(answer.headers["location"]).text
    assert ("skill.changed", OPERATOR) in acts(fresh) or ("skill.installed", OPERATOR) in acts(fresh)


@promise("daemon.cross-site")
def test_a_package_without_the_forms_token_is_not_read(fresh):
    package = packed("acme.forged", "1.0.0", tools=(tool("acme.forged"),))
    for csrf in ("", "0" * 64, fresh.daemon.login()[1]):
        answer = upload(fresh, package, {"csrf": csrf})
        assert answer.status_code == 403
    assert standing(fresh, "acme.forged").status_code == 404


def test_what_is_no_package_is_refused_on_a_page_that_says_why(fresh):
    answer = upload(fresh, b"PK no package")
    assert (answer.status_code, answer.headers["content-type"].split(";")[0]) == (422, "text/html")
    stranger = packed("stranger.echo", "1.0.0", tools=(tool("stranger.echo"),))
    refused = upload(fresh, stranger)
    assert refused.status_code in (409, 422)
    assert "trust" in Markup(refused.text).text.lower()
    assert upload(fresh, stranger, {"tofu": "true"}).status_code == 303
    assert standing(fresh, "stranger.echo").json()["status"] == "quarantined"


def test_an_upload_has_its_own_bound_and_no_other_route_has_it(fresh):
    route = next(route for route in ROUTES if route.path == "/console/skills/install")
    assert route.max_body_bytes > MAX_BYTES, "the largest package there may be, and the form around it"
    larger = {route.path for route in ROUTES if (route.max_body_bytes or 0) > 4 << 20}
    assert larger == {"/console/skills/install", "/console/v1/skills/install", "/console/v1/skills/verify"}
    headers = {"Content-Type": "multipart/form-data; boundary=x", "Content-Length": str(route.max_body_bytes + 1)}
    answer = fresh.daemon.ask("POST", "/console/skills/install", session=fresh.session, headers=headers)
    assert answer.status_code == 413


def test_a_skill_is_enabled_stopped_and_gone_back_from(fresh):
    def standing() -> tuple[str, str]:
        shown = fresh.daemon.ask("GET", "/console/v1/skills/acme.echo", session=fresh.session).json()
        return shown["version"], shown["status"]

    page = fresh.page("/console/skills/acme.echo")
    assert "Sends requests to api.example.com." not in page.text, "the version that waits is not the one in use"
    assert "/console/skills/acme.echo?version=0.2.0" in page.text, "but it is pointed to"
    asked = Markup(fresh.page("/console/skills/acme.echo?version=0.2.0").text)
    assert "more: Sends requests to api.example.com." in asked.text, "seen before it is enabled"
    assert [form["action"].rpartition("/")[2] for form in asked.of("form")[1:]] == ["enable", "audit"]
    assert fresh.page("/console/skills/acme.echo?version=9.9.9").status_code == 404
    assert fresh.send("/console/skills/acme.echo/enable", {"version": "0.2.0"}).status_code == 303
    assert standing() == ("0.2.0", "active")
    page = Markup(fresh.page("/console/skills/acme.echo").text)
    assert "more: Sends requests to api.example.com." in page.text
    assert fresh.send("/console/skills/acme.echo/rollback").status_code == 303
    assert standing() == ("0.1.0", "active")
    assert fresh.send("/console/skills/acme.echo/quarantine", {"reason": "odd"}).status_code == 303
    assert fresh.send("/console/skills/acme.echo/quarantine", {"reason": "odd"}).status_code == 409
    assert fresh.send("/console/skills/acme.none/enable", {"version": ""}).status_code == 404
    assert ("skill.changed", OPERATOR) in acts(fresh)


def test_trust_taken_back_stops_what_a_key_signed(fresh):
    assert fresh.send("/console/trust", {"publisher": "nobody", "key": "not a key"}).status_code == 409
    answer = fresh.send("/console/trust/acme/revoke", {"key_id": ""})
    assert answer.headers["location"] == "/console/skills?said=distrusted"
    shown = fresh.daemon.ask("GET", "/console/v1/skills/acme.other", session=fresh.session).json()
    assert shown["status"] == "quarantined"
    assert "revoked" in fresh.page("/console/skills").text


def test_logging_out_ends_the_session(fresh):
    session = fresh.daemon.login("user:leaving")
    answer = fresh.daemon.ask("POST", "/console/logout", session=session, data={"csrf": session[1]})
    assert answer.status_code == 303
    assert f'{COOKIE}=""' in answer.headers["set-cookie"]
    assert fresh.page("/console", session=session).status_code == 303
