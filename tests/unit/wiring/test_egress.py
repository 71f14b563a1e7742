"""Authorities for hosts whose TLS is ended here: which one a sandbox trusts, and for how long."""

from __future__ import annotations

from cryptography import x509

from palyra.egress.hosts import parse_pattern
from palyra.model.face import Trust
from palyra.model.net import EgressMode, NetGrant
from palyra.wiring.egress import Interceptor

HOST = "granted.test"
DAY_MS = 24 * 3600 * 1000
NET = NetGrant(EgressMode.STRICT, (parse_pattern(HOST),))


class Days:
    """A process that lives for days."""

    def __init__(self) -> None:
        self.now_unix_ms = 1_800_000_000_000
        self.interceptor = Interceptor(NET.hosts, lambda: self.now_unix_ms)

    def trust(self) -> Trust:
        found = self.interceptor.trust_for(NET)
        assert found is not None
        return found


def ends_unix_ms(trust: Trust) -> int:
    made = x509.load_pem_x509_certificate(trust.authority)
    return int(made.not_valid_after_utc.timestamp() * 1000)


def test_an_authority_never_ends_before_a_call_that_begins_with_it() -> None:
    """After a week nothing that a daemon served for marked hosts was trusted any more, until it was restarted."""
    days = Days()
    for _ in range(60):
        days.now_unix_ms += DAY_MS // 2
        assert ends_unix_ms(days.trust()) > days.now_unix_ms + DAY_MS, "a call may run for a day"


def test_calls_that_began_before_an_authority_was_replaced_are_served_by_their_own() -> None:
    days = Days()
    before = days.trust()
    assert days.trust() == before
    days.now_unix_ms += 6 * DAY_MS
    after = days.trust()
    assert after.authority != before.authority
    assert after.bundle.endswith(after.authority)
    assert before.authority not in after.bundle
    first, second = (days.interceptor.interception(one.authority) for one in (before, after))
    assert first is not None
    assert second is not None
    assert first.certificates is not second.certificates
    assert days.interceptor.interception(b"somebody else's") is None


def test_a_clock_that_was_set_back_gets_an_authority_of_its_own_time() -> None:
    days = Days()
    before = days.trust()
    days.now_unix_ms -= 30 * DAY_MS
    assert days.trust().authority != before.authority
