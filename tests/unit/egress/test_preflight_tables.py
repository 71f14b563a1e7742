"""The tables of programs that go to the network, as promises: each names its host, and a host is never overlooked."""

from __future__ import annotations

import pytest

from palyra.egress.hosts import parse_pattern
from palyra.egress.preflight import GIT_REACHES, hosts_named
from palyra.egress.watch import goes_out
from palyra.errors import Rejected

FIRST = (
    "curl wget ssh autossh mosh nc ncat netcat telnet ftp tftp ping ping4 ping6 traceroute tracepath mtr host "
    "nslookup drill whois"
)


@pytest.mark.parametrize("program", FIRST.split())
def test_the_first_operand_is_a_host_even_without_a_dot(program: str) -> None:
    assert "router" in [one.host for one in hosts_named(program, ["router"])]


@pytest.mark.parametrize("word", ["clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive"])
def test_these_git_commands_go_out(word: str) -> None:
    assert word in GIT_REACHES
    assert goes_out("git", [word, "x"])
    assert not goes_out("git", ["status", "log"])


@pytest.mark.parametrize("text", ["a*.test", "a.*.test", "*", "a.test*", "*a.test"])
def test_a_star_within_a_name_is_no_pattern(text: str) -> None:
    with pytest.raises(Rejected):
        parse_pattern(text)
