"""Background processes of a daemon: seen and ended by every door, and kept over the daemon's crash and restart."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.keeping import keepers_of, kept_home, wait_for
from tests.serving import make_token, serving

DETACHED = {"background": True, "lifetime": "detached"}


def start(served, cli, token: str, *words: str, **more) -> str:
    input = {"command": words[0], "args": list(words[1:]), **more}
    call = {"tool": "palyra.process.run", "input": input, "workspace": str(cli.workspace)}
    status, outcome = served.ask("POST", "/v1/calls", call, token=token)
    assert (status, outcome["status"]) == (200, "completed"), outcome
    process_id: str = outcome["output"]["process_id"]
    return process_id


def standing(cli, process_id: str) -> str:
    done = cli("--json", "ps", "--all")
    assert done.returncode == 0, done.stderr
    items = json.loads(done.stdout)["items"]
    return next(item["status"] for item in items if item["process_id"] == process_id)


@pytest.fixture
def kept(cli):
    with kept_home(cli.home):
        yield cli


def test_ps_logs_and_stop_beside_a_daemon_and_its_api_say_the_same(kept):
    cli = kept
    (cli.workspace / "said.txt").write_text("said\n")
    token = make_token(cli)
    with serving(cli) as served:
        process_id = start(served, cli, token, "tail", "-f", "said.txt", **DETACHED)
        listed = json.loads(cli("--json", "ps").stdout)["items"]
        shown = served.ask("GET", "/console/v1/processes", unix=True)[1]["items"]
        assert [item["process_id"] for item in listed] == [item["process_id"] for item in shown] == [process_id]
        wait_for(lambda: cli("logs", process_id).stdout == b"said\n")
        assert served.ask("GET", f"/console/v1/processes/{process_id}/log", unix=True)[1]["pieces"] == [
            {"stream": "stdout", "text": "said\n"}
        ]
        assert cli("stop", process_id).returncode == 0
        assert served.ask("GET", f"/console/v1/processes/{process_id}", unix=True)[1]["status"] == "stopped"


def test_who_takes_a_token_back_is_told_what_of_its_holder_goes_on(kept):
    cli = kept
    token = make_token(cli)
    with serving(cli) as served:
        process_id = start(served, cli, token, "sleep", "60", **DETACHED)
        done = cli("token", "revoke", token.split("_")[1])
        assert (done.returncode, f"palyra stop {process_id}" in done.stderr.decode()) == (0, True)
        assert cli("stop", process_id).returncode == 0
        assert served.end()[0] == 0


def test_processes_and_their_run_outlive_the_daemons_crash_and_the_next_daemon_ends_them(kept):
    cli = kept
    token = make_token(cli)
    with serving(cli) as served:
        process_id = start(served, cli, token, "sleep", "300", **DETACHED)
        run = served.ask("POST", "/v1/runs", {"workspace": str(cli.workspace)}, token=token)[1]["run_id"]
        owned = {"command": "sleep", "args": ["301"], "background": True, "lifetime": "run_owned"}
        call = {"tool": "palyra.process.run", "input": owned, "run_id": run}
        owned_id = served.ask("POST", "/v1/calls", call, token=token)[1]["output"]["process_id"]
        keeper = keepers_of(cli.home)
        served.end(signal.SIGKILL)
    assert (standing(cli, process_id), standing(cli, owned_id)) == ("running", "running")
    with serving(cli) as served:
        assert keepers_of(cli.home) == keeper, "the same keeper, over the crash"
        assert served.ask("GET", f"/console/v1/processes/{process_id}", unix=True)[1]["status"] == "running"
        status, stopped = served.ask("POST", f"/console/v1/processes/{process_id}/stop", b"", unix=True)
        assert (status, stopped["status"]) == (200, "stopped")
        assert served.ask("POST", f"/v1/runs/{run}/end", b"", token=token)[0] == 200
        assert standing(cli, owned_id) == "stopped", "the run went on over the crash, and its process with it"
        assert served.end()[0] == 0
    assert cli("journal", "verify").returncode == 0


def test_a_keeper_that_is_a_service_of_its_own_is_used_and_stays(kept):
    cli = kept
    token = make_token(cli)
    argv = [sys.executable, "-I", "-m", "palyra.wiring.keeper", str(cli.home), "", "stay"]
    service = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        wait_for((cli.home / "run" / "keeper.sock").exists)
        with serving(cli) as served:
            process_id = start(served, cli, token, "sleep", "300", **DETACHED)
            assert keepers_of(cli.home) == [service.pid]
            assert cli("stop", process_id).returncode == 0
            process_id = start(served, cli, token, "sleep", "300", **DETACHED)
            service.terminate()
            assert service.wait(timeout=30) == 0
            assert standing(cli, process_id) == "stopped"
    finally:
        if service.poll() is None:
            service.kill()
            service.wait()


def test_a_second_keeper_that_would_stay_leaves_and_says_so(kept):
    cli = kept
    assert cli("ps").returncode == 0
    argv = [sys.executable, "-I", "-m", "palyra.wiring.keeper", str(cli.home), "", "stay"]
    first = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
    try:
        wait_for((cli.home / "run" / "keeper.sock").exists)
        assert subprocess.run(argv, stdin=subprocess.DEVNULL, timeout=60, check=False).returncode == 1
    finally:
        first.terminate()
        first.wait(timeout=30)
