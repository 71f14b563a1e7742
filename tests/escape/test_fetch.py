"""Stories of palyra.http.fetch through the real engine, vault and sandbox, on loopback alone."""

from __future__ import annotations

import gzip
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome
from palyra.errors import Reason
from palyra.model.credential import Binding
from palyra.model.outcome import Status
from tests.promises import promise

TOKEN = b"tok-0123456789-abcdefghij"


class Site(http.server.ThreadingHTTPServer):
    seen: list[tuple[str, str]]

    @property
    def authority(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Pages(http.server.BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Authorization", "")))
        where, status, body, fields = self.path, 200, b"", {"Content-Type": "text/html"}
        if where == "/echo":
            body = f"<p>you sent {self.headers.get('Authorization')}</p>".encode()
        elif where == "/bomb":
            body, fields = gzip.compress(b"0" * (64 << 20)), {"Content-Encoding": "gzip", "Content-Type": "text/plain"}
        elif where.startswith("/to?"):
            status, fields = 302, {"Location": where[4:]}
        else:
            body = b"<title>T</title><script>alert(1)</script><p>hello</p>"
        self.send_response(status)
        for name, value in (fields | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


@pytest.fixture
def sites() -> Iterator[tuple[Site, Site]]:
    made = []
    for _ in range(2):
        site = Site(("127.0.0.1", 0), Pages)
        site.seen = []
        threading.Thread(target=site.serve_forever, daemon=True).start()
        made.append(site)
    yield made[0], made[1]
    for site in made:
        site.shutdown()
        site.server_close()


@pytest.fixture
def palyra(home: Path, sites: tuple[Site, Site]) -> Iterator[Palyra]:
    """The first site is granted, and the second; the secret belongs to the first."""
    home.mkdir(mode=0o700)
    hosts = ", ".join(f'"{site.authority}"' for site in sites)
    (home / "palyra.toml").write_text(f"[tool_call.process_runner]\nallowed_egress_hosts = [{hosts}]\n")
    with Palyra.open(str(home)) as opened:
        vault = opened.installation.vault
        binding = Binding(host=sites[0].authority, header="Authorization", prefix="Bearer ")
        assert opened._thread is not None
        opened._thread.wait_for(vault.set("TOKEN", TOKEN, binding=binding, actor="test"))
        yield opened


def fetch(palyra: Palyra, workspace: Path, url: str, **given: object) -> Outcome:
    return palyra.run("agent:probe", workspace).call("palyra.http.fetch", {"url": url, **given})


@promise("egress.fetch-credentials")
def test_a_page_is_fetched_with_its_credential_and_the_credential_is_nowhere(
    palyra: Palyra, home: Path, workspace: Path, sites: tuple[Site, Site]
) -> None:
    first, _ = sites
    outcome = fetch(palyra, workspace, f"http://{first.authority}/echo")
    assert (outcome.success, outcome.attestation["executor"]) == (True, "sandbox_tier_c_linux_bubblewrap")
    assert first.seen == [("/echo", f"Bearer {TOKEN.decode()}")]
    assert "redacted" in outcome.output["text"]
    assert TOKEN.decode() not in repr(outcome)
    palyra.close()
    for path in home.rglob("*"):
        assert not path.is_file() or TOKEN not in path.read_bytes(), path


@promise("egress.fetch-credentials", "egress.fetch-targets")
def test_a_redirect_takes_no_credential_along_and_leads_nowhere_private(
    palyra: Palyra, workspace: Path, sites: tuple[Site, Site]
) -> None:
    first, second = sites
    followed = fetch(palyra, workspace, f"http://{first.authority}/to?http://{second.authority}/echo")
    assert (followed.success, second.seen) == (True, [("/echo", "")])
    for target in ("http://127.0.0.1:1/", "http://169.254.169.254/", "http://localhost/", "http://[::1]/"):
        refused = fetch(palyra, workspace, f"http://{first.authority}/to?{target}")
        assert (refused.success, refused.reason) == (False, Reason.EGRESS_DENIED)
        assert refused.output["egress"]["connections"][-1]["verdict"] == "denied"
        assert refused.attestation["executor"] == "builtin"


@promise("egress.hostile-server")
def test_a_bomb_is_unpacked_in_the_sandbox_and_cut(palyra: Palyra, workspace: Path, sites: tuple[Site, Site]) -> None:
    outcome = fetch(palyra, workspace, f"http://{sites[0].authority}/bomb", max_bytes=100_000)
    assert outcome.output["truncated"] is True
    # where we cut, a piece as long as any form of a known secret is left out
    assert 99_000 < len(outcome.output["text"]) <= 100_000


def test_the_page_that_is_read_is_text(palyra: Palyra, workspace: Path, sites: tuple[Site, Site]) -> None:
    outcome = fetch(palyra, workspace, f"http://{sites[0].authority}/")
    assert outcome.output["text"] == "T\n\nhello\n"


@promise("egress.hostile-server")
def test_a_silent_server_costs_its_time_and_nothing_else(home: Path, workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        authority = f"127.0.0.1:{server.getsockname()[1]}"
        home.mkdir(mode=0o700)
        (home / "palyra.toml").write_text(f'[tool_call.process_runner]\nallowed_egress_hosts = ["{authority}"]\n')
        with Palyra.open(str(home)) as palyra:
            outcome = fetch(palyra, workspace, f"http://{authority}/", timeout_ms=300)
    assert (outcome.status, outcome.reason) == (Status.TIMEOUT, Reason.TIMEOUT)
