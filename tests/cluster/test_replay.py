"""`palyra journal verify --replay` of a cluster's journal: decisions of every daemon, made again from the server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psycopg

from palyra.api import AsyncPalyra
from tests.cluster.operating import daemon, palyra, told
from tests.postgres import url_of

NO_ECHO = """
@id("local.no-echo")
@reason("Nobody echoes here.")
forbid (principal, action == Action::"tool::execute", resource == Tool::"palyra.echo");
"""


def ask(home: Path, workspace: Path, numbers: range) -> list[Any]:
    """Each call through another daemon of the two."""

    async def one(number: int, palyra: AsyncPalyra) -> Any:
        async with palyra:
            run = palyra.run(principal="agent:demo", workspace=str(workspace))
            return await run.call("palyra.echo", {"number": number})

    return [asyncio.run(one(number, daemon(home, number % 2, url_of(home)))) for number in numbers]


def forbid_echo(home: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "local.cedar").write_text(NO_ECHO)
    done = palyra(home, "policy", "use", str(folder))
    assert done.returncode == 0, done.stderr


def test_decisions_of_several_daemons_and_policies_are_made_again_from_the_server(home, workspace):
    allowed = ask(home, workspace, range(4))
    forbid_echo(home, workspace / "policies")
    refused = ask(home, workspace, range(4))
    assert [one.success for one in (*allowed, *refused)] == [True] * 4 + [False] * 4
    for number in range(2):  # each daemon's home sees the one journal
        root = home if number == 0 else home.with_name("daemon1")
        found = told(palyra(root, "journal", "verify", "--replay", "--json"))
        assert (found["ok"], found["decisions"], found["items"]) == (True, 8, [])


def test_a_decision_whose_policies_are_gone_from_the_server_is_named(home, workspace):
    first, *_ = ask(home, workspace, range(2))
    with psycopg.connect(url_of(home), autocommit=True) as connection:
        connection.execute("DELETE FROM policy_texts WHERE kind = 'bundle'")
    done = palyra(home, "journal", "verify", "--replay", "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["ok"], found["decisions"]) == (1, False, 2)
    assert first.call_id in {one["call_id"] for one in found["items"]}
    assert all("not kept" in one["detail"] for one in found["items"])


def test_policies_swapped_on_the_server_do_not_make_a_decision_good(home, workspace):
    """Who can write the database puts another bundle under the digest of the one that decided."""
    ask(home, workspace, range(1))
    with psycopg.connect(url_of(home), autocommit=True) as connection:
        connection.execute(
            "UPDATE policy_texts SET files = %s WHERE kind = 'bundle'", (json.dumps({"x.cedar": NO_ECHO}).encode(),)
        )
    done = palyra(home, "journal", "verify", "--replay", "--json")
    assert (done.returncode, json.loads(done.stdout)["ok"]) == (1, False)
