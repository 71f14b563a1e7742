"""A name server that knows the granted names and asks nobody: what it cannot answer, it refuses.

Rules: one question a message, read strictly and without compression, so there is nothing to follow in circles. A of a
granted name has its synthetic address; AAAA and other kinds have an empty answer, which tells a program to go on with
A; any other name does not exist. A malformed message is refused by its id alone, one too short to have an id or one
that is itself an answer is dropped. No question ever leaves the host: a name is no way to send anything out.

Not here: sockets (egress/server), which names have which address (egress/names).
"""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from palyra.egress.names import NameTable
from palyra.values import dataclass

HEADER = 12
MAX_UDP = 4096
MAX_TCP = 4096
TTL_S = 60
_A, _ANY, _OPT, _IN = 1, 255, 41, 1
_NOERROR, _NXDOMAIN, _REFUSED = 0, 3, 5
_ANSWER, _AUTHORITATIVE, _RECURSION_DESIRED, _RECURSION_AVAILABLE = 0x8000, 0x0400, 0x0100, 0x0080
_OUR_OPT = struct.pack(">BHHIH", 0, _OPT, 1232, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    reply: bytes
    """Empty: say nothing."""
    name: str = ""
    """What was asked for; empty for what is no question."""
    is_granted: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    raw: bytes
    name: str
    kind: int
    has_opt: bool


class _Malformed(ValueError):
    pass


def answer(query: bytes, names: NameTable) -> Answer:
    """Of one message, as UDP carries it. Never raises."""
    if len(query) < HEADER or query[2] & 0x80:
        return Answer(reply=b"", why="this is not a question")
    try:
        question = _parse(query)
    except _Malformed as bad:
        return Answer(reply=_header(query, _REFUSED), why=str(bad))
    address = names.address_of(question.name)
    if address is None and names.grants(question.name):
        # Granted, and every spare address is taken: only the proxy can still lead there.
        return Answer(
            reply=_reply(query, question, _REFUSED, None),
            name=question.name,
            why="no local address is left for it",
        )
    if address is None:
        return Answer(
            reply=_reply(query, question, _NXDOMAIN, None), name=question.name, why="it is not among the granted hosts"
        )
    shown = address if question.kind in (_A, _ANY) else None
    return Answer(reply=_reply(query, question, _NOERROR, shown), name=question.name, is_granted=True)


class DnsStream:
    """Messages with their length before them, as TCP carries them."""

    def __init__(self, names: NameTable) -> None:
        self._names = names
        self._buffer = bytearray()
        self.is_over = False
        """Something that is no message came: close the connection."""

    def receive(self, data: bytes) -> tuple[Answer, ...]:
        """The answers to what is whole now; each reply has its length before it."""
        self._buffer += data
        answers: list[Answer] = []
        while not self.is_over and len(self._buffer) >= 2:
            length = int.from_bytes(self._buffer[:2], "big")
            if not HEADER <= length <= MAX_TCP:
                self.is_over = True
                break
            if len(self._buffer) < 2 + length:
                break
            one = answer(bytes(self._buffer[2 : 2 + length]), self._names)
            del self._buffer[: 2 + length]
            if not one.reply:
                self.is_over = True
                break
            framed = len(one.reply).to_bytes(2, "big") + one.reply
            answers.append(Answer(reply=framed, name=one.name, is_granted=one.is_granted, why=one.why))
        if self.is_over:
            self._buffer.clear()
        return tuple(answers)


def _parse(query: bytes) -> _Question:
    _, flags, questions, answers, authorities, additional = struct.unpack_from(">6H", query)
    if len(query) > MAX_UDP or flags & 0x7A0F or (questions, answers, authorities) != (1, 0, 0) or additional > 1:
        # Opcode, truncation, answer code: all zero in a question. AD and CD may be set.
        raise _Malformed("the DNS message is not one plain question")
    name, at = _read_name(query, HEADER)
    if len(query) < at + 4:
        raise _Malformed("the DNS question is cut off")
    kind, family = struct.unpack_from(">2H", query, at)
    end = at + 4
    if family != _IN:
        raise _Malformed("the DNS question is not about the internet")
    if additional:
        end = _skip_opt(query, end)
    if end != len(query):
        raise _Malformed("something follows the DNS question")
    return _Question(raw=query[HEADER : at + 4], name=name, kind=kind, has_opt=bool(additional))


def _read_name(query: bytes, at: int) -> tuple[str, int]:
    labels: list[str] = []
    start = at
    while True:
        length = query[at] if at < len(query) else 255
        if length == 0:
            return ".".join(labels), at + 1
        label = query[at + 1 : at + 1 + length]
        # A length above 63 is a pointer or a kind of label nobody uses; a question needs neither.
        if length > 63 or len(label) != length or at + 1 + length - start > 254:
            raise _Malformed("the name in the DNS question is malformed")
        if b"." in label or not label.isascii():
            raise _Malformed("the name in the DNS question has a dot or a foreign letter inside a label")
        labels.append(label.decode("ascii"))
        at += 1 + length


def _skip_opt(query: bytes, at: int) -> int:
    if len(query) < at + 11:
        raise _Malformed("the additional record of the DNS question is cut off")
    end = at + 11 + int.from_bytes(query[at + 9 : at + 11], "big")
    if query[at : at + 3] != bytes((0, 0, _OPT)) or len(query) < end:
        raise _Malformed("the additional record of the DNS question is not EDNS")
    return end


def _header(query: bytes, code: int, *, questions: int = 0, answers: int = 0, additional: int = 0) -> bytes:
    asked = int.from_bytes(query[2:4], "big") & (0x7800 | _RECURSION_DESIRED)
    flags = _ANSWER | _AUTHORITATIVE | _RECURSION_AVAILABLE | asked | code
    return query[:2] + struct.pack(">5H", flags, questions, answers, 0, additional)


def _reply(query: bytes, question: _Question, code: int, address: IPv4Address | None) -> bytes:
    header = _header(query, code, questions=1, answers=int(address is not None), additional=int(question.has_opt))
    record = b"" if address is None else struct.pack(">HHHIH", 0xC000 | HEADER, _A, _IN, TTL_S, 4) + address.packed
    return header + question.raw + record + (_OUR_OPT if question.has_opt else b"")
