"""`palyra serve` as a real process: who may ask over which socket, an end in order, a crash, and hostile clients."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import resource
import signal
import socket
import ssl
import time

import pytest

from palyra.daemon.open_files import wanted_files
from tests.certificates import make_certificate
from tests.command_line import Cli
from tests.promises import promise
from tests.serving import make_token, serving

ASKS = """[tool_call.process_runner]
egress_enforcement_mode = "none"
"""
ECHO = {"tool": "palyra.echo", "input": {"hello": "world"}}


def ulid(number: int) -> str:
    return f"01J{number:023d}"


def process(cli, *words: str, **more) -> dict:
    input = {"command": words[0], "args": list(words[1:])}
    return {"tool": "palyra.process.run", "input": input, "workspace": str(cli.workspace), **more}


def wait_until(holds, *, within_s: float = 20) -> None:
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def test_tcp_needs_a_token_and_the_owners_socket_does_not(cli):
    token = make_token(cli)
    with serving(cli) as served:
        assert served.ask("GET", "/healthz")[0] == 200
        assert served.ask("GET", "/v1/tools")[0] == 401
        assert served.ask("GET", "/v1/tools", token=token)[0] == 200
        status, ready = served.ask("GET", "/readyz", unix=True)
        assert (status, ready["ready"]) == (200, True)
        said = process(cli, "ls", allow_interpreters=True)
        assert served.ask("POST", "/v1/calls", said, unix=True)[1]["status"] == "completed"
        assert served.ask("POST", "/v1/calls", said, token=token)[1]["reason"] == "CAPABILITY_DENIED"
        assert oct(served.socket.stat().st_mode)[-3:] == "660"


ASK_THE_SOCKET = """
import socket
line = socket.socket(socket.AF_UNIX)
line.connect("door.sock")
line.sendall(b"GET /console/v1/tokens HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n")
print(line.recv(12).decode())
"""


def test_a_program_in_a_sandbox_that_sees_the_socket_is_not_taken_for_the_owner(cli):
    (cli.workspace / "ask.py").write_text(ASK_THE_SOCKET)
    with serving(cli, "--socket", str(cli.workspace / "door.sock")) as served:
        said = process(cli, "python3", "ask.py", allow_interpreters=True)
        outcome = served.ask("POST", "/v1/calls", said, unix=True)[1]
        assert (outcome["status"], outcome["output"]["stdout"]) == ("completed", "HTTP/1.1 401\n")


def test_a_token_that_is_revoked_elsewhere_is_refused_at_once(cli):
    token = make_token(cli)
    with serving(cli) as served:
        assert served.ask("POST", "/v1/calls", ECHO, token=token)[0] == 200
        assert cli("token", "revoke", token.split("_")[1]).returncode == 0
        assert served.ask("POST", "/v1/calls", ECHO, token=token)[0] == 401


def test_a_client_that_goes_away_does_not_end_its_call(cli):
    token = make_token(cli)
    with serving(cli) as served:
        call = process(cli, "sleep", "1", call_id=ulid(7))
        body = json.dumps(call).encode()
        with served.connect() as line:
            head = f"POST /v1/calls HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            line.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            wait_until(lambda: _open_calls(cli) == 1)
        status, outcome = served.ask("POST", "/v1/calls", call, token=token)
        assert (status, outcome["status"], outcome["success"]) == (200, "completed", True)


def test_a_stream_ends_with_a_reason_when_its_token_is_revoked_elsewhere(cli):
    token = make_token(cli)
    with serving(cli) as served:
        call = process(cli, "sleep", "30", call_id=ulid(1), wait=False)
        assert served.ask("POST", "/v1/calls", call, token=token)[0] == 202
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            stream = pool.submit(served.ask, "GET", f"/v1/calls/{ulid(1)}/stream", token=token)
            wait_until(lambda: _open_calls(cli) == 1)
            assert cli("token", "revoke", token.split("_")[1]).returncode == 0
            status, text = stream.result(timeout=20)
        assert (status, text.splitlines()[-3]) == (200, b"event: closed")
        assert served.ask("POST", f"/v1/calls/{ulid(1)}/cancel", unix=True)[1]["status"] == "cancelled"


def test_sigterm_lets_calls_finish_ends_the_rest_and_exits_0(cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("[daemon]\nshutdown_ms = 1500\n")
    token = make_token(cli)
    with serving(cli) as served, concurrent.futures.ThreadPoolExecutor(2) as pool:
        quick = pool.submit(served.ask, "POST", "/v1/calls", process(cli, "sleep", "1"), token=token)
        slow = pool.submit(served.ask, "POST", "/v1/calls", process(cli, "sleep", "60"), token=token)
        wait_until(lambda: _open_calls(cli) == 2)
        code, log = served.end()
        assert code == 0
        assert (quick.result()[1]["status"], slow.result()[1]["status"]) == ("completed", "cancelled")
        lines = [json.loads(line) for line in log.splitlines() if line.startswith(b"{")]
        assert sorted(line["status"] for line in lines) == ["cancelled", "completed"]
        assert not served.socket.exists()
    assert cli("journal", "verify").returncode == 0


def _open_calls(cli) -> int:
    import sqlite3

    with sqlite3.connect(cli.home / "state" / "palyra.db") as rows:
        return int(rows.execute("SELECT count(*) FROM calls WHERE status = 'open'").fetchone()[0])


@promise("daemon.restart")
def test_a_restart_under_load_loses_no_acknowledged_call(cli):
    token = make_token(cli)
    acknowledged: list[str] = []
    with serving(cli) as served, concurrent.futures.ThreadPoolExecutor(4) as pool:
        run_id = served.ask("POST", "/v1/runs", {"workspace": str(cli.workspace)}, token=token)[1]["run_id"]
        first = process(cli, "sleep", "30", call_id=ulid(0), wait=False)
        assert served.ask("POST", "/v1/calls", first | {"run_id": run_id, "workspace": None}, token=token)[0] == 202

        def send(number: int) -> None:
            # `touch` claims the whole workspace, so these wait behind the first and never begin.
            call = process(cli, "touch", f"made-{number}", call_id=ulid(number), wait=False)
            status, _ = served.ask("POST", "/v1/calls", call | {"run_id": run_id, "workspace": None}, token=token)
            if status == 202:
                acknowledged.append(ulid(number))

        wait_until(lambda: _open_calls(cli) == 1)
        list(pool.map(send, range(1, 21)))
        served.end(signal.SIGKILL)
    assert len(acknowledged) == 20
    with serving(cli) as served:

        def ended() -> bool:
            found = [served.ask("GET", f"/v1/calls/{one}", token=token) for one in acknowledged]
            return all(status == 200 and outcome["status"] == "completed" for status, outcome in found)

        wait_until(ended, within_s=60)
        interrupted = served.ask("GET", f"/v1/calls/{ulid(0)}", token=token)[1]
        assert interrupted["status"] == "interrupted"
        assert served.end()[0] == 0
    assert len(list(cli.workspace.glob("made-*"))) == 20
    assert cli("journal", "verify").returncode == 0


@promise("daemon.restart")
def test_a_pending_approval_outlives_a_crash_and_its_call_runs_then(cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text(ASKS)
    token = make_token(cli)
    with serving(cli) as served:
        call = process(cli, "touch", "approved", call_id=ulid(1), wait=False)
        assert served.ask("POST", "/v1/calls", call, token=token)[0] == 202
        wait_until(lambda: served.ask("GET", f"/v1/calls/{ulid(1)}", token=token)[1]["status"] != "running")
        outcome = served.ask("GET", f"/v1/calls/{ulid(1)}", token=token)[1]
        assert outcome["status"] == "pending_approval"
        served.end(signal.SIGKILL)
    with serving(cli) as served:
        assert cli("approvals", "approve", outcome["approval"]["approval_id"]).returncode == 0
        wait_until((cli.workspace / "approved").exists)
        assert served.end()[0] == 0
    assert cli("journal", "verify").returncode == 0


def test_one_daemon_serves_a_home(cli):
    with serving(cli):
        second = cli("serve", "--port", "0")
        assert second.returncode == 125
        assert b"A daemon already serves this home." in second.stderr


# ── hostile clients ──


def head_of_a_post(token: str, length: int) -> bytes:
    lines = ("POST /v1/calls HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}")
    return "\r\n".join((*lines, f"Content-Length: {length}", "", "")).encode()


@pytest.fixture(scope="module")
def hardened(tmp_path_factory):
    """A daemon with little patience, for all the tests below."""
    folder = tmp_path_factory.mktemp("hostile")
    cli = Cli(folder / "home", folder)
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("[daemon]\nheader_timeout_ms = 500\nbody_timeout_ms = 500\n")
    token = make_token(cli)
    with serving(cli) as served:
        yield served, token
        assert served.end()[0] == 0


@promise("daemon.connection-bounds")
def test_slow_headers_and_bodies_are_cut_off_while_others_are_served(hardened):
    served, token = hardened
    silent, trickling, body = served.connect(), served.connect(), served.connect()
    trickling.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
    body.sendall(head_of_a_post(token, 50) + b"{")
    began = time.monotonic()
    while time.monotonic() - began < 1.0:
        try:
            trickling.sendall(b"a")
        except OSError:
            break
        assert served.ask("GET", "/healthz")[0] == 200
        time.sleep(0.1)
    for sock in (silent, trickling, body):
        with sock:
            assert b" 408 " in sock.recv(4096)


@pytest.mark.parametrize("era", ["", "MCP-Protocol-Version: 2026-07-28"])
def test_a_slow_body_over_mcp_is_answered_and_not_just_cut_off(hardened, era):
    served, token = hardened
    head = head_of_a_post(token, 50).replace(b"POST /v1/calls", b"POST /mcp")
    accept = b"\r\nAccept: application/json, text/event-stream\r\n" + (era.encode() + b"\r\n" if era else b"")
    with served.connect() as sock:
        sock.sendall(head.replace(b"\r\n", accept, 1) + b'{"jsonrpc"')
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        told = json.loads(answer.read())
        assert (answer.status, answer.headers["connection"], told["id"]) == (408, "close", None)
        assert told["error"]["data"]["reason"] == "SLOW"
        assert sock.recv(1) == b"", "and then cut off"


@promise("daemon.connection-bounds")
@pytest.mark.parametrize("pieces", [1, 2, 50])
def test_headers_that_are_too_large_are_refused(hardened, pieces):
    served, _ = hardened
    with served.connect() as sock:
        sock.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Large: ")
        with contextlib.suppress(OSError):
            for _ in range(pieces):
                sock.sendall(b"x" * (100_000 // pieces))
                time.sleep(0.2 / pieces)
            sock.sendall(b"\r\n\r\n")
        assert b" 400 " in sock.recv(4096)
    assert served.ask("GET", "/healthz")[0] == 200


@promise("daemon.connection-bounds")
def test_an_oversized_body_is_refused_by_its_length_alone(hardened):
    served, token = hardened
    with served.connect() as sock:
        sock.sendall(head_of_a_post(token, 9_999_999_999))
        assert b" 413 " in sock.recv(4096)


@promise("daemon.connection-bounds")
def test_a_request_smuggled_behind_two_lengths_is_refused(hardened):
    served, token = hardened
    head = head_of_a_post(token, 3).replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    with served.connect() as sock:
        sock.sendall(head + b"0\r\n\r\nGET /v1/tools HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = sock.recv(65536)
        assert answer.count(b"HTTP/1.1 ") == 1 or b" 401 " in answer


@promise("daemon.reserved-capacity")
def test_whoever_takes_every_connection_does_not_lock_the_owner_out(cli):
    cli.home.mkdir(mode=0o700)
    (cli.home / "palyra.toml").write_text("[daemon]\nmax_connections = 16\n")
    token = make_token(cli)
    with serving(cli) as served:
        taken = [served.connect() for _ in range(17)]
        with contextlib.closing(served.connect()) as late:
            assert b" 503 " in late.recv(4096), "one too many"
        assert served.ask("GET", "/console/v1/tokens", unix=True)[0] == 200
        for sock in taken:
            sock.close()
        wait_until(lambda: _answers(served, token))
        assert served.end()[0] == 0


def _answers(served, token: str) -> bool:
    with contextlib.suppress(OSError):
        return served.ask("POST", "/v1/calls", ECHO, token=token)[0] == 200
    return False


@promise("daemon.connection-bounds")
def test_2000_idle_connections_hold_nobody_up(hardened):
    served, token = hardened
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < wanted_files(connections=4096, calls=256):
        pytest.skip("this user may not open that many files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    idle: list[socket.socket] = []
    try:
        idle += [served.connect() for _ in range(2000)]
        for _ in range(20):
            assert served.ask("POST", "/v1/calls", ECHO, token=token)[1]["status"] == "completed"
    finally:
        for sock in idle:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Few(Cli):
    """Whose system allows it 1024 open files and no more."""

    @property
    def argv(self) -> list[str]:
        return ["sh", "-c", 'ulimit -n 1024 && exec "$0" "$@"', *super().argv]


@promise("daemon.connection-bounds")
@pytest.mark.slow
def test_who_connects_and_says_nothing_takes_no_files_that_calls_need(cli):
    """Without a token: a thousand such connections left no descriptor to start a sandbox with."""
    token, few = make_token(cli), Few(cli.home, cli.workspace)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2048:
        pytest.skip("this user may not open that many files")
    order = {
        "tool": "palyra.process.run",
        "input": {"command": "sleep", "args": ["0.2"]},
        "workspace": f"{cli.workspace}",
    }
    idle: list[socket.socket] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    try:
        with serving(few) as served, concurrent.futures.ThreadPoolExecutor(8) as many:
            lines = [http.client.HTTPConnection(served.host, served.port, timeout=60) for _ in range(8)]
            for line in lines:
                line.connect()
            for _ in range(1200):
                with contextlib.suppress(OSError):
                    idle.append(served.connect())
            answers = many.map(lambda line: _posted(line, "/v1/calls", order, token), lines)
            assert [answer["status"] for answer in answers] == ["completed"] * 8
            assert served.end()[0] == 0
    finally:
        for sock in idle:
            sock.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _posted(line: http.client.HTTPConnection, path: str, body: object, token: str) -> dict[str, object]:
    with contextlib.closing(line):
        line.request("POST", path, body=json.dumps(body).encode(), headers={"Authorization": f"Bearer {token}"})
        answer: dict[str, object] = json.loads(line.getresponse().read())
    return answer


# ── TLS and reach ──


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_another_machines_reach_needs_tls(cli, host):
    done = cli("serve", "--port", "0", "--host", host)
    assert done.returncode == 125
    assert b"there is no TLS" in done.stderr


def test_another_machines_reach_needs_a_token_too(cli, tmp_path):
    _tls(cli, tmp_path)
    done = cli("serve", "--port", "0", "--host", "0.0.0.0")
    assert done.returncode == 125
    assert b"no valid token" in done.stderr


def _tls(cli, tmp_path):
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    authority, secret = make_certificate("localhost")
    certificate.write_bytes(authority)
    key.write_bytes(secret)
    key.chmod(0o600)
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text(f'[daemon]\ntls_certificate = "{certificate}"\ntls_key = "{key}"\n')
    return certificate, key


def test_tls_on_tcp_and_none_on_the_socket(cli, tmp_path):
    certificate, _ = _tls(cli, tmp_path)
    with serving(cli) as served:
        assert served.listening[0].startswith("https://")
        context = ssl.create_default_context(cafile=certificate)
        with context.wrap_socket(served.connect(), server_hostname="localhost") as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in line.recv(4096)
        assert served.ask("GET", "/healthz", unix=True)[0] == 200


@promise("daemon.connection-bounds")
def test_who_never_shakes_hands_on_tls_is_counted_and_not_waited_for(cli, tmp_path):
    """Such connections were in no count, however many, and had a minute each: with a quarter of a megabyte each."""
    certificate, _ = _tls(cli, tmp_path)
    with (cli.home / "palyra.toml").open("a") as file:
        file.write("max_connections = 16\nheader_timeout_ms = 3000\n")
    with serving(cli) as served:
        silent = [served.connect() for _ in range(40)]
        began_s = time.monotonic()
        for sock in (*silent[16:], *silent[:16]):
            with contextlib.closing(sock), contextlib.suppress(ConnectionResetError):
                assert sock.recv(1) == b"", "one too many, or it had its time"
        assert time.monotonic() - began_s < 50, "asyncio's own patience is a minute"
        context = ssl.create_default_context(cafile=certificate)
        with context.wrap_socket(served.connect(), server_hostname="localhost") as line:
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in line.recv(4096)
        assert served.end()[0] == 0


def test_a_key_others_may_read_is_refused(cli, tmp_path):
    _, key = _tls(cli, tmp_path)
    key.chmod(0o644)
    done = cli("serve", "--port", "0")
    assert done.returncode == 125
    assert b"accessible to other users" in done.stderr


def test_who_sends_too_much_gets_the_answer_and_not_a_reset(cli):
    """A proxy that is cut off while it sends says 502, and nobody learns why."""
    size = 5 << 20
    head = f"POST /v1/calls HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {make_token(cli)}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
    with serving(cli) as served:
        for _ in range(10):
            with served.connect() as line:
                line.sendall(head.encode() + b" " * size)
                assert (line.recv(12), b"TOO_LARGE" in line.recv(65536)) == (b"HTTP/1.1 413", True)


def test_a_body_that_goes_on_after_its_answer_is_cut_in_the_end(cli):
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text("[daemon]\nheader_timeout_ms = 500\n")
    (cli.home / "palyra.toml").chmod(0o600)
    with serving(cli) as served, served.connect() as line:
        line.sendall(b"POST /v1/calls HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert line.recv(12) == b"HTTP/1.1 401"

        def is_cut() -> bool:
            try:
                line.sendall(b"1\r\nx\r\n")
            except ConnectionError:
                return True
            return False

        wait_until(is_cut)
