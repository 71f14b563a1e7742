"""A secret bound to a host, as a user lives it: added outside the sandbox, on that host alone, and seen nowhere."""

from __future__ import annotations

import pytest

from tests.command_line import Cli
from tests.e2e.granted import need, run_granted
from tests.servers import Seen, web

pytestmark = pytest.mark.slow

TOKEN = "forge-4f9a2c77d1e84b0c-token"
LOOK = (
    "env; cat /proc/self/environ /proc/1/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n'; curl -sS -v {url} 2>&1"
)


def bind(cli: Cli, host: str, *options: str) -> None:
    done = cli("secrets", "set", "FORGE_TOKEN", "--host", host, "--prefix", "Bearer ", *options, stdin=TOKEN.encode())
    assert done.returncode == 0, done.stderr


def authorizations(seen: Seen) -> list[str | None]:
    return [headers.get("authorization") for _, _, headers in seen.requests]


def test_a_bound_token_reaches_its_host_and_appears_nowhere(developer: Cli) -> None:
    need("curl")
    with web() as seen:
        bind(developer, f"granted.test:{seen.port}")
        url = f"http://granted.test:{seen.port}/"
        outcome = run_granted(developer, seen, "sh", "-c", LOOK.format(url=url))
    assert authorizations(seen) == [f"Bearer {TOKEN}"]
    assert outcome["output"]["exit_code"] == 0, outcome
    assert TOKEN not in str(outcome)
    assert "redacted" not in outcome["output"]["stdout"], "it was never in there to be redacted"
    holding = [path for path in developer.home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holding == []
    assert TOKEN.encode() not in developer("journal", "tail", "--json").stdout
    assert TOKEN.encode() not in developer("secrets", "list", "--json").stdout


def test_it_goes_to_no_other_host_though_that_is_granted_too(developer: Cli) -> None:
    need("curl")
    with web() as bound, web() as other:
        bind(developer, f"granted.test:{bound.port}")
        more = ("--allow-host", f"other.test:{other.port}", "--allow-host", f"127.0.0.1:{other.port}")
        there = f"http://other.test:{other.port}/"
        run_granted(
            developer, bound, "curl", "-sS", "-L", f"http://granted.test:{bound.port}/to?{there}", there, more=more
        )
        run_granted(developer, bound, "curl", "-sS", "-H", f"Host: granted.test:{bound.port}", there, more=more)
    assert set(authorizations(bound)) == {f"Bearer {TOKEN}"}
    assert authorizations(other) == [None] * len(other.requests)
    assert other.requests, "the other host was reached, without it"


def test_a_scope_keeps_it_from_others(developer: Cli) -> None:
    need("curl")
    with web() as seen:
        bind(developer, f"granted.test:{seen.port}", "--scope", "principal=agent:release-*")
        run_granted(developer, seen, "curl", "-sS", f"http://granted.test:{seen.port}/")
    assert authorizations(seen) == [None]


def test_a_host_that_sends_it_back_is_redacted(developer: Cli) -> None:
    need("curl")
    with web() as seen:
        bind(developer, f"granted.test:{seen.port}")
        url = f"http://granted.test:{seen.port}/"
        outcome = run_granted(
            developer, seen, "sh", "-c", f"curl -sS {url} >/dev/null; echo got forge-4f9a2c77d1e84b0c-''token"
        )
    assert outcome["output"]["stdout"] == "got [redacted:FORGE_TOKEN:1]\n"
