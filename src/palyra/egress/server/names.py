"""The name server inside the sandbox: DNS over UDP, and over TCP for whoever insists. Nothing it is asked leaves.

Rules: bounded in questions, and over TCP in connections and time; nothing is looked up outside. A name that is not
granted is in the records once, however often it is asked for: its connection never comes, so this is its only trace.

Not here: the answers (egress/dns), addresses of names (egress/names).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

from palyra.egress import events as ev
from palyra.egress.dns import Answer, DnsStream, answer
from palyra.egress.grammar import Malformed, parse_name, show
from palyra.egress.names import NameTable
from palyra.model.face import DNS_PORT

_AT_ONCE = 64
_MAX_QUESTIONS = 100_000
"""Then it is silent. Each costs us some microseconds and a program that asks so many is no program's."""
_MAX_KNOWN = 1024
_MAX_STREAMS = 32
_STREAM_S = 10.0
_MESSAGE_BYTES = 4096


class NameServer:
    def __init__(self, names: NameTable, record: Callable[[ev.Ruled], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._names = names
        self._record = record
        self._questions = 0
        self._refused: set[str] = set()
        self._streams: dict[socket.socket, asyncio.TimerHandle] = {}

    def answer(self, sock: socket.socket) -> None:
        """Every datagram that waits, a bounded number at a time."""
        for _ in range(_AT_ONCE):
            try:
                query, peer = sock.recvfrom(_MESSAGE_BYTES + 1)
            except OSError:
                return
            if not self._may_ask():
                self._loop.remove_reader(sock)  # what it still asks is dropped by the kernel, at no cost to us
                return
            said = answer(query, self._names)
            self._note(said)
            if said.reply:
                with contextlib.suppress(OSError):  # whoever asked is gone, or does not read
                    sock.sendto(said.reply, peer)

    def open(self, sock: socket.socket) -> None:
        """One TCP connection to the name server."""
        if len(self._streams) >= _MAX_STREAMS:
            sock.close()
            return
        self._streams[sock] = self._loop.call_later(_STREAM_S, self._close, sock)
        self._loop.add_reader(sock, self._read, sock, DnsStream(self._names))

    def close(self) -> None:
        for sock in tuple(self._streams):
            self._close(sock)

    def _read(self, sock: socket.socket, stream: DnsStream) -> None:
        """Answers are small: a peer that does not read them is not waited for."""
        try:
            data = sock.recv(_MESSAGE_BYTES)
            answers = stream.receive(data) if data else ()
            for said in answers:
                self._note(said)
                if not self._may_ask() or sock.send(said.reply) != len(said.reply):
                    self._close(sock)
                    return
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or stream.is_over:
            self._close(sock)

    def _close(self, sock: socket.socket) -> None:
        self._streams.pop(sock).cancel()
        self._loop.remove_reader(sock)
        sock.close()

    def _may_ask(self) -> bool:
        self._questions += 1
        return self._questions <= _MAX_QUESTIONS

    def _note(self, said: Answer) -> None:
        if not said.name or said.is_granted or said.name in self._refused:
            return
        if len(self._refused) < _MAX_KNOWN:
            self._refused.add(said.name)
        self._record(
            ev.Ruled(
                host=show(said.name), port=DNS_PORT, ruling=ev.Ruling.REFUSED, why=said.why, grants=_advice(said.name)
            )
        )


def _advice(name: str) -> tuple[str, ...]:
    """The pattern that grants one host. A label may hold any letter: `*.test`, `10.0.0.0/8` and `a.test:22 raw` would
    be advised as the wide grants they look like, and `x;id|sh` stand in a command that an operator copies."""
    try:
        return (parse_name(name),)
    except Malformed:
        return ()
