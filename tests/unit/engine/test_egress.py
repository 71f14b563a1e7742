"""What the engine makes of granted hosts: hints, credentials, and what a background process cannot have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palyra.egress.credentials import Credential
from palyra.egress.hosts import parse_pattern
from palyra.engine.output import refused_hosts_hint
from palyra.model.outcome import Connection


def refused(host: str, port: int, why: str = "", verdict: str = "denied") -> Connection:
    return Connection(host=host, port=port, verdict=verdict, why=why)


@pytest.mark.parametrize(
    ("connection", "named"),
    [
        (refused("pypi.test", 53), "--allow-host pypi.test,"),
        (refused("pypi.test", 443), "--allow-host pypi.test,"),
        (refused("db.test", 5432), "--allow-host db.test:5432,"),
        (refused("2001:db8::1", 22), "--allow-host [2001:db8::1]:22,"),
    ],
)
def test_the_hint_names_the_host_as_the_flag_takes_it(connection: Connection, named: str) -> None:
    hint = refused_hosts_hint((refused("fine.test", 443, verdict="allowed"), connection))
    assert hint is not None
    assert named in hint


def test_there_is_no_hint_without_a_refusal_of_a_named_host() -> None:
    assert refused_hosts_hint(()) is None
    assert refused_hosts_hint((refused("*", 0), refused("down.test", 443, verdict="failed"))) is None


def test_the_hint_says_why_and_how_many_more() -> None:
    hint = refused_hosts_hint((refused("a.test", 443, "a.test leads to 10.0.0.1"), refused("b.test", 443)))
    assert hint == (
        "a.test was refused (a.test leads to 10.0.0.1), and 1 more (egress.connections in the output). "
        "Grant it with --allow-host a.test, or in allowed_egress_hosts."
    )


def test_a_credential_shows_its_value_in_no_repr() -> None:
    one = Credential(pattern=parse_pattern("a.test"), header="Authorization", value="secret")
    assert "secret" not in repr(one) + repr(replace(one, header="X-Key"))
