"""Whole installations on one server: the same call through any of them, one budget, one journal."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from palyra.api import AsyncPalyra
from palyra.cluster.verifying import verify_cluster
from palyra.errors import ConfigError
from palyra.wiring.owners import ProcessOwners
from tests.cluster.operating import daemon
from tests.journaling import ulid
from tests.postgres import url_of


@pytest.fixture
def url(home: Path) -> str:
    return url_of(home)


def test_two_daemons_are_one_installation(home, url, workspace):
    call_id = ulid()

    async def scenario() -> list[Any]:
        async with AsyncExitStack() as stack:
            run_id, runs = ulid(), []
            for number in range(2):  # the second gets a copy of the key that the first made
                one = await stack.enter_async_context(daemon(home, number, url, "[tool_call]\nmax_calls_per_run = 3"))
                runs.append(one.run(principal="agent:demo", workspace=str(workspace), run_id=run_id))
            same = [await run.call("palyra.echo", {"text": "hi"}, call_id=call_id) for run in runs]
            more = [await runs[n % 2].call("palyra.echo", {"text": str(n)}) for n in range(4)]
        return [*same, *more]

    one, again, *more = asyncio.run(scenario())
    assert one.output == again.output
    assert one.attestation["attestation_id"] == again.attestation["attestation_id"]
    assert [outcome.reason for outcome in more] == [None, None, "BUDGET_SPENT", "BUDGET_SPENT"]
    report = verify_cluster(url, home, is_alive=ProcessOwners().is_alive, every_signature=True)
    assert report.findings == ()


@pytest.mark.parametrize(
    "settings",
    ["database = 'host=x password=y'", "database = 'postgresql://me:secret@host/db'", "nodes = '127.0.0.1:1'",
     "database = 'host=/x'\nnodes = '127.0.0.1:1'", "database = 'host=/x'\nnode_folder = 'here'",
     "[cluster.blobs]\nfolder = 'here'", "[cluster.blobs]\nfolder = '/x'\nendpoint = 'https://s'\nbucket = 'abc'",
     "[cluster.blobs]\nendpoint = 'http://s3.example'\nbucket = 'abc'",
     "[cluster.blobs]\nendpoint = 'https://s3.example'\nbucket = 'abc'\naccess_key = 'x'",
     "[cluster.blobs]\nendpoint = 'https://me:pw@s3.example'\nbucket = 'abc'",
     "[cluster.blobs]\nendpoint = 'https://s3.example'\nbucket = '../x'",
     "[cluster.blobs]\nendpoint = 'https://s3.example'\nbucket = 'abc'\nprefix = '../'"],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused_with_their_key(home, settings):
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text(f"[cluster]\n{settings}\n")

    async def scenario() -> None:
        async with AsyncPalyra.open(str(home)):
            pass

    with pytest.raises(ConfigError, match=r"cluster\."):
        asyncio.run(scenario())


def test_the_command_line_verifies_the_clusters_journal(home, url, workspace):
    async def scenario() -> None:
        async with daemon(home, 0, url) as first:
            await first.run(principal="agent:demo", workspace=str(workspace)).call("palyra.echo", {"text": "hi"})

    asyncio.run(scenario())
    argv = [sys.executable, "-m", "palyra", "--home", str(home), "journal", "verify", "--json"]
    done = subprocess.run(argv, cwd=Path(__file__).parents[2] / "src", capture_output=True, timeout=60)
    told = json.loads(done.stdout)
    assert (done.returncode, told["ok"]) == (0, True)
    assert told["entries"] >= 2
    tail = json.loads(palyra_journal(home, "tail", "--kind", "result", "--json").stdout)["items"]
    (call_id,) = [item["entry"]["predicate"]["call_id"] for item in tail]
    shown = json.loads(palyra_journal(home, "show", call_id, "--json").stdout)
    assert (shown["status"], len(shown["entries"])) == ("completed", 2)
    assert json.loads(palyra_journal(home, "prove", call_id).stdout)["call_id"] == call_id
    assert palyra_journal(home, "export").stdout.count(b"\n") == told["entries"] + 2
    with tampering_of(url) as connection:
        connection.execute("UPDATE calls SET status = 'failed'")
    done = subprocess.run(argv, cwd=Path(__file__).parents[2] / "src", capture_output=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)["findings"][0]["code"]) == (1, "KEPT")


def test_a_clusters_console_verifies_searches_counts_and_the_command_line_retains(home, url, workspace):
    from palyra.journal.search import Question
    from palyra.wiring.figures import read_figures
    from palyra.wiring.journal_desk import JournalDesk

    segments = workspace / "segments"
    segments.mkdir(mode=0o700)

    async def scenario() -> tuple[Any, Any, Any, Any]:
        async with daemon(home, 0, url) as palyra:
            run = palyra.run(principal="agent:demo", workspace=str(workspace))
            for number in range(3):
                await run.call("palyra.echo", {"text": str(number)})
            installation = palyra.installation
            desk = JournalDesk(installation.writer, is_alive=lambda _: True)
            figures = await read_figures(installation.writer, now_unix_ms=installation.ports.clock.now_unix_ms())
            page = await desk.page(Question(tool="palyra.echo", kind="result"), count=10)
            return await desk.verify(), page, figures, await desk.verify_decisions()

    audited, page, figures, decisions = asyncio.run(scenario())
    assert (audited.report.findings, len(page.entries), decisions) == ((), 3, (3, []))
    assert dict(figures.tools) == {"palyra.echo": 3}
    with (home / "palyra.toml").open("a") as file:
        file.write(f'segments = "{segments}"\n')
    kept = json.loads(palyra_journal(home, "retain", "--records-days", "0", "--entries-days", "0", "--json").stdout)
    assert (kept["calls"], kept["sealed"]) == (3, 1)
    assert len(list(segments.glob("*.jsonl"))) == 1
    assert json.loads(palyra_journal(home, "verify", "--json").stdout)["ok"] is True
    assert len(json.loads(palyra_journal(home, "tail", "--tool", "palyra.echo", "--json").stdout)["items"]) == 6
    call_id = json.loads(palyra_journal(home, "tail", "--kind", "result", "--json").stdout)["items"][0]["entry"]
    assert json.loads(palyra_journal(home, "prove", call_id["predicate"]["call_id"]).stdout)
    rotated = json.loads(palyra_journal(home, "rotate-key", "--json").stdout)
    assert rotated["old"] != rotated["new"]
    assert json.loads(palyra_journal(home, "verify", "--json").stdout)["ok"] is True
    assert not (home / "state" / "palyra.db").exists()


def palyra_journal(home: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "palyra", "--home", str(home), "journal", *words]
    done = subprocess.run(argv, cwd=Path(__file__).parents[2] / "src", capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


def tampering_of(url: str) -> Any:
    import psycopg

    return psycopg.connect(url)
