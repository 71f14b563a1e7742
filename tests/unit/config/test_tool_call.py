"""What programs get: modes under two names, images that stay what they are, limits taken together."""

from __future__ import annotations

import pytest

from palyra.config.schema import ConfigKeyError, parse_config
from palyra.model.limits import Limits
from palyra.model.net import EgressMode


def runner(**values: object) -> dict[str, dict[str, object]]:
    return {"tool_call": {"process_runner": values}}


@pytest.mark.parametrize(("word", "mode"), [("allow_all", EgressMode.NONE), ("block_all", EgressMode.STRICT)])
def test_the_aliases_of_egress_modes_are_accepted(word, mode):
    config = parse_config(runner(egress_enforcement_mode=word))
    assert config.tool_call.process_runner.egress_mode is mode


def test_the_limits_of_a_call_are_those_of_its_tables():
    mapping = runner(cpu_time_limit_ms=2, memory_limit_bytes=8 << 20, max_processes=4, max_output_bytes=5)
    mapping["tool_call"]["execution_timeout_ms"] = 1
    limits = Limits(wall_ms=1, cpu_ms=2, memory_bytes=8 << 20, processes=4, output_bytes=5)
    assert parse_config(mapping).limits == limits


@pytest.mark.parametrize(
    "image", ["", f"sha256:{'ab' * 32}", f"debian@sha256:{'0' * 64}", f"localhost:5000/a/b:1.2@sha256:{'f' * 64}"]
)
def test_an_image_is_pinned_by_its_digest(image: str) -> None:
    assert parse_config(runner(container_image=image)).tool_call.process_runner.container_image == image


@pytest.mark.parametrize(
    "image",
    ["debian", "debian:12", "debian@sha256:abc", f"--privileged@sha256:{'0' * 64}", f"a b@sha256:{'0' * 64}",
     f"sha256:{'0' * 64}\n", f"SHA256:{'0' * 64}", f"sha256:{'0' * 65}"],
)  # fmt: skip
def test_an_image_that_can_mean_another_tomorrow_is_refused(image: str) -> None:
    with pytest.raises(ConfigKeyError, match="container_image"):
        parse_config(runner(container_image=image))


def test_only_known_backends_can_be_named() -> None:
    assert parse_config(runner()).tool_call.process_runner.backend == "auto"
    assert parse_config(runner(backend="docker")).tool_call.process_runner.backend == "docker"
    with pytest.raises(ConfigKeyError):
        parse_config(runner(backend="/tmp/evil"))


@pytest.mark.parametrize(
    ("table", "text"),
    [
        ({"host": "db.test", "port": 9042, "raw": True}, "db.test:9042 raw"),
        ({"host": "fd00::1", "port": 9042, "raw": True}, "[fd00::1]:9042 raw"),
        ({"host": "db.test", "port": 9042}, "db.test:9042"),
        ({"host": "db.test", "port": 9042, "raw": False}, "db.test:9042"),
    ],
)
def test_a_host_in_a_table_may_be_raw(table: dict[str, object], text: str) -> None:
    config = parse_config(runner(allowed_egress_hosts=["a.test", table]))
    assert config.tool_call.process_runner.allowed_egress_hosts == ("a.test", text)
    assert parse_config(runner(allowed_egress_hosts=["a.test", text])) == config


@pytest.mark.parametrize(
    "table",
    [{}, {"host": "a.test"}, {"port": 1}, {"host": 1, "port": 1}, {"host": "a.test", "port": "1"},
     {"host": "a.test", "port": True}, {"host": "a.test", "port": 1, "raw": "yes"},
     {"host": "a.test", "port": 1, "row": True}],
)  # fmt: skip
def test_a_host_in_a_table_has_a_host_a_port_and_raw_and_nothing_else(table: dict[str, object]) -> None:
    with pytest.raises(ConfigKeyError, match="a host, a port and raw, nothing else"):
        parse_config(runner(allowed_egress_hosts=[table]))
