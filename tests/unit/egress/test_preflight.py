"""Preflight: hosts in arguments are found in the forms people write, and files are not taken for hosts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress.hosts import parse_pattern
from palyra.egress.preflight import denied, hosts_named
from palyra.model.net import EgressMode, NetGrant


def named(program: str, *args: str) -> list[tuple[str, int | None]]:
    return [(one.host, one.port) for one in hosts_named(program, args)]


@pytest.mark.parametrize(
    ("argv", "hosts"),
    [
        (("curl", "example.com"), [("example.com", None)]),
        (("curl", "-s", "https://user:pw@Example.com:8443/x"), [("example.com", 8443)]),
        (("echo", "http://a.example/ https://b.example"), [("a.example", 80), ("b.example", 443)]),
        (("git", "clone", "git@forge.example:team/repo.git"), [("forge.example", 22)]),
        (("git", "clone", "forge:repo"), [("forge", 22)]),
        (("scp", "a.txt", "host.example:/tmp/"), [("host.example", 22)]),
        (("ssh", "me@host.example"), [("host.example", 22)]),
        (("any", "--host=a.example,b.example:99"), [("a.example", None), ("b.example", 99)]),
        (("any", "--server", "a.example"), [("a.example", None)]),
        (("pip", "--index-url", "https://h.example:8443/simple"), [("h.example", 8443)]),
        (("any", "db.example.com:5432"), [("db.example.com", 5432)]),
        (("any", "localhost:8080"), [("localhost", 8080)]),
        (("any", "[::1]:80"), [("::1", 80)]),
        (("nc", "10.0.0.1", "80"), [("10.0.0.1", None)]),
        (("curl", "0x7f.1"), [("0x7f.1", None)]),
        (("curl", "http://2130706433/"), [("2130706433", 80)]),
        (("bash", "-c", "curl http://a.example; x=$(curl https://b.example)"), [("a.example", 80), ("b.example", 443)]),
        (("bash", "-c", "curl http://a.example:8080&"), [("a.example", 8080)]),
        (("curl", "http://a.example&.evil.example"), [("a.example&.evil.example", 80)]),
    ],
)
def test_hosts_are_found_where_people_write_them(argv, hosts):
    assert named(*argv) == hosts


@pytest.mark.parametrize(
    "argv",
    [
        ("cat", "a.txt"), ("grep", "-n", "main.py:12"), ("date", "12:30"), ("git", "status"),
        ("tar", "-xf", "a.tar.gz"), ("git", "show", "HEAD:src/a.py"),
        ("git", "log", "v1.0..v2.0"), ("sed", "s,a:b,c:d,"), ("ls", "a:b"),
        ("git", "log", "--format=%h:%s"), ("cp", "x.example.txt", "y"), ("echo", "3.14"), ("curl", "-o", "out.json"),
    ],
)  # fmt: skip
def test_files_and_words_are_not_taken_for_hosts(argv):
    assert named(*argv) == []


def test_what_cannot_be_read_as_a_host_is_denied_not_overlooked():
    grant = NetGrant(EgressMode.STRICT, (parse_pattern("example.com"),))
    found = hosts_named("curl", ("http://0177.0.0.1/", "https://example.com"))
    assert [one.host for one in denied(grant, found)] == ["0177.0.0.1"]


@given(st.sampled_from(["curl", "git", "cat"]), st.lists(st.text(max_size=40), max_size=4))
def test_any_arguments_are_read_without_failing(program, args):
    for one in hosts_named(program, args):
        assert one.argument in args


def test_a_list_names_each_host_once_and_nothing_between_commas():
    found = hosts_named("ssh", ["x.test", ",a.test,,a.test,b.test" + "," * 4000], ())
    assert [one.host for one in found] == ["x.test", "a.test", "b.test"]
