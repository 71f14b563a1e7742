"""deploy/nginx.conf before a real daemon, over TLS: what works on loopback works through it, and no wall is lower."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.command_line import Cli
from tests.deploy.conftest import DEPLOY
from tests.deploy.proxy import NAME, NGINX, Proxied, proxied
from tests.serving import make_token

CONF = DEPLOY / "nginx.conf"
ECHO = {"tool": "palyra.echo", "input": {"n": 1}}
SLOW = {"tool": "palyra.process.run", "input": {"command": "sh", "args": ["-c", "echo first; sleep 3; echo last"]}}


@pytest.fixture(scope="module")
def cli(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    if not NGINX:
        pytest.skip("make test-deploy fetches nginx for this")
    base: Path = tmp_path_factory.mktemp("proxied")
    (base / "home").mkdir(mode=0o700)
    workspace = base / "workspace"
    workspace.mkdir()
    config = base / "home" / "palyra.toml"
    config.write_text(f'posture = "developer"\n[daemon]\nnames = ["{NAME}"]\n')
    config.chmod(0o600)
    return Cli(base / "home", workspace)


@pytest.fixture(scope="module")
def through(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder: Path = tmp_path_factory.mktemp("nginx")
    folder.chmod(0o755)
    with proxied(cli, CONF, folder) as found:
        yield found


@pytest.fixture(scope="module")
def token(cli: Cli, through: Proxied) -> str:
    return make_token(cli, "agent:one", "--workspace", str(cli.workspace))


def test_it_is_taken_without_a_warning(through: Proxied) -> None:
    log = (through.folder / "error.log").read_text() + (through.folder / "early.log").read_text()
    assert [line for line in log.splitlines() if "[warn]" in line or "[emerg]" in line] == []


def test_calls_go_through_and_nobody_without_a_token(through: Proxied, token: str) -> None:
    assert through.ask("GET", "/healthz")[0] == 200
    assert through.ask("POST", "/v1/calls", b"{}", {"Content-Type": "application/json"})[0] == 401
    status, outcome = through.call(token, ECHO)
    assert (status, outcome["output"], outcome["success"]) == (200, {"n": 1}, True)


def test_browsers_are_told_to_come_back_encrypted(through: Proxied) -> None:
    assert "max-age=" in through.ask("GET", "/healthz")[1]["Strict-Transport-Security"]
    assert through.ask("GET", "/console/login")[1]["Content-Security-Policy"].startswith("default-src 'none'")


def test_metrics_are_not_shown_outside(through: Proxied, cli: Cli) -> None:
    operator = make_token(cli, "user:op", "--operator")
    assert through.ask("GET", "/metrics", headers={"Authorization": f"Bearer {operator}"})[0] == 404
    assert through.daemon.ask("GET", "/metrics", token=operator)[0] == 200


def test_a_name_that_is_not_ours_is_refused_by_handshake_and_by_header(through: Proxied, token: str) -> None:
    with pytest.raises(ssl.SSLError):
        through.line("other.example").connect()
    for path in ("/healthz", "/v1/tools"):
        status, _, body = through.ask("GET", path, headers={"Host": "evil.example", "Authorization": f"Bearer {token}"})
        assert status == 421
        assert b"palyra" not in body


def test_a_page_elsewhere_cannot_log_in_for_somebody(through: Proxied) -> None:
    assert through.form("/console/login", {"code": "x"}, Origin="https://evil.example")[0] == 403


def test_a_link_opens_the_console_and_its_cookie_is_for_encrypted_lines_alone(through: Proxied, cli: Cli) -> None:
    url = json.loads(cli("console", "--json").stdout)["url"]
    code = parse_qs(urlsplit(url).query)["code"][0]
    status, headers, _ = through.form("/console/login", {"code": code})
    cookie = headers["Set-Cookie"]
    assert (status, headers["Location"]) == (303, "/console")
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    status, _, page = through.ask("GET", "/console/approvals", headers={"Cookie": cookie.split(";")[0]})
    assert status == 200
    assert re.search(rb'data-events="([^"]+)"', page)


def test_events_come_as_they_happen(through: Proxied, token: str) -> None:
    status, begun = through.call(token, {**SLOW, "wait": False})
    assert status == 202
    line = through.line()
    with contextlib.closing(line):
        line.request("GET", f"/v1/calls/{begun['call_id']}/stream", headers={"Authorization": f"Bearer {token}"})
        stream = line.getresponse()
        assert (stream.status, stream.headers.get_content_type()) == (200, "text/event-stream")
        seen: list[tuple[float, bytes]] = []
        while not (seen and b"outcome" in seen[-1][1]):
            seen.append((time.monotonic(), stream.readline()))
    output = [at for at, text in seen if b"output" in text]
    assert seen[-1][0] - output[0] > 1.0, "the first output was there long before the end"


def test_a_body_is_refused_for_its_credential_before_it_is_sent(through: Proxied) -> None:
    """As on loopback: who has no token fills no disk of the proxy's, and is answered at once."""
    line = through.line()
    with contextlib.closing(line):
        line.putrequest("POST", "/v1/calls")
        line.putheader("Content-Type", "application/json")
        line.putheader("Content-Length", str(4 << 20))
        line.endheaders()
        line.send(b"{" * 1000)
        assert line.getresponse().status == 401


def test_bounds_of_bodies_are_the_daemons(through: Proxied, token: str) -> None:
    given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    status, _, body = through.ask("POST", "/v1/calls", b" " * (5 << 20), given)
    assert (status, json.loads(body)["error"]["code"]) == (413, "TOO_LARGE")


def test_the_largest_package_passes_the_proxy(through: Proxied, cli: Cli) -> None:
    """64 MiB and what is around them: judged by the daemon, which says that it is no package."""
    operator = make_token(cli, "user:op", "--operator")
    given = {"Authorization": f"Bearer {operator}", "Content-Type": "application/octet-stream"}
    status, _, body = through.ask("POST", "/console/v1/skills/install", b"x" * ((64 << 20) + (1 << 20)), given)
    assert (status, b"nginx" in body) == (422, False), body[:200]


def test_an_idle_line_to_the_daemon_is_not_used_after_the_daemon_gave_it_up(through: Proxied) -> None:
    """Else a call meets a closed line, and a POST is not tried again."""
    kept = re.search(r"keepalive_timeout (\d+)s;", CONF.read_text())
    assert kept is not None
    assert int(kept[1]) < 30, "idle_timeout_ms is 30 000"


def test_stdin_of_a_call_goes_on_while_it_runs(through: Proxied, cli: Cli) -> None:
    operator = make_token(cli, "user:op", "--operator")
    given = {"Authorization": f"Bearer {operator}", "Content-Type": "application/json", "Accept": "text/event-stream"}
    body = {"tool": "palyra.process.run", "input": {"command": "head", "args": ["-n", "1"]}, "stream_stdin": True}
    body |= {"workspace": str(cli.workspace)}
    call, feeding = through.line(), through.line()
    with contextlib.closing(call), contextlib.closing(feeding):
        call.request("POST", "/v1/calls", json.dumps(body).encode(), given)
        stream = call.getresponse()
        assert stream.status == 200, stream.read()
        call_id = ""
        while not call_id:
            found = re.search(rb'"call_id":\s*"([0-9A-Z]{26})"', stream.readline())
            call_id = found[1].decode() if found else ""
        feeding.putrequest("POST", f"/v1/calls/{call_id}/stdin")
        for name, value in (given | {"Transfer-Encoding": "chunked"}).items():
            feeding.putheader(name, value)
        feeding.endheaders()
        feeding.send(b"6\r\nhello\n\r\n")  # and no end: the program has what it wanted
        text = b""
        while b"outcome" not in text:
            text += stream.readline()
    assert b"hello" in text or b"aGVsbG8K" in text


def test_over_http_2_the_daemon_is_told_the_same_name(through: Proxied, token: str) -> None:
    curl = shutil.which("curl")
    if curl is None or b"HTTP2" not in subprocess.run([curl, "-V"], capture_output=True, check=True).stdout:
        pytest.skip("no curl that speaks HTTP/2")
    place = f"{NAME}:{through.port}"
    argv = [curl, "-sS", "--http2", "--cacert", through.folder / "fullchain.pem", "--resolve", f"{place}:127.0.0.1"]
    argv += ["-H", f"Authorization: Bearer {token}", "-H", f"Origin: https://{place}", "-o", "/dev/null"]
    argv += ["-w", "%{http_version} %{http_code}", f"https://{place}/v1/tools"]
    done = subprocess.run(argv, capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (b"2 200", b"")
