"""Tokens at rest: no secret in the home, a change and its act together, revoked from the next look on."""

from __future__ import annotations

import asyncio
import os

import pytest

from palyra.errors import Rejected
from palyra.state.writer import Writer
from palyra.tokens.store import TokenStore
from tests.journaling import NOW, audit_home, ulid
from tests.stores import tampering


@pytest.fixture
def writer(home):
    made = Writer.open(home)
    yield made
    made.close()


def store(writer, now=lambda: NOW) -> TokenStore:
    return TokenStore(writer, new_id=ulid, random_bytes=os.urandom, now_unix_ms=now)


def make(tokens, **more):
    return asyncio.run(tokens.create(**({"principal": "agent:a", "operator": False, "by": "user:b"} | more)))


def acts(writer) -> list[bytes]:
    return [body for (body,) in writer.rows("SELECT body FROM entries ORDER BY idx")]


def test_a_token_is_found_until_it_is_revoked(writer):
    tokens = store(writer)
    token, secret = make(tokens)
    assert tokens.find(secret) == token
    asyncio.run(tokens.revoke(token.token_id, by="user:b"))
    assert tokens.find(secret) is None
    assert tokens.by_id(token.token_id).revoked_unix_ms == NOW


def test_nothing_in_the_home_holds_the_secret(writer, home):
    _, secret = make(store(writer))
    writer.close()
    tail = secret.rsplit("_", 1)[1].encode()
    for path in home.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert tail not in content, path
            assert bytes.fromhex(tail.decode()) not in content, path


def test_making_and_revoking_are_journaled_once(writer):
    tokens = store(writer)
    token, _ = make(tokens)
    asyncio.run(tokens.revoke(token.token_id, by="user:b"))
    asyncio.run(tokens.revoke(token.token_id, by="user:c"))
    told = acts(writer)
    assert [b"token.created" in told[0], b"token.revoked" in told[1], len(told)] == [True, True, 2]


def test_an_expired_token_is_none(writer):
    token, secret = make(store(writer), lifetime_ms=1000)
    assert store(writer, now=lambda: NOW + 999).find(secret) == token
    assert store(writer, now=lambda: NOW + 1000).find(secret) is None


def test_another_tokens_secret_does_not_open_this_one(writer):
    tokens = store(writer)
    (first, secret), (second, _) = make(tokens), make(tokens)
    mixed = secret.replace(first.token_id, second.token_id)
    assert tokens.find(mixed) is None


def test_revoking_what_is_not_there_is_refused(writer):
    with pytest.raises(Rejected):
        asyncio.run(store(writer).revoke(ulid(), by="user:b"))
    assert acts(writer) == []


def test_the_list_begins_with_the_newest(writer):
    tokens = store(writer)
    made = [make(tokens)[0] for _ in range(3)]
    assert tokens.list(count=2) == (made[2], made[1])
    assert tokens.list(before=made[1].token_id) == (made[0],)


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE tokens SET revoked_unix_ms = NULL",
        "UPDATE tokens SET operator = 1",
        "UPDATE tokens SET principal = 'user:operator'",
        "UPDATE tokens SET expires_unix_ms = expires_unix_ms + 1",
        "UPDATE tokens SET token_id = 'another' WHERE operator = 0",
        "UPDATE tokens SET digest = zeroblob(32)",
        "UPDATE tokens SET workspace = '/'",
        "DELETE FROM tokens",
    ],
)
def test_a_token_that_somebody_made_or_revived_in_its_row_is_found(writer, sql):
    """An operator's token as a row of one's own: it let its holder in, and all verified."""
    tokens = store(writer)
    make(tokens, operator=True, principal="user:b")
    token, _ = make(tokens)
    asyncio.run(tokens.revoke(token.token_id, by="user:b"))
    assert audit_home(writer.home).findings == ()
    with tampering(writer.home) as other:
        other.execute(sql)
    assert {one.code for one in audit_home(writer.home).findings} == {"KEPT"}
