"""HTTP/1.1 to a daemon, over TCP, TLS or its Unix socket; as much of it as the daemon speaks, and quick to import.

Rules: one request at a time on a line; a line is used again while both ends keep it; what the daemon sends is bounded
where it is read whole. Nothing here knows what is asked (client/remote).
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from palyra.errors import PalyraError
from palyra.wiring.peers import is_believed, is_beside_us

MAX_HEAD_BYTES = 65_536
MAX_ANSWER_BYTES = 256 << 20
CONNECT_S = 10.0
_CHUNK = 65_536


class Unreachable(PalyraError):
    """No daemon answered there, or it went away midway."""

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.advise(hint)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a daemon listens."""

    path: str = ""
    """Of its Unix socket."""
    host: str = ""
    port: int = 0
    tls: bool = False

    @property
    def host_header(self) -> str:
        if self.path:
            return "localhost"
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"{name}:{self.port}"


def parse_place(text: str) -> Place:
    """`http://HOST:PORT`, `https://…`, `unix:PATH` or a path."""
    if text.startswith(("http://", "https://")):
        from urllib.parse import urlsplit

        parts = urlsplit(text)
        tls = parts.scheme == "https"
        if not parts.hostname or parts.username is not None:
            raise PalyraError(f"{text!r} is not the address of a daemon.")
        return Place(host=parts.hostname, port=parts.port or (443 if tls else 80), tls=tls)
    path = text.removeprefix("unix:")
    if not path.startswith("/"):
        raise PalyraError(f"{text!r} is neither http://HOST:PORT nor unix:/PATH.")
    return Place(path=path)


class Reply:
    """One answer: its status, and its body whole or as it comes."""

    def __init__(self, line: Line, status: int, headers: Mapping[str, str]) -> None:
        self._line = line
        self.status = status
        self.headers = headers

    def read(self) -> bytes:
        parts, size = [], 0
        for part in self.parts():
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                self._line.close()
                raise Unreachable("The daemon's answer is too large.")
            parts.append(part)
        return b"".join(parts)

    def parts(self) -> Iterator[bytes]:
        line, headers = self._line, self.headers
        if headers.get("transfer-encoding", "").lower() == "chunked":
            yield from line.read_chunked()
        else:
            yield from line.read_exactly(int(headers.get("content-length", "0")))
        if headers.get("connection", "").lower() == "close":
            line.close()

    def lines(self) -> Iterator[bytes]:
        """The body's lines, without their ends."""
        rest = b""
        for part in self.parts():
            *whole, rest = (rest + part).split(b"\n")
            yield from whole
        if rest:
            yield rest


def _check_peer(sock: socket.socket, path: str) -> None:
    """Before the token or anything else is said."""
    if not is_believed(sock, path):
        who = "Another user" if is_beside_us(sock) else "A program in a sandbox"
        sock.close()
        raise Unreachable(
            f"{who} is listening at {path}, in a folder that is not the daemon's alone: "
            "put the daemon's socket in a folder of its own, or use its address and a token where it is in a container."
        )


class Line:
    """One connection. Opened when it is first used."""

    def __init__(self, place: Place, *, ca_file: str | None = None) -> None:
        self._place = place
        self._ca_file = ca_file
        self._sock: socket.socket | None = None
        self._buffer = b""

    @property
    def is_open(self) -> bool:
        return self._sock is not None

    def open(self) -> None:
        place = self._place
        try:
            if place.path:
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                sock.settimeout(CONNECT_S)
                sock.connect(place.path)
                _check_peer(sock, place.path)
            else:
                sock = socket.create_connection((place.host, place.port), timeout=CONNECT_S)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if place.tls:
                    import ssl

                    context = ssl.create_default_context(cafile=self._ca_file)
                    sock = context.wrap_socket(sock, server_hostname=place.host)
            sock.settimeout(None)
        except OSError as error:
            raise Unreachable(
                f"No daemon answers at {place.path or place.host_header}: {error.strerror or error}.",
                "Start one with palyra serve, and name the address it prints.",
            ) from error
        self._sock, self._buffer = sock, b""

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        body: bytes | None = None,
        chunks: Iterable[bytes] | None = None,
    ) -> Reply:
        """`chunks`: a body of unknown length, sent as it comes."""
        if not path.isascii() or not path.isprintable() or " " in path:  # an id with a line end would be a request more
            raise PalyraError(f"{path!r} is not a path of the daemon.")
        if self._sock is None:
            self.open()
        sent = {"Host": self._place.host_header, **headers}
        if chunks is not None:
            sent["Transfer-Encoding"] = "chunked"
        else:
            sent["Content-Length"] = str(len(body or b""))
        head = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        try:
            self._send(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + (body or b""))
            for chunk in chunks or ():
                self._send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            if chunks is not None:
                self._send(b"0\r\n\r\n")
            return self._answer()
        except (OSError, ValueError) as error:
            self.close()
            raise Unreachable(f"The daemon went away: {getattr(error, 'strerror', None) or error}.") from error

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def _send(self, data: bytes) -> None:
        assert self._sock is not None, "opened above"
        self._sock.sendall(data)

    def _more(self) -> bytes:
        if self._sock is None:
            raise Unreachable("The connection to the daemon is closed.")
        try:
            data = self._sock.recv(_CHUNK)
        except OSError as error:
            self.close()
            raise Unreachable(f"The daemon went away: {error.strerror or error}.") from error
        if not data:
            self.close()
            raise Unreachable("The daemon went away.")
        return data

    def _answer(self) -> Reply:
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise ValueError("its headers are too large")
            self._buffer += self._more()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        first, *rest = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ", 2)[1])
        if status == 100:
            return self._answer()
        pairs = (line.partition(":") for line in rest)
        return Reply(self, status, {name.strip().lower(): value.strip() for name, _, value in pairs})

    def read_exactly(self, count: int) -> Iterator[bytes]:
        while count > 0:
            if not self._buffer:
                self._buffer = self._more()
            part, self._buffer = self._buffer[:count], self._buffer[count:]
            count -= len(part)
            yield part

    def read_chunked(self) -> Iterator[bytes]:
        while True:
            while b"\r\n" not in self._buffer:
                self._buffer += self._more()
            size, self._buffer = self._buffer.split(b"\r\n", 1)
            count = int(size.split(b";")[0], 16)
            yield from self.read_exactly(count)
            for _ in self.read_exactly(2):  # the line's end after each chunk, and after the last
                pass
            if count == 0:
                return
