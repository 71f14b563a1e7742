"""deploy/nginx.conf as it is written, with a place, a certificate and an upstream of its own, and a daemon behind."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.certificates import make_certificate
from tests.command_line import Cli
from tests.serving import Served, serving

NGINX = os.environ.get("PALYRA_TEST_NGINX", "")
NAME = "palyra.example"
PATIENCE_S = 30.0
AROUND = """\
{user}daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
worker_processes 1;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxied;
    fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
{given}
}}
"""


class _Line(http.client.HTTPSConnection):
    """To our port, whatever name is asked for."""

    def __init__(self, port: int, context: ssl.SSLContext, name: str) -> None:
        super().__init__(name, port, timeout=PATIENCE_S, context=context)
        self._given = context

    def connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        self.sock = self._given.wrap_socket(plain, server_hostname=self.host)


class Proxied:
    def __init__(self, port: int, context: ssl.SSLContext, daemon: Served, folder: Path) -> None:
        self.port, self.context, self.daemon, self.folder = port, context, daemon, folder

    @property
    def origin(self) -> str:
        return f"https://{NAME}:{self.port}"

    def line(self, name: str = NAME) -> http.client.HTTPSConnection:
        return _Line(self.port, self.context, name)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        line = self.line()
        with contextlib.closing(line):
            line.request(method, path, body=body, headers=headers or {})
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read()

    def call(self, token: str, body: dict[str, Any], **headers: str) -> tuple[int, Any]:
        given = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", **headers}
        status, _, text = self.ask("POST", "/v1/calls", json.dumps(body).encode(), given)
        return status, json.loads(text)

    def form(self, path: str, fields: dict[str, str], **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": self.origin}
        return self.ask("POST", path, urlencode(fields).encode(), {**kind, **headers})


def written(conf: Path, folder: Path, *, port: int, upstream: int) -> Path:
    """The example, with what everybody has to change in it changed."""
    text = conf.read_text()
    for was, becomes in (
        ("server 127.0.0.1:7142;", f"server 127.0.0.1:{upstream};"),
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("/etc/ssl/palyra.example/", f"{folder}/"),
    ):
        assert was in text, was
        text = text.replace(was, becomes)
    user = "user root;\n" if os.geteuid() == 0 else ""  # pytest's folders are closed to others
    file = folder / "nginx.conf"
    file.write_text(AROUND.format(user=user, folder=folder, given=text))
    return file


@contextlib.contextmanager
def proxied(cli: Cli, conf: Path, folder: Path) -> Iterator[Proxied]:
    certificate, key = make_certificate(NAME)
    (folder / "fullchain.pem").write_bytes(certificate)
    (folder / "privkey.pem").write_bytes(key)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(cli) as daemon:
        argv = [
            NGINX,
            "-p",
            folder,
            "-e",
            folder / "early.log",
            "-c",
            written(conf, folder, port=port, upstream=daemon.port),
        ]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            _await(process, port)
            yield Proxied(port, ssl.create_default_context(cadata=certificate.decode()), daemon, folder)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise AssertionError(process.communicate()[0].decode())
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.05)
    raise AssertionError("nginx does not listen")
