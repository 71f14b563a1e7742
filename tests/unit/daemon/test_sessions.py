"""Logins: links work once, sessions cannot be planted, all of it is bounded and ends."""

from __future__ import annotations

import itertools

from palyra.daemon.sessions import (
    FAILURE_WINDOW_MS,
    LINK_MS,
    MAX_FAILURES,
    MAX_LINKS,
    MAX_PLACES,
    MAX_SESSIONS,
    Failures,
    Sessions,
)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


def sessions(clock: Clock) -> Sessions:
    numbers = itertools.count()
    return Sessions(now_unix_ms=clock, random_bytes=lambda count: next(numbers).to_bytes(count), session_ms=1000)


def test_a_link_works_once_and_for_a_minute():
    clock = Clock()
    made = sessions(clock)
    code = made.make_link("user:a")
    assert made.use_link(code) == "user:a"
    assert made.use_link(code) is None
    late = made.make_link("user:a")
    clock.now += LINK_MS
    assert made.use_link(late) is None
    assert made.use_link("") is None


def test_a_session_is_made_here_and_never_taken_from_outside():
    made = sessions(Clock())
    planted = "f" * 64
    assert made.find(planted) is None
    secret, session = made.open("user:a")
    assert secret != planted
    assert made.find(secret) == session
    assert made.find("") is None


def test_every_login_has_an_id_and_a_csrf_token_of_its_own():
    made = sessions(Clock())
    first, second = made.open("user:a"), made.open("user:a")
    assert first[0] != second[0]
    assert first[1].csrf != second[1].csrf
    assert first[0] != first[1].csrf


def test_a_session_ends_by_itself_and_by_logging_out():
    clock = Clock()
    made = sessions(clock)
    secret, _ = made.open("user:a")
    clock.now += 1000
    assert made.find(secret) is None
    secret, _ = made.open("user:a")
    made.end(secret)
    assert made.find(secret) is None


def test_sessions_links_and_places_are_bounded():
    clock = Clock()
    made, failures = sessions(clock), Failures(now_unix_ms=clock)
    for number in range(2000):
        made.open("user:a")
        made.make_link("user:a")
        failures.note(str(number))
    assert (len(made._sessions), len(made._links), len(failures._places)) == (MAX_SESSIONS, MAX_LINKS, MAX_PLACES)


def test_failures_bar_a_place_for_a_while():
    clock = Clock()
    failures = Failures(now_unix_ms=clock)
    for _ in range(MAX_FAILURES):
        assert not failures.is_barred("here")
        failures.note("here")
    assert failures.is_barred("here")
    assert not failures.is_barred("there")
    clock.now += FAILURE_WINDOW_MS
    assert not failures.is_barred("here")
