"""The webhook: signed, off the call's path, bounded, and without anything of the call that could be a secret."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from palyra.config.schema import ApprovalsConfig
from palyra.model.approval import Approval
from palyra.wiring import webhook as module
from palyra.wiring.webhook import Webhook, message, read_secret, sign
from tests.approving import question
from tests.journaling import NOW, ulid

SECRET = b"0123456789abcdef"
ASKED = question(argv=["git", "push", "token-in-an-argument"])
APPROVAL = Approval(
    approval_id=ulid(3), principal=ASKED.principal, run_id=ASKED.run_id, call_id=ASKED.call_id, tool=ASKED.tool,
    program=ASKED.program, binding=ASKED.binding, frame=ASKED.frame, likeness=ASKED.likeness, shown=b"x",
    asked_unix_ms=NOW, expires_unix_ms=NOW + 1,
)  # fmt: skip


class Receiver:
    """A loopback server that answers as it is told and keeps what it got."""

    def __init__(self, statuses: list[int]) -> None:
        self.got: list[tuple[str | None, bytes]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append((self.headers["Palyra-Signature"], body))
                self.send_response(statuses[min(len(receiver.got), len(statuses)) - 1])
                self.send_header("Location", "http://127.0.0.1:9/elsewhere")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?a=b"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(module, "TIMEOUT_S", 1.0)


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET + b"\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def receiver(request: pytest.FixtureRequest) -> Iterator[Receiver]:
    made = Receiver(getattr(request, "param", [204]))
    yield made
    made.close()


def send(url: str, path: Path) -> None:
    hook = Webhook(ApprovalsConfig(webhook_url=url, webhook_secret_file=str(path)), lambda _: (), lambda: NOW)
    hook.announce(APPROVAL)
    asyncio.run(hook.close())


def test_it_is_signed_with_its_time(receiver, secret_file):
    send(receiver.url, secret_file)
    ((signature, body),) = receiver.got
    at = NOW // 1000
    assert signature == f"t={at},v1={hmac.digest(SECRET, str(at).encode() + b'.' + body, 'sha256').hex()}"
    assert json.loads(body)["approval_id"] == APPROVAL.approval_id


def test_nothing_of_the_call_that_could_be_a_secret_is_in_it():
    body = message(APPROVAL, "https://console.example/")
    assert b"token-in-an-argument" not in body
    assert sorted(json.loads(body)) == sorted(
        "type approval_id principal tool program run_id call_id asked_at_unix_ms expires_at_unix_ms url".split()
    )
    assert json.loads(body)["url"] == f"https://console.example/approvals/{APPROVAL.approval_id}"


@pytest.mark.parametrize(("receiver", "tries"), [([500, 204], 2), ([500], 3), ([302], 3)], indirect=["receiver"])
def test_it_is_tried_a_few_times_and_follows_no_redirect(receiver, tries, secret_file, caplog):
    with caplog.at_level(logging.WARNING):
        send(receiver.url, secret_file)
    assert len(receiver.got) == tries
    assert bool(caplog.records) == (tries == 3)


def test_a_receiver_that_is_not_there_or_hangs_holds_nobody(secret_file, monkeypatch):
    import socket

    monkeypatch.setattr(module, "FINISH_S", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hook = Webhook(
            ApprovalsConfig(
                webhook_url=f"http://127.0.0.1:{silent.getsockname()[1]}/", webhook_secret_file=str(secret_file)
            ),
            lambda _: (),
            lambda: NOW,
        )
        before = time.monotonic()
        for _ in range(module.WAITING + 10):
            hook.announce(APPROVAL)
        asyncio.run(hook.close())
        assert time.monotonic() - before < 5


def test_nothing_is_sent_unsigned(receiver, tmp_path, caplog):
    open_to_all = tmp_path / "open"
    open_to_all.write_bytes(SECRET)
    open_to_all.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        send(receiver.url, open_to_all)
        hook = Webhook(ApprovalsConfig(webhook_url=receiver.url, webhook_secret="hook"), lambda _: (), lambda: NOW)
        hook.announce(APPROVAL)
        asyncio.run(hook.close())
    # a receiver of another test may still be missed by its own webhook
    said = [record for record in caplog.records if "could not be notified" not in record.getMessage()]
    assert (receiver.got, len(said)) == ([], 2)


def test_a_secret_is_taken_from_those_that_are_known_by_name(receiver):
    config = ApprovalsConfig(webhook_url=receiver.url, webhook_secret="hook")
    hook = Webhook(config, lambda _: [("other", b"x" * 16), ("hook", SECRET)], lambda: NOW)
    hook.announce(APPROVAL)
    asyncio.run(hook.close())
    ((signature, body),) = receiver.got
    assert signature == sign(body, SECRET, NOW // 1000)


@pytest.mark.parametrize("content", [b"short", b"x" * 5000])
def test_a_secret_is_neither_short_nor_endless(tmp_path, content):
    path = tmp_path / "secret"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ValueError, match="16 to"):
        read_secret(str(path))
