"""What may be a credential, and which requests it is added to."""

from __future__ import annotations

import pytest

from palyra.egress.credentials import Credential, add_credentials
from palyra.egress.grammar import Target
from palyra.egress.hosts import parse_pattern
from palyra.errors import ConfigError
from tests.promises import promise


def credential(pattern: str = "a.test:80", header: str = "Authorization", value: str = "Bearer s3cret") -> Credential:
    return Credential(pattern=parse_pattern(pattern), header=header, value=value)


@promise("egress.injected-credentials")
def test_every_spelling_of_the_same_field_is_taken_away():
    fields = (("authorization", "a"), ("AUTHORIZATION", "b"), ("X_Api_Key", "c"), ("x-api-key", "d"), ("Accept", "e"))
    ours = (credential(), credential(header="X-Api-Key", value="k"))
    assert add_credentials(fields, ours, Target("a.test", 80), is_tls=False) == (
        ("Accept", "e"),
        ("Authorization", "Bearer s3cret"),
        ("X-Api-Key", "k"),
    )


@promise("egress.injected-credentials")
@pytest.mark.parametrize("target", [Target("b.test", 80), Target("a.test", 8080), Target("x.a.test", 80)])
def test_another_host_or_port_gets_neither_the_value_nor_a_change(target):
    fields = (("Authorization", "its own"),)
    assert add_credentials(fields, (credential(),), target, is_tls=False) == fields


@promise("egress.injected-credentials")
def test_without_a_port_it_is_for_the_encrypted_port_alone():
    bare = credential("a.test")
    assert [
        bare.is_for(Target("a.test", port), is_tls=is_tls)
        for port, is_tls in ((443, True), (443, False), (80, False), (80, True), (8443, True))
    ] == [True, False, False, False, False]


@pytest.mark.parametrize(
    "header", ["Host", "content-length", "Transfer-Encoding", "Connection", "Proxy-Authorization", "", "A B", "A:", "Ä"]
)
def test_fields_that_steer_the_request_are_no_credentials(header):
    with pytest.raises(ConfigError):
        credential(header=header)


@pytest.mark.parametrize("value", ["", " ", "a\r\nHost: evil.test", "a\nb", "a\0", "ä", " a", "a\n", "x" * 9000])
def test_a_value_cannot_hold_another_field(value):
    with pytest.raises(ConfigError, match="is empty, too long, or not printable ASCII"):
        credential(value=value)


def test_the_value_is_in_no_repr():
    assert "s3cret" not in repr(credential())
