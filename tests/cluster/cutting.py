"""A way to PostgreSQL that can be cut in the worst moment: between a commit and its answer, or before it arrives."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Cut:
    """What becomes of the next `COMMIT`: "" goes on; "answer": it is done, and nobody hears so; "commit": it never
    arrives."""

    url: str
    next: str = ""
    cuts: list[str] = field(default_factory=list)

    def judge(self, sent: bytes) -> str:
        if not self.next or b"COMMIT" not in sent:
            return ""
        self.cuts.append(self.next)
        self.next = ""
        return self.cuts[-1]


@contextmanager
def cutting(folder: Path, server: Path, rest: str) -> Iterator[Cut]:
    """Listens in `folder` for the server whose socket is in `server`; `rest` is the rest of its address."""
    cut = Cut(f"host={folder} {rest}")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / ".s.PGSQL.5432"))
    listening.listen()
    open_ones: list[socket.socket] = [listening]

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listening.accept()
                there = socket.socket(socket.AF_UNIX)
                open_ones.extend((client, there))
                there.connect(str(server / ".s.PGSQL.5432"))
                threading.Thread(target=_carry, args=(client, there, cut), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield cut
    finally:
        for one in open_ones:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _carry(client: socket.socket, there: socket.socket, cut: Cut) -> None:
    with contextlib.suppress(OSError), client, there:
        while True:
            for ready in select.select([client, there], [], [])[0]:
                data = ready.recv(1 << 16)
                if not data:
                    return
                if ready is client and (what := cut.judge(data)):
                    if what == "answer":
                        there.sendall(data)
                        _hear_and_say_nothing(client, there)
                    return
                (there if ready is client else client).sendall(data)


def _hear_and_say_nothing(client: socket.socket, there: socket.socket) -> None:
    """Until the server has answered: what asks it to do so may come behind the `COMMIT`."""
    while there not in select.select([client, there], [], [])[0]:
        there.sendall(client.recv(1 << 16))
    there.recv(1 << 16)
