"""What a connection may say about where it goes, and which hosts' TLS is ended outside."""

from __future__ import annotations

import pytest

from palyra.egress.face import face_of
from palyra.egress.grammar import Target
from palyra.egress.hosts import parse_pattern
from palyra.egress.names import NameTable
from palyra.egress.terms import Broken, Refused, Terms
from palyra.model.net import EgressMode, NetGrant

GRANT = NetGrant(EgressMode.STRICT, tuple(map(parse_pattern, ("a.test", "b.test", "203.0.113.7"))))


def terms(*intercepted: str) -> Terms:
    face = face_of(GRANT)
    assert face is not None
    return Terms(grant=GRANT, names=NameTable(GRANT, face), intercepted=tuple(map(parse_pattern, intercepted)))


@pytest.mark.parametrize(
    ("target", "named", "may"),
    [
        (Target("a.test", 443), Target("a.test", 443), True),
        (Target("a.test", 443), Target("b.test", 443), False),
        (Target("203.0.113.7", 443), Target("a.test", 443), True),
        (Target("203.0.113.7", 443), Target("a.test", 80), False),
        (Target("203.0.113.7", 443), Target("evil.test", 443), False),
    ],
)
def test_a_name_is_the_targets_own_or_a_granted_one_at_an_address(target: Target, named: Target, may: bool) -> None:
    assert terms().may_name(target, named) is may


def test_only_marked_hosts_are_intercepted() -> None:
    assert not terms().intercepts(Target("a.test", 443))
    assert terms("a.test").intercepts(Target("a.test", 443))
    assert not terms("a.test").intercepts(Target("b.test", 443))


def test_a_refusal_keeps_apart_what_is_recorded_and_what_is_told() -> None:
    secret = Refused(Target("a.test", 443), "resolves to 10.0.0.1", told="is not allowed")
    assert (str(secret), secret.why, secret.told) == ("resolves to 10.0.0.1", "resolves to 10.0.0.1", "is not allowed")
    assert Refused(None, "no").told == "no"
    assert (str(Broken("gone")), Broken("gone").status, Broken("late", status=504).status) == ("gone", 502, 504)


def test_what_went_wrong_is_what_the_error_says() -> None:
    broken = Broken("no answer")
    assert (str(broken), broken.why, broken.status) == ("no answer", "no answer", 502)
    refused = Refused(None, "leads to a private address", told="is not granted")
    assert (str(refused), refused.why, refused.told) == (refused.why, "leads to a private address", "is not granted")
    assert Refused(None, "no").told == "no"
