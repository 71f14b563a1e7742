"""A real daemon for a test: its own process, home and sockets; ended by its own id, whatever became of the test."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.command_line import Cli

START_S = 30.0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(60)
        self.sock.connect(str(self._path))


class Served:
    """One daemon under way."""

    def __init__(self, process: subprocess.Popen[bytes], listening: list[str]) -> None:
        self.process = process
        self.listening = listening
        self.host, port = listening[0].split("//")[1].rsplit(":", 1)
        self.port = int(port)
        self.socket = Path(listening[1].removeprefix("unix:"))

    def ask(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, unix: bool = False
    ) -> tuple[int, Any]:
        line = UnixConnection(self.socket) if unix else http.client.HTTPConnection(self.host, self.port, timeout=60)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        with contextlib.closing(line):
            line.request(method, path, body=data, headers=headers)
            answer = line.getresponse()
            text = answer.read()
        return answer.status, json.loads(text) if text[:1] in b"{[" and text else text

    def connect(self) -> socket.socket:
        return socket.create_connection((self.host, self.port), timeout=60)

    def end(self, number: int = signal.SIGTERM, *, within_s: float = 30) -> tuple[int, bytes]:
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=within_s)
        return self.process.returncode, log


@contextlib.contextmanager
def serving(cli: Cli, *words: str) -> Iterator[Served]:
    process = subprocess.Popen(
        [*cli.argv, "--json", "serve", "--port", "0", *words],
        cwd=cli.workspace,
        env=cli.environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate(timeout=START_S))
        yield Served(process, json.loads(line)["listening"])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=START_S)


def make_token(cli: Cli, principal: str = "agent:one", *words: str) -> str:
    done = cli("--json", "token", "create", "--principal", principal, *words)
    assert done.returncode == 0, done.stderr
    token: str = json.loads(done.stdout)["token"]
    return token
