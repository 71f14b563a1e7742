"""What a sentence or a run asks for: hosts only where they are spelled out, one to a skill, nothing by guessing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.skills.findings import SkillRefused
from palyra.skills.intent import SeenCall, Shape, Wish, learn_wish, parse_wish
from palyra.skills.project import ProjectError


@pytest.mark.parametrize(
    ("text", "shape", "host", "path", "secret"),
    [
        ("count the words of a text", Shape.PASS, "", "/", False),
        ("remember my last note", Shape.KEEP, "", "/", False),
        ("get the weather from api.weather.example", Shape.FETCH, "api.weather.example", "/", False),
        ("fetch https://status.example.com/api/v2.", Shape.FETCH, "status.example.com", "/api/v2", False),
        ("fetch HTTPS://Status.Example.com:443/a with an API key", Shape.FETCH, "status.example.com", "/a", True),
        ("ask http://127.0.0.1:8080/x and cache it", Shape.FETCH_KEEP, "http://127.0.0.1:8080", "/x", False),
        ("store news.example.org/today.html, also news.example.org/old.html", Shape.FETCH_KEEP,
         "news.example.org", "/", False),
        ("read notes.txt and main.py, mail bob@example.com", Shape.PASS, "", "/", False),
        ("use my token and password", Shape.PASS, "", "/", False),
    ],
)  # fmt: skip
def test_capabilities_follow_from_what_is_spelled_out(
    text: str, shape: Shape, host: str, path: str, secret: bool
) -> None:
    wish = parse_wish(text)
    assert (wish.shape, wish.host, wish.path, wish.secret) == (shape, host, path, secret)


@pytest.mark.parametrize(
    "text",
    ["", "   ", "x" * 2001, "a\x07b", "from a.example.com to b.example.com", "fetch https://user:pw@example.com/"],
)
def test_what_no_skill_can_be_made_of_is_refused(text: str) -> None:
    with pytest.raises(ProjectError):
        parse_wish(text)


def test_an_id_is_made_of_the_words_or_taken_as_given() -> None:
    assert parse_wish("Please fetch the weather in Köln!").skill_id == "local.fetch-weather-k-ln"
    assert parse_wish("…").skill_id == "local.candidate"
    assert parse_wish("anything", skill_id="acme.tool").skill_id == "acme.tool"
    for bad in ("palyra.x", "acme", "acme/../x.y", "Acme.x"):
        with pytest.raises(SkillRefused):
            parse_wish("anything", skill_id=bad)


def test_a_run_is_learned_from_by_where_its_requests_went() -> None:
    calls = [
        SeenCall(tool="palyra.http.fetch", url="https://api.example.com/v1/items/7"),
        SeenCall(tool="palyra.echo"),
        SeenCall(tool="palyra.http.fetch", url="https://api.example.com/v1/items/12?full=1"),
    ]
    wish = learn_wish(calls, run_id="01J00000000000000000000000")
    assert (wish.source, wish.host, wish.path, wish.shape) == ("calls", "api.example.com", "/v1/items/", Shape.FETCH)
    assert wish.secret is False
    assert "palyra.echo, palyra.http.fetch" in wish.text


@pytest.mark.parametrize(
    "urls",
    [[], [""], ["https://a.example.com/", "https://b.example.com/"]],
    ids=["no calls", "no request", "two hosts"],
)
def test_a_run_that_tells_nothing_or_too_much_is_not_learned_from(urls: list[str]) -> None:
    with pytest.raises(ProjectError):
        learn_wish([SeenCall(tool="palyra.http.fetch", url=url) for url in urls], run_id="01J00000000000000000000000")


@given(st.text(max_size=300))
def test_any_text_is_a_wish_or_refused_and_a_wish_is_stable(text: str) -> None:
    try:
        wish = parse_wish(text)
    except (ProjectError, SkillRefused):
        return
    assert isinstance(wish, Wish)
    assert parse_wish(wish.text, skill_id=wish.skill_id) == wish
