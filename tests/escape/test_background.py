"""Background processes through the real engine and a real keeper: owned, bounded, and gone when they should be."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from palyra import AsyncPalyra, Palyra
from palyra.api import grant
from palyra.journal.entry import parse_entry
from palyra.journal.store import verify_journal
from palyra.launch._os import parent
from palyra.launch._os._guardian import SCRIPT
from palyra.launch.keeper_message import PROTOCOL, peer_uid
from palyra.model.outcome import Outcome
from palyra.model.process import Lifetime
from palyra.sandbox.probe_kernel import try_landlock
from tests.conformance.arena import require
from tests.keeping import command_line, keepers_of, kept_home, processes_with, wait_for
from tests.promises import promise

PROJECT = Path(__file__).parents[2]
NOBODY = 65534
SHELL = grant(interpreters=True)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    from palyra.model.call import Tier

    require(Tier.C)
    with kept_home(tmp_path / "home") as place:
        yield place


def configure(home: Path, **settings: Any) -> None:
    home.mkdir(mode=0o700)
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    (home / "palyra.toml").write_text("[tool_call.process_runner]\n" + "\n".join(lines) + "\n")


def begin(run: Any, command: str, *args: str, lifetime: str = "detached", **options: Any) -> dict[str, Any]:
    outcome = run.call(
        "palyra.process.run",
        {"command": command, "args": list(args), "background": True, "lifetime": lifetime, **options},
    )
    assert outcome.success, (outcome.reason, outcome.message)
    return dict(outcome.output)


def ask(run: Any, what: str, process_id: str, **options: Any) -> Outcome:
    result: Outcome = run.call(f"palyra.process.{what}", {"process_id": process_id, **options})
    return result


def status(run: Any, process_id: str) -> str:
    return str(ask(run, "status", process_id).output["status"])


def ended_acts(palyra: Palyra) -> list[dict[str, Any]]:
    views = [parse_entry(entry.body) for entry in palyra.installation.journal.tail(1000)]
    return [dict(view.predicate["details"]) for view in views if view.predicate.get("act") == "process.ended"]


def assert_journal_holds(palyra: Palyra) -> None:
    installation = palyra.installation
    report = verify_journal(installation.writer.home, is_alive=installation.ports.owners.is_alive)
    assert report.findings == ()


# ── the life of one ──────────────────────────────────────────────────────────


def test_a_process_is_started_read_and_stopped_and_its_end_is_journaled(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", "echo hello; echo oops >&2; exec sleep 600", lifetime="run_owned")
        assert sorted(started) == ["expires_at_unix_ms", "lifetime", "pid", "process_id"]
        assert command_line(started["pid"]).startswith(b"sleep\0600") or command_line(started["pid"])
        page = wait_for(lambda: (p := ask(run, "output", started["process_id"]).output)["total_bytes"] == 11 and p)
        assert (page["status"], page["complete"], page["next_offset_bytes"]) == ("running", False, 11)
        assert sorted(page["text"].splitlines()) == ["hello", "oops"]
        assert ask(run, "output", started["process_id"], stream="stderr").output["text"] == "oops\n"
        stopped = ask(run, "stop", started["process_id"]).output
        assert (stopped["status"], stopped["signal"], stopped["stopped_by"]) == ("stopped", 15, "agent:demo")
        assert command_line(started["pid"]) == b""
        assert ask(run, "stop", started["process_id"]).output == stopped
        (act,) = ended_acts(palyra)
        assert (act["process_id"], act["status"], act["output"]) == (
            started["process_id"], "stopped", {"stdout_bytes": 6, "stderr_bytes": 5},
        )  # fmt: skip
        assert "hello" not in json.dumps(ended_acts(palyra))
        assert_journal_holds(palyra)


def test_guarded_names_that_a_process_made_are_told_at_its_end(home, workspace):
    (workspace / "Jenkinsfile").write_text("there before")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", "mkdir -p .git/hooks; : > .git/hooks/pre-commit; : > .env; : > plain")
        wait_for(lambda: status(run, started["process_id"]) == "exited")
        found = ask(run, "status", started["process_id"]).output
        assert found["protected_created"] == [".env", ".git/hooks"]
        assert ended_acts(palyra)[-1]["protected_created"] == 2
        assert ".env" not in json.dumps(ended_acts(palyra))


def test_a_key_in_a_guarded_name_that_a_process_made_is_kept_nowhere(home, workspace):
    key = "ghp_" + "a1B2" * 9
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", f": > .env.{key[:7]}''{key[7:]}")
        wait_for(lambda: status(run, started["process_id"]) == "exited")
        kept = palyra.installation.writer.rows("SELECT protected_created FROM processes")
        assert kept == [('[".env.[redacted:github:1]"]',)]


def test_a_process_that_ends_by_itself_says_how(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", "echo bye; exit 7")
        wait_for(lambda: status(run, started["process_id"]) == "exited")
        found = ask(run, "status", started["process_id"]).output
        assert (found["exit_code"], found["signal"], found["stdout_bytes"]) == (7, None, 4)
        assert found["ended_at_unix_ms"] >= found["started_at_unix_ms"]
        last = ask(run, "output", started["process_id"]).output
        assert (last["text"], last["complete"]) == ("bye\n", True)


def test_its_stdin_is_the_calls_and_then_ends(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sort", stdin="b\na\n")
        wait_for(lambda: status(run, started["process_id"]) == "exited")
        assert ask(run, "output", started["process_id"]).output["text"] == "a\nb\n"


@promise("calls.background-lifetime")
def test_the_calls_time_limit_does_not_end_it_and_its_lifetime_does(home, workspace):
    configure(home, background_lifetime_ms=1500)
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sleep", "61.803", timeout_ms=200)
        time.sleep(0.6)
        assert status(run, started["process_id"]) == "running"
        wait_for(lambda: status(run, started["process_id"]) == "expired")
        assert processes_with("61.803") == []
        assert [act["status"] for act in ended_acts(palyra)] == ["expired"]


@promise("calls.background-lifetime")
def test_a_stop_ends_the_whole_tree_and_a_program_that_does_not_listen(home, workspace):
    script = "trap '' TERM; sleep 71.1 & (setsid sleep 71.1 &) ; while :; do sleep 71.1; done"
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", script)
        wait_for(lambda: len(processes_with("71.1")) >= 4)
        stopped = ask(run, "stop", started["process_id"]).output
        assert (stopped["status"], stopped["signal"]) == ("stopped", 9)
        assert processes_with("71.1") == []


def test_a_program_that_cannot_be_started_is_a_failed_call(home, workspace, tmp_path):
    bin = tmp_path / "bin"
    bin.mkdir()
    (bin / "broken").write_text("#!/no/such/interpreter\n")
    (bin / "broken").chmod(0o755)
    configure(home, path=[str(bin), "/usr/bin"], allowed_executables=["broken"], allow_interpreters=True)
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        outcome = run.call("palyra.process.run", {"command": "broken", "background": True, "lifetime": "detached"})
        assert (outcome.status, outcome.reason) == ("failed", "SPAWN_FAILED")


# ── runs ─────────────────────────────────────────────────────────────────────


@promise("calls.background-lifetime")
def test_what_a_run_owns_ends_with_it_and_what_is_detached_goes_on(home, workspace):
    with Palyra.open(str(home)) as palyra:
        with palyra.run("agent:demo", workspace) as run:
            begin(run, "sleep", "62.1", lifetime="run_owned")
            detached = begin(run, "sleep", "62.2", lifetime="detached")
        assert (processes_with("62.1"), len(processes_with("62.2")) > 0) == ([], True)
        again = palyra.run("agent:demo", workspace, run_id=run.run_id)
        ended = [item for item in again.call("palyra.process.list", {}).output["items"] if item["status"] != "running"]
        assert [(item["status"], item["stopped_by"]) for item in ended] == [("stopped", "run")]
        with pytest.raises(Exception, match="this run has ended"):
            run.call("palyra.echo", {})
        ask(again, "stop", detached["process_id"])


def test_closing_palyra_ends_the_runs_it_holds(home, workspace):
    with Palyra.open(str(home)) as palyra:
        begin(palyra.run("agent:demo", workspace), "sleep", "62.3", lifetime="run_owned")
        assert processes_with("62.3")
    assert processes_with("62.3") == []


HOLDER = """
import sys
from palyra import Palyra
palyra = Palyra.open(sys.argv[1])
run = palyra.run("agent:demo", sys.argv[2])
for number, lifetime in (("62.4", "run_owned"), ("62.5", "detached")):
    call = {"command": "sleep", "args": [number], "background": True, "lifetime": lifetime}
    print(run.call("palyra.process.run", call).output["process_id"], flush=True)
sys.stdin.read()
"""


@promise("calls.background-lifetime")
def test_what_a_run_owns_ends_when_the_process_that_holds_the_run_is_killed(home, workspace):
    argv = [sys.executable, "-c", HOLDER, str(home), str(workspace)]
    environ = os.environ | {"PYTHONPATH": str(PROJECT / "src")}
    with subprocess.Popen(argv, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() != holder.stdout.readline()
        holder.kill()
    wait_for(lambda: not processes_with("62.4"))
    assert processes_with("62.5"), "detached from its run, and from whoever started it"


# ── whose it is ──────────────────────────────────────────────────────────────


@promise("calls.background-owner")
@pytest.mark.parametrize("stranger", ["another run", "another principal", "no handle"])
def test_nobody_else_can_see_read_or_stop_it(home, workspace, stranger):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sleep", "63.1")
        other = palyra.run("agent:mallory" if stranger == "another principal" else "agent:demo", workspace)
        handle = str(started["pid"]) if stranger == "no handle" else started["process_id"]
        for what in ("status", "output", "stop"):
            outcome = ask(other, what, handle)
            assert (outcome.status, outcome.reason, outcome.output) == ("refused", "BAD_ARGUMENTS", {})
            assert started["process_id"] not in (outcome.message or "")
        assert other.call("palyra.process.list", {}).output == {"items": [], "next": None}
        assert status(run, started["process_id"]) == "running"
        mine = palyra.run("agent:mallory", workspace, run_id=run.run_id)
        assert ask(mine, "stop", started["process_id"]).reason == "CAPABILITY_DENIED"
        ask(run, "stop", started["process_id"])


@promise("calls.background-owner")
def test_a_handle_that_never_was_answers_like_a_strangers(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sleep", "63.2")
        other = palyra.run("agent:mallory", workspace)
        real, made_up = (
            ask(other, "status", handle) for handle in (started["process_id"], "01HF7YAT0000000000000000AA")
        )
        assert (real.reason, real.message, real.hint) == (made_up.reason, made_up.message, made_up.hint)


def test_a_run_may_have_only_so_many_at_once(home, workspace):
    configure(home, max_background_per_run=2)
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        first = begin(run, "sleep", "64.1")
        begin(run, "sleep", "64.1")
        third = run.call("palyra.process.run", {"command": "sleep", "args": ["64.1"], "background": True})
        assert (third.status, third.reason) == ("refused", "BUSY")
        assert "max_background_per_run" in (third.hint or "")
        ask(run, "stop", first["process_id"])
        begin(run, "sleep", "64.1")
        begin(palyra.run("agent:demo", workspace), "sleep", "64.1")


# ── its log ──────────────────────────────────────────────────────────────────


def test_secrets_are_redacted_before_they_are_written(home, workspace):
    token = "ghp_" + "a1B2" * 9
    (workspace / "half").write_text(f"token {token[:20]}")
    (workspace / "rest").write_text(f"{token[20:]} end\n")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", "cat half; sleep 0.3; cat rest; cat half rest >&2")
        wait_for(lambda: status(run, started["process_id"]) == "exited")
        text = ask(run, "output", started["process_id"]).output["text"]
        written = b"".join(file.read_bytes() for file in (home / "logs" / started["process_id"]).iterdir())
        (act,) = ended_acts(palyra)
    assert (token in text, token[:20] in text, text.count("[redacted:")) == (False, False, 2)
    assert token[20:].encode() not in written
    assert sum(act["redactions"].values()) == 2


@promise("secrets.redacted-output")
def test_a_secret_that_a_process_was_writing_when_it_was_stopped_is_not_left_half_in_its_log(home, workspace):
    """As of a call that is cut short: what may become a secret is told to nobody."""
    token = "ghp_" + "a1B2" * 9
    (workspace / "half").write_text(f"the token is {token[:-1]}")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=SHELL)
        started = begin(run, "sh", "-c", "cat half; cat half >&2; touch written; exec sleep 60")
        wait_for((workspace / "written").exists)
        assert ask(run, "stop", started["process_id"]).output["status"] == "stopped"
        text = ask(run, "output", started["process_id"]).output["text"]
        written = b"".join(file.read_bytes() for file in (home / "logs" / started["process_id"]).iterdir())
    assert (token[:8] in text, token[:8].encode() in written) == (False, False)
    assert text.count("the token is") == 2


def test_a_flood_is_bounded_on_disk_its_offsets_hold_and_it_can_be_stopped(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "seq", "-f", "%09.0f", "1", "400000")
        flood = begin(run, "yes")
        wait_for(lambda: status(run, started["process_id"]) == "exited", seconds=60)
        page = ask(run, "output", started["process_id"], max_bytes=100).output
        first = page["offset_bytes"]
        assert (page["total_bytes"], page["dropped_bytes"]) == (4_000_000, first)
        assert first > 2_900_000
        assert page["text"] == "".join(f"{at // 10 + 1:09d}\n" for at in range(0, 4_000_000, 10))[first : first + 100]
        stopped = ask(run, "stop", flood["process_id"]).output
        assert stopped["status"] == "stopped"
        folders = [home / "logs" / handle["process_id"] for handle in (started, flood)]
        assert all(sum(file.stat().st_size for file in folder.iterdir()) <= 1 << 20 for folder in folders)
        past = ask(run, "output", started["process_id"], offset_bytes=4_000_001)
        assert (past.reason, "4000000" in (past.message or "")) == ("BAD_ARGUMENTS", True)


# ── crashes ──────────────────────────────────────────────────────────────────


def kill_keeper(home: Path, *, with_guardian: bool = False) -> None:
    """`with_guardian`: as if there were none, as on kernels whose Landlock scopes no signals."""
    (keeper,) = keepers_of(home)
    if with_guardian:
        for pid in processes_with(SCRIPT):
            if parent(pid) == keeper:
                os.kill(pid, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not keepers_of(home))


@promise("calls.background-lifetime")
def test_kill_9_of_the_keeper_leaves_no_process_and_the_next_one_goes_on(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = [begin(run, "sleep", "65.1") for _ in range(3)]
        kill_keeper(home)
        wait_for(lambda: not processes_with("65.1"))
        assert [status(run, one["process_id"]) for one in started] == ["lost"] * 3
        assert [act["status"] for act in ended_acts(palyra)] == ["lost"] * 3
        assert ask(run, "stop", started[0]["process_id"]).output["status"] == "lost"
        assert_journal_holds(palyra)
        fresh = begin(run, "sleep", "65.2")
        assert status(run, fresh["process_id"]) == "running"


@promise("sandbox.killed-engine")
@pytest.mark.skipif(try_landlock() < 6, reason="this kernel's Landlock does not scope signals")
def test_kill_9_of_the_keeper_leaves_no_plain_child_though_nobody_looks(home, workspace):
    """They went on past every deadline until somebody opened the home; what had left their session, for good."""
    configure(home, tier="b", allow_root_tier_b=True, egress_enforcement_mode="none")
    wide = grant(interpreters=True, tier="b", root_tier_b=True, egress="none")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=wide)
        started = begin(run, "sh", "-c", "(setsid sleep 65.3 &) ; sleep 65.3 & exec sleep 65.3")
        wait_for(lambda: len(processes_with("sleep\x0065.3")) == 3)
        kill_keeper(home)
        wait_for(lambda: not processes_with("65.3"))
        assert status(run, started["process_id"]) == "lost"
        assert_journal_holds(palyra)


def test_a_plain_child_that_outlived_its_keeper_is_found_and_killed(home, workspace):
    """Tier B has no namespace that dies with its keeper: pid and start time in the row are all there is."""
    configure(home, tier="b", allow_root_tier_b=True, egress_enforcement_mode="none")
    wide = grant(interpreters=True, tier="b", root_tier_b=True, egress="none")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=wide)
        started = begin(run, "sh", "-c", "sleep 66.1 & sleep 66.1 & wait")
        wait_for(lambda: len(processes_with("sleep\x0066.1")) == 2)
        kill_keeper(home, with_guardian=True)
        assert command_line(started["pid"]), "it lives on, and nobody keeps it"
    with Palyra.open(str(home)) as palyra:
        again = palyra.run("agent:demo", workspace, run_id=run.run_id)
        assert status(again, started["process_id"]) == "lost"
        wait_for(lambda: not processes_with("66.1"))
        assert_journal_holds(palyra)


def test_double_forks_of_a_plain_child_that_outlived_its_keeper_are_found_by_their_group(home, workspace):
    configure(home, tier="b", allow_root_tier_b=True, egress_enforcement_mode="none")
    wide = grant(interpreters=True, tier="b", root_tier_b=True, egress="none")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace, grant=wide)
        started = begin(run, "sh", "-c", "(setsid sleep 69.1 &) ; exec sleep 69.2")
        wait_for(lambda: processes_with("sleep\x0069.1"))
        with open(f"/proc/{started['pid']}/cgroup") as file:
            grouped = "/palyra-" in file.read()
        kill_keeper(home, with_guardian=True)
    with Palyra.open(str(home)) as palyra:
        assert status(palyra.run("agent:demo", workspace, run_id=run.run_id), started["process_id"]) == "lost"
        if not grouped:
            for pid in processes_with("69.1"):
                os.kill(pid, signal.SIGKILL)
            pytest.skip("no cgroup can be made here, and nothing else finds them")
        wait_for(lambda: not processes_with("69.1"))


def test_double_forks_of_a_plain_child_end_with_the_last_that_is_kept(home, workspace):
    configure(home, tier="b", allow_root_tier_b=True, egress_enforcement_mode="none")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run(
            "agent:demo", workspace, grant=grant(interpreters=True, tier="b", root_tier_b=True, egress="none")
        )
        started = begin(run, "sh", "-c", "(setsid sleep 67.1 &) ; exec sleep 67.2")
        wait_for(lambda: processes_with("sleep\x0067.1"))
        ask(run, "stop", started["process_id"])
        wait_for(lambda: not processes_with("67.1") and not keepers_of(home))


def test_a_keeper_ends_when_it_keeps_nothing_and_leaves_no_socket(home, workspace):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        begin(run, "true")
        wait_for(lambda: not keepers_of(home))
        assert sorted(path.name for path in (home / "run").iterdir()) == ["keeper.lock", "keeper.start", "keeper.token"]
        assert (home / "logs" / "keeper.log").read_text() == ""
        assert status(run, run.call("palyra.process.list", {}).output["items"][0]["process_id"]) == "exited"
        assert keepers_of(home) == [], "looking needs no keeper"


@pytest.mark.parametrize("signals", [("TERM",), ("TERM", "HUP"), ("HUP",), ("INT",)], ids=" ".join)
def test_a_keeper_that_is_told_to_end_ends_what_it_keeps_and_says_so(home, workspace, signals):
    """A session that ends sends SIGHUP right after SIGTERM: that killed the keeper, and what it kept was lost."""
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sleep", "68.1")
        (keeper,) = keepers_of(home)
        for name in signals:
            os.kill(keeper, signal.Signals[f"SIG{name}"])
        wait_for(lambda: not keepers_of(home))
        found = ask(run, "status", started["process_id"]).output
        assert (found["status"], found["stopped_by"], processes_with("68.1")) == ("stopped", "keeper", [])


def test_a_keeper_that_cannot_be_started_is_a_failed_call_with_a_hint(home, workspace):
    with Palyra.open(str(home)) as palyra:
        (home / "run").mkdir(mode=0o755)
        (home / "run").chmod(0o755)
        run = palyra.run("agent:demo", workspace)
        call = {"command": "sleep", "args": ["69.1"], "background": True, "lifetime": "detached"}
        outcome = run.call("palyra.process.run", call)
        assert (outcome.status, outcome.reason) == ("failed", "SPAWN_FAILED")
        assert "chmod" in (outcome.hint or "")
        assert keepers_of(home) == []


def test_cancelling_a_start_takes_the_process_back(home, workspace):
    async def story() -> None:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run("agent:demo", workspace)
            call = {"command": "sleep", "args": ["70.1"], "background": True, "lifetime": "detached"}
            await run.call("palyra.process.run", call)
            outcomes: list[object] = []
            for pause in (0.0, 0.004, 0.008, 0.012, 0.016, 0.02, 0.03):
                task = asyncio.create_task(run.call("palyra.process.run", call))
                await asyncio.sleep(pause)
                task.cancel()
                outcomes += await asyncio.gather(task, return_exceptions=True)
            cancelled = sum(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
            items = (await run.call("palyra.process.list", {})).output["items"]
            assert cancelled >= 2
            assert sum(item["status"] == "running" for item in items) == 1 + len(outcomes) - cancelled

    asyncio.run(story())


# ── the socket ───────────────────────────────────────────────────────────────


def talk(home: Path, request: dict[str, Any] | None) -> bytes:
    """What a keeper says to a stranger who can reach its socket."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(10)
        folder = os.open(home / "run", os.O_RDONLY)
        line.connect(f"/proc/self/fd/{folder}/keeper.sock")
        os.close(folder)
        said = b""
        if request is not None:
            size = int.from_bytes(line.recv(4), "big")
            assert orjson.loads(line.recv(size))["protocol"] == PROTOCOL
            data = orjson.dumps(request)
            line.sendall(len(data).to_bytes(4, "big") + data)
        while chunk := line.recv(65536):
            said += chunk
        return said


@promise("calls.keeper-peers")
def test_a_peer_without_the_token_gets_no_answer(home, workspace):
    """A confined child of the same uid may reach a Unix socket whose folder it cannot read."""
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sleep", "72.1")
        stop = {"do": "stop", "process_id": started["process_id"], "by": "user:mallory"}
        for request in (stop, stop | {"token": ""}, stop | {"token": "0" * 64}, stop | {"token": None}):
            assert talk(home, request) == b""
        assert status(run, started["process_id"]) == "running"
        token = (home / "run" / "keeper.token").read_text()
        assert b"done" in talk(home, stop | {"token": token})
        assert status(run, started["process_id"]) == "stopped"


@promise("calls.keeper-peers")
@pytest.mark.root
def test_a_peer_of_another_uid_is_shown_the_door_without_a_word(home, workspace):
    if os.getuid() != 0:
        pytest.skip("only root can try to be somebody else")
    with Palyra.open(str(home)) as palyra:
        begin(palyra.run("agent:demo", workspace), "sleep", "72.2")
        assert [oct((home / "run" / name).stat().st_mode & 0o777) for name in (".", "keeper.sock")] == [
            "0o700",
            "0o600",
        ]
        # With every door of the file system left open, the peer's uid is what is left.
        opened = [home, home / "run", *home.parents]
        before = {path: path.stat().st_mode for path in opened}
        for path in opened:
            path.chmod(before[path] | 0o055)
        (home / "run" / "keeper.sock").chmod(0o777)
        script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(9))"
        argv = ["/usr/bin/python3", "-c", script, str(home / "run" / "keeper.sock")]
        done = subprocess.run(argv, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True)
        for path in opened:
            path.chmod(before[path])
        assert (done.stdout, done.returncode) == ("b''\n", 0), done.stderr


@promise("calls.keeper-peers")
@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff" * 8, b"\x00\x00\x00\x02[]", b'\x00\x00\x00\x09{"a":1,}}'])
def test_nonsense_on_the_socket_harms_nobody(home, workspace, data):
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:demo", workspace)
        started = begin(run, "sleep", "72.3")
        with socket.socket(socket.AF_UNIX) as line:
            folder = os.open(home / "run", os.O_RDONLY)
            line.connect(f"/proc/self/fd/{folder}/keeper.sock")
            os.close(folder)
            assert peer_uid(line) == os.getuid()
            line.sendall(data)
        assert status(run, started["process_id"]) == "running"
        assert begin(run, "true")["lifetime"] == Lifetime.DETACHED
