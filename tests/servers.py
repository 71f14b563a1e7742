"""Servers of the host's loopback for egress tests: a web server, one that echoes, one that never answers.

Each runs in threads of the test's own process and counts who came. Names are given to them by the egress server's own
table, so nothing here or there asks a real name server.
"""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BIG_BYTES = 8 << 20


@dataclass
class Seen:
    """What reached a server."""

    port: int
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    """(method, path, headers with lower-case names)."""
    connections: int = 0


@contextmanager
def web(folder: Path | None = None, *, address: str = "127.0.0.1") -> Iterator[Seen]:
    """/ says hello, /big is 8 MiB, /to?URL redirects; everything else is a file of `folder`."""
    server, seen = make_web_server(folder, address)
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield seen
        server.shutdown()
        thread.join()


def make_web_server(folder: Path | None, address: str = "127.0.0.1") -> tuple[http.server.HTTPServer, Seen]:
    seen = Seen(0)

    class Handler(http.server.SimpleHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, directory=str(folder or "/nonexistent"), **kwargs)

        def setup(self) -> None:
            seen.connections += 1
            super().setup()

        def _noted(self) -> None:
            seen.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))

        def do_GET(self) -> None:
            self._noted()
            if self.path == "/":
                self._say(200, b"hello from the granted host\n")
            elif self.path == "/big":
                self._say(200, bytes(BIG_BYTES))
            elif self.path.startswith("/to?"):
                self._say(302, b"", ("Location", self.path[4:]))
            else:
                super().do_GET()

        def do_POST(self) -> None:
            self._noted()
            length = int(self.headers.get("Content-Length", "0"))
            self._say(200, b"%d bytes\n" % len(self.rfile.read(length)))

        def _say(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            for name, value in (("Content-Length", str(len(body))), *headers):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Tests are quiet."""

    class Server(http.server.ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        daemon_threads = True
        request_queue_size = 1024

        def handle_error(self, *args: Any) -> None:
            """A program that is killed leaves in the middle of a sentence."""

    server = Server((address, 0), Handler)
    seen.port = server.server_address[1]
    return server, seen


@contextmanager
def tcp(*, greeting: bytes = b"", answers: bool = True) -> Iterator[Seen]:
    """Echoes what it hears, after a greeting; or accepts and says nothing for ever."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    seen = Seen(listener.getsockname()[1])
    held: list[socket.socket] = []

    def talk(peer: socket.socket) -> None:
        with peer:
            try:
                peer.sendall(greeting)
                while data := peer.recv(65536):
                    peer.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            seen.connections += 1
            if answers:
                threading.Thread(target=talk, args=(peer,), daemon=True).start()
            else:
                held.append(peer)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()
        for peer in held:
            peer.close()
