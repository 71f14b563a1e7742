"""A program that failed for want of something a sandbox has not is told so, and one that failed otherwise is not."""

from __future__ import annotations

import pytest

from palyra.egress.hosts import parse_pattern
from palyra.engine.said_hint import MAX_BYTES, said_hint
from palyra.model.net import EgressMode, NetGrant

WHO = b"Author identity unknown\n\n*** Please tell me who you are.\n"
ALONE, OPEN = NetGrant(mode=EgressMode.STRICT), NetGrant(mode=EgressMode.NONE)
GRANTED = NetGrant(mode=EgressMode.STRICT, hosts=(parse_pattern("a.example"),))
REFUSED = b"curl: (7) Failed to connect to 127.0.0.1 port 8000: Couldn't connect to server"


def test_git_without_a_name_is_told_how_to_give_one() -> None:
    hint = said_hint(WHO, OPEN)
    assert hint is not None
    assert 'args=["-c", "user.name=NAME", "-c", "user.email=EMAIL", "commit", …]' in hint


@pytest.mark.parametrize(
    "said",
    [REFUSED, b"connect ECONNREFUSED ::1:3000", b"bash: connect: Connection refused\nbash: /dev/tcp/localhost/1"],
)
def test_who_finds_no_server_on_localhost_is_told_whose_localhost_it_is(said: bytes) -> None:
    hint = said_hint(said, GRANTED)
    assert hint is not None
    assert hint.startswith("Each call has a network of its own")


def test_who_has_no_host_can_have_been_refused_on_localhost_alone() -> None:
    said = b"urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"
    assert said_hint(said, ALONE) == said_hint(REFUSED, GRANTED)
    assert said_hint(said, GRANTED) is None


@pytest.mark.parametrize(
    ("said", "net"),
    [
        (b"", ALONE), (REFUSED, OPEN), (b"Connection refused: a.example", GRANTED), (b"listening on localhost", ALONE),
        (WHO + b"x" * MAX_BYTES, ALONE),
    ],
)  # fmt: skip
def test_what_failed_otherwise_is_not_explained_by_it(said: bytes, net: NetGrant) -> None:
    assert said_hint(said, net) is None
