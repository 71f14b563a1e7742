"""`[egress]`: bounds with ranges, and a table of names that is read strictly."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from palyra.config.egress import EgressConfig, parse_resolve
from palyra.config.schema import Config, ConfigKeyError, parse_config


def test_the_table_keeps_several_addresses_of_a_name() -> None:
    table = parse_resolve(["Registry.Test.=10.0.0.5", "registry.test = [2001:db8::1]", "b.test=127.0.0.1"])
    assert table == {
        "registry.test": (ip_address("10.0.0.5"), ip_address("2001:db8::1")),
        "b.test": (ip_address("127.0.0.1"),),
    }


@pytest.mark.parametrize("entry", ["a.test", "a.test=", "=10.0.0.1", "a.test=b.test", "a b=10.0.0.1", "a.test=0x7f.1"])
def test_anything_else_is_an_error_that_names_the_key(entry: str) -> None:
    with pytest.raises(ConfigKeyError, match="NAME=ADDRESS") as raised:
        parse_config({"egress": {"resolve": [entry]}})
    assert raised.value.path == ("egress", "resolve")


def test_bounds_have_ranges() -> None:
    assert parse_config({"egress": {"max_connections": 5}}) == Config(egress=EgressConfig(max_connections=5))
    with pytest.raises(ConfigKeyError, match="outside"):
        parse_config({"egress": {"idle_timeout_s": 0}})
