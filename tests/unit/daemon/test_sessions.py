"""Logins: links work once, sessions cannot be planted, all of it is bounded and ends."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace

import pytest

from palyra.daemon.sessions import (
    FAILURE_WINDOW_MS,
    LINK_MS,
    MAX_FAILURES,
    MAX_LINKS,
    MAX_PLACES,
    Failures,
    Sessions,
)
from palyra.wiring.sessions import MAX_SESSIONS, KeptSession, SessionRows
from tests.daemons import AGENT, OPERATOR, daemon
from tests.journaling import audit_home
from tests.promises import promise
from tests.stores import tampering


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def __call__(self) -> int:
        return self.now


class Rows:
    """Kept as the home keeps them."""

    def __init__(self) -> None:
        self.rows: dict[bytes, KeptSession] = {}

    def find(self, digest: bytes) -> KeptSession | None:
        return self.rows.get(digest)

    async def add(self, session: KeptSession) -> None:
        self.rows[session.digest] = session

    async def drop(self, digest: bytes, *, at_unix_ms: int) -> None:
        self.rows.pop(digest, None)

    async def used(self, at_unix_ms) -> None:
        for digest, at in at_unix_ms.items():
            self.rows[digest] = replace(self.rows[digest], used_unix_ms=at)


def sessions(clock: Clock, rows: Rows | None = None) -> Sessions:
    numbers = itertools.count()
    return Sessions(
        now_unix_ms=clock,
        random_bytes=lambda count: next(numbers).to_bytes(count),
        kept=rows or Rows(),
        session_ms=1000,
        idle_ms=400,
    )


def opened(made: Sessions, principal: str = "user:a"):
    return asyncio.run(made.open(principal))


def test_a_link_works_once_and_for_a_minute():
    clock = Clock()
    made = sessions(clock)
    code = made.make_link("user:a")
    assert made.redeem(code) == ("user:a", "")
    assert made.redeem(code) is None
    late = made.make_link("user:a")
    clock.now += LINK_MS
    assert made.redeem(late) is None
    assert made.redeem("") is None


def test_a_session_is_made_here_and_never_taken_from_outside():
    made = sessions(Clock())
    planted = "f" * 64
    assert made.find(planted) is None
    secret, session = opened(made)
    assert secret != planted
    assert made.find(secret) == session
    assert made.find("") is None


def test_every_login_has_an_id_and_a_csrf_token_of_its_own():
    made = sessions(Clock())
    first, second = opened(made), opened(made)
    assert first[0] != second[0]
    assert first[1].csrf != second[1].csrf
    assert first[0] != first[1].csrf


def test_a_session_ends_by_itself_and_by_logging_out():
    clock = Clock()
    made = sessions(clock)
    secret, _ = opened(made)
    for _ in range(4):
        clock.now += 250
        assert (made.find(secret) is None) == (clock.now >= 1_001_000)
        made.use(secret)
    secret, _ = opened(made)
    asyncio.run(made.end(secret))
    assert made.find(secret) is None


def test_a_session_that_nobody_uses_ends_and_looking_is_not_using():
    clock = Clock()
    made = sessions(clock)
    secret, _ = opened(made)
    clock.now += 399
    assert made.find(secret) is not None
    clock.now += 1
    assert made.find(secret) is None, "the feed of a page that was left open does not keep it"


def test_a_restart_logs_nobody_out_and_forgets_no_use():
    clock, rows = Clock(), Rows()
    before = sessions(clock, rows)
    secret, session = opened(before)
    clock.now += 300
    before.use(secret)
    asyncio.run(before.note_used())
    clock.now += 300
    assert sessions(clock, rows).find(secret) == session
    clock.now += 100
    assert sessions(clock, rows).find(secret) is None


def test_what_is_kept_lets_nobody_in():
    rows = Rows()
    secret, session = opened(sessions(Clock(), rows))
    kept = repr(rows.rows)
    assert secret not in kept
    assert session.csrf not in kept
    digest = next(iter(rows.rows)).hex()
    assert sessions(Clock(), rows).find(digest) is None


def test_links_and_places_are_bounded():
    clock = Clock()
    made, failures = sessions(clock), Failures(now_unix_ms=clock)
    for number in range(2000):
        made.make_link("user:a")
        failures.note(str(number))
    assert (len(made._links), len(failures._places)) == (MAX_LINKS, MAX_PLACES)


# ── in a home ──


def test_a_home_keeps_so_many_sessions_and_the_longest_unused_go_first(tmp_path):
    with daemon(tmp_path / "home") as served:
        rows = SessionRows(served.state.installation.writer)
        now = served.state.clock.now_unix_ms()

        async def fill() -> None:
            for number in range(MAX_SESSIONS + 3):
                at = now + number
                await rows.add(
                    KeptSession(
                        digest=number.to_bytes(32),
                        principal=OPERATOR,
                        credential_id="",
                        created_unix_ms=now,
                        expires_unix_ms=now + 1000,
                        used_unix_ms=at,
                    )
                )
                if number == 0:
                    await rows.used({number.to_bytes(32): now + 10_000})

        served.run(fill())
        there = [number for number in range(MAX_SESSIONS + 3) if rows.find(number.to_bytes(32))]
        assert there == [0, *range(4, MAX_SESSIONS + 3)]


@promise("journal.forged-login")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE sessions SET principal = 'user:boss'",
        "UPDATE sessions SET expires_unix_ms = expires_unix_ms + 1",
        "UPDATE sessions SET credential_id = ''",
        "UPDATE sessions SET digest = zeroblob(32)",
        "INSERT INTO sessions SELECT zeroblob(32), principal, '', 1, 1 << 50, 1 << 50 FROM sessions",
    ],
)
def test_a_login_that_somebody_made_or_changed_in_its_row_is_found(tmp_path, sql):
    """A row of one's own, with the digest of a cookie of one's own, let its maker in as any operator."""
    with daemon(tmp_path / "home") as served:
        _, secret = served.run(served.state.tokens.create(principal=OPERATOR, operator=True, by=OPERATOR))
        served.ask("POST", "/console/login", data={"token": secret})
        home = served.state.installation.writer.home
    assert audit_home(home).findings == ()
    with tampering(home) as other:
        other.execute(sql)
    assert [one.code for one in audit_home(home).findings] == ["KEPT"]


def test_a_login_that_counts_again_after_its_end_is_found(tmp_path):
    with daemon(tmp_path / "home") as served:
        writer = served.state.installation.writer
        secret, _ = served.run(served.state.sessions.open(OPERATOR))
        (row,) = writer.rows("SELECT * FROM sessions")
        served.run(served.state.sessions.end(secret))
        served.run(served.state.sessions.end(secret))  # who is out stays out, and is told of once
        acts = writer.rows("SELECT count(*) FROM entries WHERE instr(body, 'session.ended')")
        home = writer.home
    assert acts == [(1,)]
    assert audit_home(home).findings == ()
    with tampering(home) as other:
        other.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", row)
    assert [one.code for one in audit_home(home).findings] == ["KEPT"]


def test_a_login_holds_over_a_restart_until_its_token_is_revoked(tmp_path):
    with daemon(tmp_path / "home") as served:
        token, secret = served.run(served.state.tokens.create(principal=OPERATOR, operator=True, by=OPERATOR))
        answer = served.ask("POST", "/console/login", data={"token": secret})
        cookie = answer.headers["set-cookie"].split("=", 1)[1].split(";")[0]
        assert served.token(AGENT)
    with daemon(tmp_path / "home") as served:
        assert served.ask("GET", "/console/tokens", session=(cookie, "")).status_code == 200
        served.run(served.state.tokens.revoke(token.token_id, by=OPERATOR))
        assert served.ask("GET", "/console/tokens", session=(cookie, "")).status_code == 303


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
