"""The builder's candidates for operators: off until it is switched on; promoted into quarantine, from page and API."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from palyra.daemon.operators.candidates import ROUTES
from palyra.wiring.skill_builder import SkillBuilder
from tests.daemons import OPERATOR, daemon
from tests.markup import Markup

LIST, PROPOSE, PROMOTE = ROUTES


@pytest.fixture
def on(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text("[skills]\nbuilder = true\n")
    (home / "palyra.toml").chmod(0o600)
    with daemon(home) as served:
        yield served


def test_it_is_off_until_somebody_switches_it_on(tmp_path):
    with daemon(tmp_path / "home") as served:
        token = served.token(OPERATOR, operator=True)
        answer = served.ask("GET", LIST.path, token=token)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "BUILDER_OFF")
        assert "Candidates" not in served.ask("GET", "/console/skills", session=served.login()).text


def test_a_candidate_is_shown_and_promoted_into_quarantine(on):
    builder = SkillBuilder(on.state.installation, path=())
    made = on.run(builder.propose('echo "><script>alert(1)</script> back', by=OPERATOR, skill_id="acme.made"))
    token, session = on.token(OPERATOR, operator=True), on.login()
    listed = on.ask("GET", LIST.path, token=token)
    TypeAdapter(LIST.answers[200].model).validate_json(listed.content)
    assert [item["candidate_id"] for item in listed.json()["items"]] == [made.candidate_id]
    page = on.ask("GET", "/console/skills", session=session).text
    assert Markup(page).problems == []
    assert "<script>alert(1)" not in page
    promoted = on.ask("POST", PROMOTE.path.format(id=made.candidate_id), token=token)
    assert promoted.status_code == 200, promoted.text
    TypeAdapter(PROMOTE.answers[200].model).validate_json(promoted.content)
    assert promoted.json()["skill"]["status"] == "quarantined"
    for unknown in ("x", "00000000000000000000000000"):
        assert on.ask("POST", PROMOTE.path.format(id=unknown), token=token).status_code == 404


def test_post_builder_candidates_produces_a_buildable_scaffold(on):
    """`POST /console/v1/skills/builder/candidates` … produce a **buildable** scaffold."""
    token = on.token(OPERATOR, operator=True)
    assert (PROPOSE.method, PROPOSE.path) == ("POST", "/console/v1/skills/builder/candidates")
    made = on.ask("POST", PROPOSE.path, token=token, json={"text": "give back what I say", "skill_id": "acme.parrot"})
    assert made.status_code == 200, made.text
    TypeAdapter(PROPOSE.answers[200].model).validate_json(made.content)
    told = made.json()
    assert (told["skill_id"], told["made_by"], told["promoted_sha256"]) == ("acme.parrot", OPERATOR, "")
    assert {"skill.toml", "REVIEW.md", "build.toml"} <= set(told["files"])
    promoted = on.ask("POST", PROMOTE.path.format(id=told["candidate_id"]), token=token)
    assert (promoted.status_code, promoted.json()["skill"]["status"]) == (200, "quarantined")


@pytest.mark.parametrize(
    "body",
    [{}, {"text": "a", "from_run": "01J00000000000000000000000"}, {"from_run": "x"}, {"text": "a", "skill_id": "../x"}],
)
def test_what_no_candidate_can_be_made_of_is_refused_and_leaves_nothing(on, body):
    token = on.token(OPERATOR, operator=True)
    refused = on.ask("POST", PROPOSE.path, token=token, json=body)
    assert 400 <= refused.status_code < 500, refused.text
    assert on.ask("GET", LIST.path, token=token).json()["items"] == []


def test_agents_propose_nothing(on):
    assert on.ask("POST", PROPOSE.path, token=on.token(), json={"text": "a"}).status_code == 403
