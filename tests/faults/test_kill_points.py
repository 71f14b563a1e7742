"""SIGKILL before every statement of a call's journal, and a disk that gives out within a commit.

Each child is a fork that makes one acknowledged call and then a second, which is cut at its n-th statement. Whoever
opens the home next finds the first as it was acknowledged, the second whole, interrupted or never begun, and a sound
journal; and the same id asked for again gives the first answer, or runs, never both.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]

KILLS = """
import asyncio, json, os, signal, sqlite3, sys
from pathlib import Path
from palyra.config.load import Home
from palyra.engine.runs import start_run
from palyra.engine.trip import CallRequest
from palyra.model.call import Door, RequestContext, parse_principal
from palyra.wiring.embedded import open_installation
from tests.journaling import audit_home, ulid

home, workspace = Path(sys.argv[1]), sys.argv[2]
steps_left = None
real_connect = sqlite3.connect

def connect(*given, **named):
    connection = real_connect(*given, **named)
    connection.set_trace_callback(step)
    return connection

def step(sql):
    global steps_left
    if steps_left is not None:
        steps_left -= 1
        if steps_left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

sqlite3.connect = connect

async def with_home(work):
    installation = await open_installation(Home(home), one_call=True)
    try:
        return await work(installation)
    finally:
        await installation.close()

def request(installation, call_id):
    ports = installation.ports
    run = start_run(ports.config, run_id=ulid(), workspace=workspace, now_unix_ms=ports.clock.now_unix_ms(),
                    context=RequestContext(principal=parse_principal("agent:demo"), door=Door.PYTHON))
    return CallRequest(tool=TOOL, input=INPUT, run=run, call_id=call_id)

def child(at, first, second):
    async def work(installation):
        global steps_left
        outcome = await installation.engine.call(request(installation, first))
        assert outcome.success, outcome
        os.write(1, b"acknowledged\\n")
        steps_left = at
        outcome = await installation.engine.call(request(installation, second))
        steps_left = None
        os.write(1, b"second\\n")
    asyncio.run(with_home(work))

TOOL, INPUT = sys.argv[3], json.loads(sys.argv[4])
asyncio.run(with_home(lambda installation: asyncio.sleep(0)))
at, told = 0, []
while True:
    first, second = ulid(), ulid()
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        try:
            child(at, first, second)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(3)
        os._exit(0)
    os.close(write)
    said = b""
    while chunk := os.read(read, 4096):
        said += chunk
    os.close(read)
    status = os.waitpid(pid, 0)[1]
    assert said.startswith(b"acknowledged"), (at, said)

    async def check(installation):
        store = installation.journal
        kept = await store.find_call(first)
        assert kept is not None and kept.status == "completed", (at, kept)
        cut = await store.find_call(second)
        assert cut is None or cut.status in ("completed", "interrupted"), (at, cut.status)
        assert (b"second" not in said) or cut.status == "completed", at
        again = await installation.engine.call(request(installation, second))
        expected = "completed" if cut is None else cut.status
        assert again.status.value == expected, (at, again.status, expected)
        return "never" if cut is None else cut.status

    told.append(asyncio.run(with_home(check)))
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0 and said.endswith(b"second\\n"), (at, status, said)
        break
    assert os.WTERMSIG(status) == signal.SIGKILL
    at += 1

async def audit(installation):
    return audit_home(installation.writer.home, alive=True, every=True).findings

findings = asyncio.run(with_home(audit))
assert findings == (), findings
print(json.dumps(told))
"""


def play(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=PROJECT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{PROJECT / 'src'}:{PROJECT}", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "given"),
    [("palyra.echo", '{"a": 1}'), ("palyra.process.run", '{"command": "true"}')],
)
def test_a_kill_before_any_statement_loses_nothing_acknowledged(
    home: Path, workspace: Path, tool: str, given: str
) -> None:
    import json

    told = json.loads(play(KILLS, str(home), str(workspace), tool, given))
    assert len(told) > 10
    assert told[-1] == "completed"
    assert {"never", "interrupted", "completed"} == set(told)
    # Once begun it stays begun: never, then interrupted, then completed, in this order.
    assert told == sorted(told, key=["never", "interrupted", "completed"].index)


FULL_IN_A_COMMIT = """
import asyncio, json, resource, signal, sys
from pathlib import Path
from palyra import AsyncPalyra
from tests.journaling import audit_home

home, workspace = sys.argv[1], sys.argv[2]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

async def work():
    acknowledged, refused = [], []
    async with AsyncPalyra.open(home) as palyra:
        run = palyra.run(principal="agent:demo", workspace=workspace)
        await run.call("palyra.echo", {})
        log = Path(home) / "state" / "palyra.db-wal"
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        # The next commits no longer fit: somewhere within one of them a write is cut short.
        resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + int(sys.argv[3]), hard))
        for number in range(60):
            outcome = await run.call("palyra.echo", {"n": number, "text": "x" * 500})
            if outcome.success:
                assert outcome.receipt is not None
                acknowledged.append(outcome.call_id)
            else:
                refused.append([outcome.reason.value if outcome.reason else None, outcome.message, outcome.hint])
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    async with AsyncPalyra.open(home) as palyra:
        store = palyra.installation.journal
        for call_id in acknowledged:
            assert (await store.find_call(call_id)).status == "completed", call_id
        run = palyra.run(principal="agent:demo", workspace=workspace)
        assert (await run.call("palyra.echo", {})).success
        findings = audit_home(palyra.installation.writer.home, alive=True, every=True).findings
    print(json.dumps({"acknowledged": len(acknowledged), "refused": refused, "findings": [str(f) for f in findings]}))

asyncio.run(work())
"""


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 700, 4096, 9000, 50_000])
def test_a_disk_that_gives_out_within_a_commit_takes_back_that_commit_alone(
    home: Path, workspace: Path, room: int
) -> None:
    import json

    said = json.loads(play(FULL_IN_A_COMMIT, str(home), str(workspace), str(room)))
    assert said["findings"] == []
    assert said["refused"]
    first, *later = [reason for reason, _, _ in said["refused"]]
    assert first in ("JOURNAL_DOWN", "INTERNAL")  # the latter where it had run, and its end found no room
    assert set(later) == {"JOURNAL_DOWN"}
    assert all(message and hint for _, message, hint in said["refused"])
