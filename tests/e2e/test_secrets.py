"""`palyra secrets`: values go in on stdin and come out nowhere."""

from __future__ import annotations

import json

from tests.command_line import Cli

TOKEN = b"tok-0123456789-abcdef"


def test_a_secret_is_set_listed_redacted_and_deleted(cli: Cli):
    done = cli("secrets", "set", "TOKEN", "--host", "api.test", "--scope", "principal=agent:*", stdin=TOKEN + b"\n")
    assert (done.returncode, TOKEN in done.stdout + done.stderr) == (0, False)
    (item,) = json.loads(cli("secrets", "list", "--json").stdout)["items"]
    assert (item["name"], item["credential"]["host"], item["scope"]["principals"]) == ("TOKEN", "api.test", ["agent:*"])
    (cli.workspace / "leak").write_bytes(b"my " + TOKEN)
    assert cli("run", "--", "cat", "leak").stdout == b"my [redacted:TOKEN:1]"
    assert b"redacted" in cli("run", "--", "base64", "leak").stdout
    assert TOKEN not in cli("journal", "tail", "--json").stdout
    assert cli("secrets", "delete", "TOKEN").returncode == 0
    assert cli("secrets", "delete", "TOKEN").returncode == 1


def test_wrong_values_and_scopes_are_refused(cli: Cli):
    assert cli("secrets", "set", "A", stdin=b"short").returncode == 1
    assert cli("secrets", "set", "A", "--scope", "nobody", stdin=b"long enough").returncode == 2
    assert cli("secrets", "set", "bad name", stdin=b"long enough").returncode == 2
    assert json.loads(cli("secrets", "list", "--json").stdout) == {"items": [], "next": None}


def test_a_new_version_for_the_same_host_keeps_how_it_is_sent(cli: Cli):
    """The guide's second command took the `Bearer ` off again, and every request was refused by its host."""

    def bound(*flags: str) -> list[str]:
        done = cli("secrets", "set", "TOKEN", *flags, "--json", stdin=TOKEN)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout)["credential"].values())

    assert bound("--host", "api.test", "--header", "X-Key", "--prefix", "Bearer ") == ["api.test", "X-Key", "Bearer "]
    assert bound("--scope", "tool=palyra.http.*") == ["api.test", "X-Key", "Bearer "]
    assert bound("--host", "api.test") == ["api.test", "X-Key", "Bearer "]
    assert bound("--host", "api.test", "--prefix", "") == ["api.test", "X-Key", ""]
    assert bound("--host", "other.test") == ["other.test", "Authorization", ""]


def test_a_header_without_a_host_is_not_thrown_away_quietly(cli: Cli):
    done = cli("secrets", "set", "A", "--prefix", "Bearer ", stdin=b"long enough")
    assert (done.returncode, b"name that with --host" in done.stderr) == (2, True)


def test_a_vault_that_was_tampered_with_stops_calls_and_leaves_the_journal_readable(cli: Cli):
    cli("secrets", "set", "TOKEN", stdin=TOKEN)
    file = cli.home / "vault" / "secrets.json"
    file.write_bytes(file.read_bytes().replace(b"TOKEN", b"OTHER"))
    refused = cli("run", "--", "true")
    assert (refused.returncode, b"vault" in refused.stderr) == (126, True)
    assert cli("journal", "verify").returncode == 0
