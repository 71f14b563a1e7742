"""Touches: one address of the operator's. Tells it of each new approval request, signed, off the call's path.

Rules: it never blocks, fails or delays a call; at most TRIES attempts each, at most WAITING in the queue, and a few
seconds at the end of the process; redirects are not followed; nothing is sent unsigned. The body names who asks for
which tool and program, and where to look: no argument, no environment, no input, so no secret of the call.

Signature: `Palyra-Signature: t=UNIX_SECONDS,v1=HEX`, HMAC-SHA256 over `t.body` (docs/spec/approvals.md).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import queue
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import orjson

from palyra.config.schema import ApprovalsConfig
from palyra.model.approval import Approval

log = logging.getLogger("palyra.webhook")

TRIES = 3
WAITING = 1000
TIMEOUT_S = 5.0
FIRST_PAUSE_S = 0.2
FINISH_S = 3.0
MAX_SECRET_BYTES = 4096
HEADER = "Palyra-Signature"


class Webhook:
    """`announce` from any thread; the sending thread is started by the first one."""

    def __init__(
        self,
        config: ApprovalsConfig,
        known_values: Callable[[str], Sequence[tuple[str, bytes]]],
        now_unix_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._known_values = known_values
        self._now = now_unix_ms
        self._queue: queue.Queue[bytes | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None
        self._secret = b""
        self._closing = threading.Event()
        self._given_up = False

    def announce(self, approval: Approval) -> None:
        if not self._config.webhook_url:
            return
        try:
            if self._thread is None:
                self._secret = self._find_secret(approval.run_id)
                self._thread = threading.Thread(target=self._send_all, name="palyra-webhook", daemon=True)
                self._thread.start()
            self._queue.put_nowait(message(approval, self._config.console_url))
        except (OSError, ValueError, queue.Full) as error:
            log.warning("the webhook was not notified of approval %s: %s", approval.approval_id, error)

    async def close(self) -> None:
        """What is queued gets a last moment; a receiver that hangs does not hold the process."""
        if self._thread is not None:
            self._closing.set()
            with suppress(queue.Full):  # then what is in it is too much to be sent in time
                self._queue.put_nowait(None)
            await asyncio.to_thread(self._thread.join, FINISH_S)
            self._given_up = True

    def _find_secret(self, run_id: str) -> bytes:
        if self._config.webhook_secret_file:
            return read_secret(self._config.webhook_secret_file)
        name = self._config.webhook_secret
        found = next((value for known, value in self._known_values(run_id) if known == name), b"")
        if not name or not found:
            raise ValueError("webhook_secret names an unknown secret; nothing is sent unsigned")
        return found

    def _send_all(self) -> None:
        while (body := self._queue.get()) is not None and not self._given_up:
            self._send(body)

    def _send(self, body: bytes) -> None:
        from http.client import HTTPException  # only who has a webhook pays for it

        pause_s, why = FIRST_PAUSE_S, ""
        for attempt in range(TRIES):
            if attempt:
                self._closing.wait(pause_s)
                pause_s *= 4
            if self._given_up:
                return
            try:
                status = post(self._config.webhook_url, body, self._secret, at_unix_s=self._now() // 1000)
            except (OSError, HTTPException, ValueError) as error:
                why = str(error)
                continue
            if 200 <= status < 300:
                return
            why = f"it answered {status}"
        log.warning("the webhook could not be notified: %s", why)


def message(approval: Approval, console_url: str) -> bytes:
    base = console_url.rstrip("/")
    return orjson.dumps(
        {
            "type": "approval.requested",
            "approval_id": approval.approval_id,
            "principal": approval.principal,
            "tool": approval.tool,
            "program": approval.program,
            "run_id": approval.run_id,
            "call_id": approval.call_id,
            "asked_at_unix_ms": approval.asked_unix_ms,
            "expires_at_unix_ms": approval.expires_unix_ms,
            "url": f"{base}/approvals/{approval.approval_id}" if base else None,
        }
    )


def sign(body: bytes, secret: bytes, at_unix_s: int) -> str:
    mac = hmac.digest(secret, str(at_unix_s).encode() + b"." + body, "sha256").hex()
    return f"t={at_unix_s},v1={mac}"


def post(url: str, body: bytes, secret: bytes, *, at_unix_s: int) -> int:
    """One attempt; the status it was answered with."""
    from http.client import HTTPConnection, HTTPSConnection

    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = {"Content-Type": "application/json", HEADER: sign(body, secret, at_unix_s)}
    try:
        connection.request("POST", target, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def read_secret(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid not in (0, os.geteuid()) or found.st_mode & 0o077:
            raise ValueError(f"{path} must be a file that only its owner may read: chmod 600 '{path}'")
        secret = file.read(MAX_SECRET_BYTES + 1).strip()
    if not 16 <= len(secret) <= MAX_SECRET_BYTES:
        raise ValueError(f"{path} must hold a secret of 16 to {MAX_SECRET_BYTES} bytes")
    return secret
