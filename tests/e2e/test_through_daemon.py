"""The command line and the client beside a daemon that is up: the same outcomes, streams and exit codes as without."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

from palyra import AsyncPalyra, Palyra
from palyra.api import Limits, Rejected, grant
from palyra.client.wire import Unreachable
from palyra.client.words import DaemonError
from palyra.errors import PalyraError
from palyra.model.outcome import Status
from tests.command_line import Cli
from tests.keeping import running, wait_for
from tests.promises import promise
from tests.serving import Served, make_token, serving


@pytest.fixture(scope="module")
def beside(tmp_path_factory):
    """(the command line of a home without a daemon, that of one with, the daemon)."""
    workspace = tmp_path_factory.mktemp("ws")
    alone = Cli(tmp_path_factory.mktemp("alone") / "home", workspace)
    served_home = Cli(tmp_path_factory.mktemp("served") / "home", workspace)
    with serving(served_home) as served:
        yield alone, served_home, served
        assert served.end()[0] == 0
    assert served_home("journal", "verify").returncode == 0


@pytest.fixture
def served(beside) -> Served:
    return beside[2]


DIFFERS = ("call_id", "operator_hint", "run_id", "attestation", "receipt", "usage", "budget")


PLAIN: list[tuple[tuple[str | bytes, ...], bytes]] = [
    (("run", "--", "cat"), b"over there\n" * 1000),
    (("run", "--", "bash", "-c", "true"), b""),
    (("run", "--timeout", "0.3", "--", "sleep", "5"), b""),
    (("run", "--allow", "no-such-program", "--", "no-such-program"), b""),
    (("run", "--as", "nobody", "--", "true"), b""),
    (("run", "--", b"\xff\xfe"), b""),
    (("run", "--workspace", "/nowhere", "--", "ls"), b""),
    (("call", "palyra.echo", '{"a": 1, "a": 2}'), b""),
    (("call", "palyra.echo", "--run", "not-a-run"), b""),
]
CALL_ID = re.compile(rb"[0-9A-HJKMNP-TV-Z]{26}")
"""Of a refused call, in the command that allows it."""
WHOLE: list[tuple[tuple[str | bytes, ...], bytes]] = [
    (("run", "--allow-interpreters", "--", "bash", "-c", "echo out; echo err >&2; exit 3"), b""),
    (("run", "--max-output", "10", "--", "yes"), b""),
    (("run", "--read", ".", "--env", "CI=1", "--egress", "block_all", "--", "ls"), b""),
    (("call", "palyra.echo", "-"), b'{"a": [1, 2.5, "\xc3\xbc"]}'),
    (("call", "palyra.process.run", '{"command": "ls", "surprise": 1}'), b""),
]


@pytest.mark.parametrize(("words", "stdin"), PLAIN, ids=str)
def test_streams_and_exit_codes_are_the_same(beside, words, stdin):
    alone, with_daemon, _ = beside
    here, there = alone(*words, stdin=stdin), with_daemon(*words, stdin=stdin)
    said = [CALL_ID.sub(b"ID", done.stderr) for done in (there, here)]
    assert (there.returncode, there.stdout, said[0]) == (here.returncode, here.stdout, said[1])


@pytest.mark.parametrize(("words", "stdin"), WHOLE, ids=str)
def test_the_outcome_is_the_same(beside, words, stdin):
    alone, with_daemon, _ = beside
    here, there = alone("--json", *words, stdin=stdin), with_daemon("--json", *words, stdin=stdin)
    assert (there.returncode, there.stderr) == (here.returncode, here.stderr)
    mine, theirs = (json.loads(done.stdout) for done in (here, there))
    assert {k: v for k, v in theirs.items() if k not in DIFFERS} == {k: v for k, v in mine.items() if k not in DIFFERS}
    assert theirs["attestation"].keys() == mine["attestation"].keys()


def test_calls_really_went_through_the_daemon(beside):
    _, with_daemon, served = beside
    before = served.ask("GET", "/v1/tools", unix=True)[0]
    outcome = with_daemon.outcome("--json", "run", "--", "true")
    status, same = served.ask("GET", f"/v1/calls/{outcome['call_id']}", unix=True)
    assert (before, status, same["call_id"]) == (200, 200, outcome["call_id"])
    assert with_daemon.home.joinpath("run", "palyrad.json").exists()


def test_a_configuration_that_changed_is_not_the_daemons(beside):
    _, with_daemon, _ = beside
    path = with_daemon.home / "palyra.toml"
    path.write_text("[tool_call.process_runner]\nenabled = false\n")
    try:
        assert with_daemon("run", "--", "true").returncode == 126
    finally:
        path.unlink()
    assert with_daemon("run", "--", "true").returncode == 0


def test_a_reader_that_goes_away_ends_the_call(beside):
    _, with_daemon, _ = beside
    running = with_daemon.start("run", "--", "yes")
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.read(10)
    running.stdout.close()
    assert running.wait(30) == 141
    assert running.stderr.read() == b""
    running.stderr.close()


def test_ctrl_c_ends_the_call_also_where_nobody_reads(beside):
    _, with_daemon, _ = beside
    for words in (("sleep", "60"), ("yes",)):
        running = with_daemon.start("run", "--", *words)
        time.sleep(1.5)
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
        running.communicate()


def test_a_daemon_that_was_killed_is_not_asked(cli):
    with serving(cli) as served:
        served.end(signal.SIGKILL)
        assert (cli.home / "run" / "palyrad.json").exists()
        assert cli("run", "--", "true").returncode == 0


# ── Palyra.connect ──


def test_an_agents_client_has_the_librarys_face(beside):
    _, with_daemon, served = beside
    token = make_token(with_daemon)
    with Palyra.connect(served.listening[0], token=token) as palyra:
        run = palyra.run(workspace=with_daemon.workspace, limits=Limits(wall_ms=5000), calls_max=4)
        result = run.call("palyra.process.run", {"command": "seq", "args": ["2"]})
        assert (result.success, result.output["stdout"]) == (True, "1\n2\n")
        assert result.run_id == run.run_id
        assert result.attestation["limits"]["wall_ms"] == 5000
        chunks = []
        run.call(
            "palyra.process.run", {"command": "seq", "args": ["3"]}, on_output=lambda name, data: chunks.append(data)
        )
        assert b"".join(chunks) == b"1\n2\n3\n"
        assert run.call("palyra.echo", b'{"x": 1}').output == {"x": 1}
        assert run.call("no.such.tool").reason == "UNKNOWN_TOOL"
        assert run.call("palyra.echo").status is Status.COMPLETED
        assert run.call("palyra.echo").reason == "BUDGET_SPENT"
        assert "palyra.echo" in {tool["name"] for tool in palyra.tools()}
        run.end()
        with pytest.raises(PalyraError, match="this run has ended"):
            run.call("palyra.echo")


def test_what_an_agent_may_not_say_is_refused(beside):
    _, with_daemon, served = beside
    with Palyra.connect(served.listening[0], token=make_token(with_daemon)) as palyra:
        granted = palyra.run(grant=grant(executables=("make",)))
        assert granted.call("palyra.echo").reason == "CAPABILITY_DENIED"
        with pytest.raises(Rejected):
            palyra.run(principal="agent:somebody").call("palyra.echo")
        with pytest.raises(Rejected):
            palyra.run(egress="none").call("palyra.echo")


@promise("daemon.operator-fields")
def test_model_made_bytes_never_become_the_clients_own_words(beside):
    """Bytes spliced into a body could carry a grant beside the input."""
    _, _, served = beside
    with Palyra.connect(f"unix:{served.socket}") as operator, pytest.raises(Rejected):
        operator.run().call("palyra.echo", b'{}, "allow_interpreters": true')


def test_the_owner_needs_no_token_over_the_socket(beside):
    _, with_daemon, served = beside
    with Palyra.connect(f"unix:{served.socket}") as palyra:
        run = palyra.run(
            principal="agent:x", workspace=with_daemon.workspace, grant=grant(interpreters=True, env={"CI": "7"})
        )
        shown = run.call("palyra.process.run", {"command": "bash", "args": ["-c", "echo $CI"]})
        assert shown.output["stdout"] == "7\n"


def test_a_wrong_token_and_no_daemon_are_told_apart(served):
    with Palyra.connect(served.listening[0], token="wrong") as palyra, pytest.raises(DaemonError) as caught:
        palyra.tools()
    assert caught.value.status in (401, 429)
    hint = str(caught.value.hint)
    assert (caught.value.__notes__, hint in str(caught.value)) == ([f"hint: {hint}"], False)
    with Palyra.connect("http://127.0.0.1:9") as nobody, pytest.raises(Unreachable):
        nobody.tools()


def test_many_threads_share_a_client(beside):
    _, with_daemon, served = beside
    with Palyra.connect(served.listening[0], token=make_token(with_daemon)) as palyra:
        run = palyra.run()
        found: list[object] = []
        threads = [
            threading.Thread(target=lambda n=n: found.append(run.call("palyra.echo", {"n": n}).output["n"]))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(20))


def test_the_async_face_and_its_cancellation(beside):
    _, with_daemon, served = beside
    token = make_token(with_daemon)

    async def story():
        async with AsyncPalyra.connect(served.listening[0], token=token) as palyra:
            run = palyra.run(workspace=with_daemon.workspace)
            outcomes = await asyncio.gather(*(run.call("palyra.echo", {"n": n}) for n in range(10)))
            call_id = "01J0000000000000000000CNC0"
            slow = asyncio.ensure_future(
                run.call("palyra.process.run", {"command": "sleep", "args": ["60"]}, call_id=call_id)
            )
            await asyncio.sleep(1)
            slow.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await slow
            return outcomes, served.ask("GET", f"/v1/calls/{call_id}", token=token)[1]["status"]

    outcomes, status = asyncio.run(story())
    assert [outcome.output["n"] for outcome in outcomes] == list(range(10))
    assert status == "cancelled"


def test_what_code_that_is_given_the_output_raises_ends_the_call_and_is_raised_with_await_too(cli):
    """It went to the loop's own complaints, and the call went on."""

    async def story(served: Served, token: str) -> tuple[list[bytes], object, object]:
        async with AsyncPalyra.connect(f"unix:{served.socket}", token=token) as palyra:
            run, call_id, came = palyra.run(workspace=str(cli.workspace)), "01JZZZZZZZZZZZZZZZZZZZZZZZ", []

            def fail(_: object, chunk: bytes) -> None:
                came.append(chunk)
                raise TimeoutError("of the caller's own")

            given = {"command": "tail", "args": ["-f", "text"]}
            with pytest.raises(TimeoutError, match="caller's own"):
                await asyncio.wait_for(run.call("palyra.process.run", given, call_id=call_id, on_output=fail), 30)
            for _ in range(200):
                status, seen = served.ask("GET", f"/v1/calls/{call_id}", token=token)
                if status == 200 and seen["status"] != "running":
                    break
                await asyncio.sleep(0.05)
            return came, status, seen["status"]

    (cli.workspace / "text").write_text("some\n")
    token = make_token(cli)
    with serving(cli) as served:
        assert asyncio.run(story(served, token)) == ([b"some\n"], 200, "cancelled")


@pytest.mark.parametrize("number", [None, signal.SIGINT, signal.SIGKILL], ids=["by itself", "Ctrl-C", "killed"])
def test_a_call_that_ends_before_its_stdin_does_is_no_error_of_the_daemons(cli, number):
    """Every run at a terminal left a traceback in its log, and one more request that had failed."""
    with serving(cli) as served:
        process = subprocess.Popen(
            [*cli.argv, "run", "--", "sleep", "1.83"], cwd=cli.workspace, env=cli.environ, stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_for(lambda: running("sleep", "1.83"))
        if number is not None:
            process.send_signal(number)
        process.wait(60)
        assert process.stdin is not None
        process.stdin.close()
        wait_for(lambda: not running("sleep", "1.83"))
        code, log = served.end()
    assert (code, b"Traceback" in log, b"failed" in log) == (0, False, False), log.decode()


def test_of_a_call_whose_daemon_was_killed_is_said_where_its_record_is(cli):
    with serving(cli) as served:
        process = cli.start("run", "--", "sleep", "60.84")
        wait_for(lambda: running("sleep", "60.84"))
        served.process.kill()
        _, said = process.communicate(timeout=60)
    first, hint = said.decode().splitlines()
    assert (process.returncode, first) == (125, "palyra: The daemon went away.")
    command = hint.partition("and palyra ")[2].partition(" has ")[0].split()
    assert (cli(*command).returncode, running("sleep", "60.84")) == (0, [])


def test_a_client_goes_on_after_a_restart(cli):
    token = make_token(cli)
    with serving(cli) as first:
        palyra = Palyra.connect(f"unix:{first.socket}", token=token)
        run = palyra.run()
        assert run.call("palyra.echo").success
        first.end()
    with serving(cli):
        assert run.call("palyra.echo").success
        palyra.close()


def test_the_client_is_quick_to_import():
    heavy = ("pydantic", "starlette", "uvicorn", "cedarpy", "wasmtime", "asyncio", "ssl", "click", "sqlite3")
    program = f"import sys, palyra.client.remote; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def test_a_run_that_is_ended_beside_a_daemon_ends_what_runs_there_and_takes_no_more(beside):
    _, cli, _ = beside
    run_id = "01HF7YAT000000000000000RVE"
    sleeping = '{"command": "sleep", "args": ["60.91"]}'
    process = cli.start("call", "palyra.process.run", sleeping, "--run", run_id, "--json")
    wait_for(lambda: running("sleep", "60.91"))
    ended = json.loads(cli("runs", "end", run_id, "--json").stdout)
    outcome = json.loads(process.communicate(timeout=30)[0])
    assert (outcome["status"], running("sleep", "60.91")) == ("cancelled", [])
    again = json.loads(cli("runs", "end", run_id, "--json").stdout)
    assert again["ended_at_unix_ms"] == ended["ended_at_unix_ms"]
    assert cli("runs", "end", run_id).stdout == f"{run_id} ended\n".encode()
    refused = cli.outcome("call", "palyra.echo", "{}", "--run", run_id, "--json")
    assert (refused["reason"], refused["message"]) == ("BAD_ARGUMENTS", "This run has ended.")
    assert cli("runs", "end", "01HF7YAT000000000000000RVX").stderr.startswith(b"palyra: There is no run")
