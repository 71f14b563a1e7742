"""Recorded decisions: made again by the bundle that made them, compared with another, and never taken from a forger."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import orjson
import pytest

from palyra.api import AsyncPalyra
from palyra.engine.replay import mismatch, read_decision, replay_decision
from palyra.journal.lookup import Lookup
from palyra.policy.store import load_posture
from palyra.wiring.embedded import Installation
from palyra.wiring.history import History, check_decisions

NO_ECHO = '@id("local.no-echo") forbid (principal, action, resource == Tool::"palyra.echo");\n'


def history(installation: Installation, since_unix_ms: int = 0) -> History:
    writer = installation.writer
    return History(rows=writer.rows, lookup=Lookup(writer.rows, writer.home.verifier), since_unix_ms=since_unix_ms)


async def some_calls(palyra: AsyncPalyra, workspace: Path) -> list[str]:
    run = palyra.run("agent:demo", workspace)
    outcomes = [
        await run.call("palyra.echo", {"a": 1}),
        await run.call("palyra.process.run", {"command": "bash"}),
        await run.call("palyra.nothing", {}),
    ]
    return [outcome.call_id for outcome in outcomes]


def on_home(home: Path, work):
    async def whole():
        async with AsyncPalyra(str(home)) as palyra:
            return await work(palyra)

    return asyncio.run(whole())


def test_every_decision_is_made_again_the_same_by_the_bundle_that_made_it(tmp_path: Path, workspace: Path):
    async def work(palyra: AsyncPalyra):
        await some_calls(palyra, workspace)
        installation = palyra.installation
        rows, lookup = installation.writer.rows, Lookup(installation.writer.rows, installation.writer.home.verifier)
        return check_decisions(rows, lookup)

    assert on_home(tmp_path / "home", work) == (2, [])


def test_another_bundle_flips_what_it_decides_otherwise(tmp_path: Path, workspace: Path):
    async def work(palyra: AsyncPalyra):
        echo, bash, _ = await some_calls(palyra, workspace)
        past = history(palyra.installation)
        strict = load_posture("standard", {"a.cedar": NO_ECHO})
        flips = {s.call_id: (r.recorded.effect, r.decision.effect) for s, r in past.flips(strict)}
        assert flips == {echo: ("allow", "deny")}
        assert (past.calls, past.without_request, past.damaged) == (2, 0, [])
        flipped = [s.call_id for s, _ in history(palyra.installation).flips(load_posture("developer"))]
        assert flipped == [bash]
        assert list(history(palyra.installation, since_unix_ms=1 << 50)) == []

    on_home(tmp_path / "home", work)


def test_a_forged_record_is_named_and_not_replayed(tmp_path: Path, workspace: Path):
    async def work(palyra: AsyncPalyra):
        echo, _, _ = await some_calls(palyra, workspace)
        installation = palyra.installation
        writer = installation.writer
        sql = "SELECT d.data FROM calls c JOIN blobs d ON d.sha256 = c.details WHERE call_id = ?"
        details = orjson.loads(writer.rows(sql, (echo,))[0][0])
        details["decision"]["effect"] = "deny"
        data = orjson.dumps(details)
        sha256 = hashlib.sha256(data).digest()
        writer.commit_now(lambda tx: tx.keep_blob(data, at_unix_ms=0))
        writer.commit_now(lambda tx: tx.rows("UPDATE calls SET details = ? WHERE call_id = ?", (sha256, echo)))
        past = history(installation)
        assert [stored.call_id for stored, _ in past] != []
        assert past.damaged == [echo]
        lookup = Lookup(writer.rows, writer.home.verifier)
        checked, wrong = check_decisions(writer.rows, lookup)
        assert (checked, wrong) == (1, [(echo, "its stored record was changed")])

    on_home(tmp_path / "home", work)


def test_a_secret_in_a_program_name_is_not_kept_and_the_replay_says_so(tmp_path: Path, workspace: Path):
    name = "ghp_" + "a1B2" * 9

    async def work(palyra: AsyncPalyra):
        run = palyra.run("agent:demo", workspace)
        outcome = await run.call("palyra.process.run", {"command": name})
        stored = await palyra.installation.journal.find_call(outcome.call_id)
        assert stored is not None
        assert name.encode() not in stored.details
        recorded = read_decision(stored.details)
        assert recorded is not None
        assert not recorded.exact
        assert mismatch(recorded, palyra.installation.policies.current()) == ""

    on_home(tmp_path / "home", work)


def test_what_is_no_record_is_an_error_and_what_never_came_to_policy_is_none():
    assert read_decision(b"") is None
    assert read_decision(orjson.dumps({"request": None})) is None
    for bad in (b"[", orjson.dumps({"request": {}}), orjson.dumps({"request": 1, "decision": {}})):
        with pytest.raises(ValueError, match="cannot be read"):
            read_decision(bad)


def test_a_record_that_its_own_facts_contradict_is_a_mismatch(tmp_path: Path, workspace: Path):
    async def work(palyra: AsyncPalyra):
        echo, _, _ = await some_calls(palyra, workspace)
        stored = await palyra.installation.journal.find_call(echo)
        assert stored is not None
        value = orjson.loads(stored.details)
        bundle = palyra.installation.policies.current()
        honest = read_decision(orjson.dumps(value))
        assert honest is not None
        assert (mismatch(honest, bundle), replay_decision(honest, bundle).same) == ("", True)
        value["decision"] = {"effect": "deny", "policies": []}
        lying = read_decision(orjson.dumps(value))
        assert lying is not None
        assert mismatch(lying, bundle).startswith("its record says deny (no policy), and its facts decide allow")
        assert "not kept" in mismatch(honest, None)
        assert "not by" in mismatch(honest, load_posture("locked"))

    on_home(tmp_path / "home", work)
