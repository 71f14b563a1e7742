"""The tables of programs that go to the network, as promises: each names its host, and a host is never overlooked."""

from __future__ import annotations

import pytest

from palyra.egress.git_words import REACHES
from palyra.egress.hosts import parse_pattern
from palyra.egress.preflight import hosts_named
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
    assert word in REACHES
    assert goes_out("git", [word, "x"])
    assert not goes_out("git", ["status", "log"])


@pytest.mark.parametrize("text", ["a*.test", "a.*.test", "*", "a.test*", "*a.test"])
def test_a_star_within_a_name_is_no_pattern(text: str) -> None:
    with pytest.raises(Rejected):
        parse_pattern(text)


PORTS = """
http 80 https 443 ftp 21 ftps 990 ssh 22 sftp 22 scp 22 git 9418 git+ssh 22 git+https 443 ws 80 wss 443 ldap 389
ldaps 636 postgres 5432 postgresql 5432 mysql 3306 redis 6379 mongodb 27017 amqp 5672 rsync 873 svn 3690 telnet 23
smtp 25 imap 143 socks5 1080 socks5h 1080 docker 443 oci 443 s3 443
""".split()


@pytest.mark.parametrize(("scheme", "port"), list(zip(PORTS[::2], PORTS[1::2], strict=True)))
def test_a_scheme_stands_for_its_port_with_one_slash_too(scheme: str, port: str) -> None:
    for url in (f"{scheme}://h.test/x", f"{scheme}:/h.test"):
        assert [(one.host, one.port) for one in hosts_named("curl", [url])][:1] == [("h.test", int(port))]


@pytest.mark.parametrize("scheme", ["file", "data", "about", "mailto", "javascript", "urn"])
def test_these_schemes_name_no_host(scheme: str) -> None:
    assert "h.test" not in [one.host for one in hosts_named("cat", [f"{scheme}://h.test/x"])]
