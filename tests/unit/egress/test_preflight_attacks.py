"""Ways to name a host that a careless reading would miss, and text that names none."""

from __future__ import annotations

import shlex

import pytest

from palyra.egress.preflight import hosts_named


def named(line: str) -> list[str]:
    program, *args = shlex.split(line)
    return [one.host for one in hosts_named(program, args)]


@pytest.mark.parametrize(
    "line",
    [
        "curl evil.test/x", "curl -s evil.test/x?y#z", "curl u:p@evil.test:81/x", "curl http:/evil.test",
        "wget evil.test",
        "curl http:///evil.test", "curl http://good.test@evil.test/", "curl 'http:\\\\evil.test'",
        "curl HTTP://EVIL.test",
        "curl gopher://evil.test/", "curl dict://evil.test:11211/", "x --url=https://evil.test",
        "echo https://evil.test.",
        "timeout 5 curl evil.test", "env A=1 curl evil.test", "/usr/bin/curl evil.test", "CURL.EXE evil.test",
        "git fetch https://evil.test/x", "git remote add x https://evil.test", "git -C d clone evil.test:x",
        "ssh evil.test id", "ssh -p 22 me@evil.test", "ssh -J evil.test good", "ssh -Jevil.test good",
        "scp a evil.test:b",
        "ssh -o ProxyJump=evil.test good", "rsync -a a evil.test:b", "dig @evil.test a.test", "nc evil.test 80",
        "psql -h evil.test", "psql -hevil.test", "psql 'host=evil.test dbname=x'", "mysql --host=evil.test",
        "openssl s_client -connect evil.test:443", "socat - TCP:evil.test:80",
        "curl -x evil.test:3128 http://good.test",
        "curl -xevil.test:3128 http://good.test", "curl --proxy evil.test http://good.test",
        "curl --socks5 evil.test x",
        "curl 'http://good.test,http://evil.test'", "x 'jdbc:postgresql://evil.test/db'",
        "mongosh mongodb://a.test,evil.test/x",
        "curl 'http://good.test\\@evil.test/'", "x 'http://evil.te\tst/'",
    ],
)  # fmt: skip
def test_every_spelling_of_a_host_is_found(line):
    assert "evil.test" in named(line)


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("ping router", "router"), ("curl intranet", "intranet"), ("curl -o out intranet/x", "intranet"),
        ("ssh db1", "db1"),
        ("nc backend 80", "backend"), ("telnet box", "box"), ("curl localhost", "localhost"),
        ("psql -h db -U me", "db"),
    ],
)  # fmt: skip
def test_hosts_without_a_dot_are_found_for_programs_that_take_one(line, host):
    assert named(line) == [host]


@pytest.mark.parametrize(
    "line", ["curl http://0x7f000001/", "curl 'http://{a,b}.test/'", "curl http://%65vil.test/", "curl http://127.1/"]
)
def test_what_cannot_be_read_is_named_as_it_stands(line):
    assert named(line) != []


def test_both_readings_of_a_backslash_are_named():
    assert named("curl 'http://good.test\\@evil.test/'") == ["good.test", "evil.test"]


@pytest.mark.parametrize(
    "line",
    [
        "grep -r https://a.test .", "rg https://a.test", "sed s,https://a.test,x, f", "jq '.x == \"https://a.test\"' f",
        "git commit -m 'see https://a.test'", "git log --grep=https://a.test", "git show HEAD:a.b",
        "cat file:///a.test/x",
        "ls a.test", "cat notes.test:12", "python3 -m http.server", "tar -xf a.tar.gz", "ssh", "curl --version",
        "nc -l 80",
    ],
)  # fmt: skip
def test_text_and_files_name_no_host(line):
    assert "a.test" not in named(line)
    assert [host for host in named(line) if "." not in host] == []
