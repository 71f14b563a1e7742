"""The first messages of both sides, passed on one by one until the protocol is certain.

Rules: a client's first message leaves whole, and nothing behind it until the host's first bytes are of the same
protocol (egress/protocols). A host's bytes go to the client only once they are known. A TLS hello inside PostgreSQL or
MySQL is the next thing that is read; the host has shown by then which of them it speaks.

Not here: the table (egress/protocols), TLS hellos (egress/hello), what follows (egress/conversation).
"""

from __future__ import annotations

import re
from enum import StrEnum

from palyra.egress import events as ev
from palyra.egress.events import Timer
from palyra.egress.grammar import Target, parse_authority
from palyra.egress.outbox import Outbox
from palyra.egress.protocols import (
    KNOWN,
    MAX_LINE,
    REDIS_PROBE,
    WEB_PORTS,
    Opening,
    Protocol,
    UnknownProtocol,
    is_answered,
    read_greeting,
    read_opening,
)
from palyra.egress.terms import Broken, Refused, Terms
from palyra.model.net import RAW
from palyra.values import dataclass

GIT_PORT = 9418
_TEXT = re.compile(rb"[A-Za-z-]{1,40} ")


class Next(StrEnum):
    WAIT = "wait"
    """For more bytes of either side."""
    HELLO = "hello"
    """A TLS hello follows, or stands in the inbox."""
    HTTP = "http"
    RELAY = "relay"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Which sides have ended, and whether there is a host yet."""

    client: bool
    upstream: bool
    is_open: bool


class FirstMessages:
    def __init__(self, terms: Terms, target: Target, out: Outbox) -> None:
        self._terms = terms
        self._target = target
        self._out = out
        self.greeted: Protocol | None = None
        """The protocol that the host has shown before its client's first message."""
        self._sent: Opening | None = None
        """The client's first message, which waits for its answer."""

    def advance(self, inbox: bytearray, answer: bytearray, ends: Ends) -> Next:
        """Raises `Refused` for what is not in the table, and `Broken` for a host that speaks out of turn."""
        try:
            if self._sent is not None:
                return self._hear_answer(inbox, answer, ends)
            if answer and self.greeted is None and not self._is_greeted(answer):
                return Next.END if ends.upstream else Next.WAIT
            return Next.END if ends.upstream else self._read_client(inbox, answer, ends)
        except UnknownProtocol as unknown:
            raise self._refusal(unknown) from None

    def _is_greeted(self, answer: bytearray) -> bool:
        if self._target.port in WEB_PORTS:
            raise Broken("the host sent data before it was asked")
        self.greeted = read_greeting(bytes(answer[:16]))
        if self.greeted is not None:
            self._tell(answer)
        return self.greeted is not None

    def _read_client(self, inbox: bytearray, answer: bytearray, ends: Ends) -> Next:
        may_greet = ends.is_open and self.greeted is None
        if not inbox:
            return Next.END if ends.client and not may_greet else Next.WAIT
        opening = read_opening(bytes(inbox[:MAX_LINE]), self._target.port, self.greeted)
        if opening is None:
            self._out.start(Timer.HEAD)
            return Next.END if ends.client else Next.WAIT
        self._out.stop(Timer.HEAD)
        match opening.protocol:
            case Protocol.TLS:
                return Next.HELLO
            case Protocol.HTTP:
                return Next.HTTP
            case Protocol.REDIS:
                self._out.put(ev.SendUpstream(REDIS_PROBE))
            case _:
                self._pass_on(opening, inbox)
        if opening.protocol is Protocol.MYSQL and opening.asks_tls:
            return Next.HELLO
        if opening.protocol in (Protocol.MYSQL, Protocol.SSH) and self.greeted is not None:
            return Next.RELAY
        self._sent = opening
        return self._hear_answer(inbox, answer, ends)

    def _pass_on(self, opening: Opening, inbox: bytearray) -> None:
        if opening.named:
            named = parse_authority(opening.named, default_port=GIT_PORT)
            if not self._terms.may_name(self._target, named):
                raise Refused(named, f"git names {named}, the connection was made to {self._target}")
        self._out.put(ev.SendUpstream(bytes(inbox[: opening.length])))
        del inbox[: opening.length]

    def _hear_answer(self, inbox: bytearray, answer: bytearray, ends: Ends) -> Next:
        assert self._sent is not None
        protocol, said = self._sent.protocol, bytes(answer)
        if self._sent.asks_tls and said in (b"S", b"N"):
            return self._hear_of_tls(said, inbox, answer, ends)
        is_one = (self._sent.asks_tls and said == b"G") or is_answered(protocol, said)
        if is_one is False:
            raise Refused(self._target, f"the host does not answer as {protocol} does")
        end = said.find(b"\r\n") + 2 if protocol is Protocol.REDIS else 0
        if not is_one or end == 1:
            return Next.END if ends.upstream else Next.WAIT
        del answer[:end]  # the answer to our own PING
        return Next.RELAY

    def _hear_of_tls(self, said: bytes, inbox: bytearray, answer: bytearray, ends: Ends) -> Next:
        """PostgreSQL's one byte: TLS, or not. `G` is GSSAPI, which names no host."""
        self._tell(answer)
        self.greeted, self._sent = Protocol.POSTGRESQL, None
        return Next.HELLO if said == b"S" else self._read_client(inbox, answer, ends)

    def _tell(self, answer: bytearray) -> None:
        self._out.put(ev.SendClient(bytes(answer)))
        answer.clear()

    def _refusal(self, unknown: UnknownProtocol) -> Refused:
        known = "TLS and HTTP" if self._target.port in WEB_PORTS else KNOWN
        why = f"on port {self._target.port} only {known} may pass: {unknown}"
        told = f"{why}. An operator lets all bytes pass with --allow-raw {self._target}"
        return Refused(self._target, why, told=told, grants=(f"{self._target} {RAW}",))


def is_text(data: bytes | bytearray) -> bool:
    """Whether a client that begins so reads an answer in HTTP's form, or shows it as text."""
    return _TEXT.match(data) is not None
