"""One accepted connection, from its first byte to the moment it may be relayed unseen: events in, commands out.

The order of judgement, the same on every face:
 1. the host that is meant: the dialled address, CONNECT, SOCKS or an http:// address, in its one spelling;
 2. host and port are granted;
 3. the first bytes are of a protocol of the table (egress/protocols); TLS whose SNI, or HTTP whose Host, is that host;
 4. one look-up; every address of the answer may be reached; the first that connects is pinned.
On other ports than 80 and 443, 4 comes before 3, so that hosts that speak first can. Behind a client's first message
nothing more of it passes until the host's first bytes are of the same protocol. Where the grant says `raw`, 3 is left
out. Refusals are said in the client's own protocol, and each is a record.

Not here: sockets, clocks and limits (egress/server, egress/limits), the table of protocols (egress/protocols), HTTP
itself (egress/exchange), what a TLS hello may say (egress/hello).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from palyra.egress import events as ev
from palyra.egress import socks
from palyra.egress.events import Command, Event, Face, Ruling, Side, Timer
from palyra.egress.exchange import Exchange
from palyra.egress.first_messages import Ends, FirstMessages, Next, is_text
from palyra.egress.grammar import Malformed, Target
from palyra.egress.hello import HelloTalk
from palyra.egress.hosts import embedded
from palyra.egress.outbox import Outbox
from palyra.egress.protocols import WEB_PORTS
from palyra.egress.terms import Broken, Refused, Terms
from palyra.egress.voice import Voice, say_failed, say_refused
from palyra.egress.way import Way

READ_AHEAD = 65_536
"""Bytes of one side that are held while they wait for their turn."""
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Conversation:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._out = Outbox()
        self._step: Callable[[], bool] = self._wait
        self._voice = Voice.NONE
        self._inbox = bytearray()
        self._answer = bytearray()
        self._first: FirstMessages | None = None
        self._is_outer = True
        """The TLS hello is the connection's first message, and stands in no other protocol."""
        self._client_eof = self._upstream_eof = False
        self._is_open = self._is_over = self._is_handshaking = False
        self._target: Target | None = None
        self._way: Way | None = None
        self._exchange: Exchange | None = None
        self._hello = HelloTalk(terms)
        self._socks = socks.SocksTalk()

    def receive(self, event: Event) -> tuple[Command, ...]:
        """What to do now. Never raises for anything a peer can send."""
        if self._is_over:
            return ()
        try:
            self._take(event)
            while self._step():
                pass
        except Refused as refused:
            self._refuse(refused)
        except Malformed as bad:
            self._out.rule(self._target, Ruling.REFUSED, bad.why)
            self._say(bad.words or say_refused(self._voice, bad.why, status=bad.status))
        except Broken as broken:
            self._fail(broken)
        return self._out.take()

    def wants(self, side: Side) -> bool:
        """Whether bytes of this side should be read now."""
        if self._is_over or self._is_handshaking:
            return False
        if side is Side.CLIENT:
            return not self._client_eof and len(self._inbox) < READ_AHEAD
        return self._is_open and not self._upstream_eof and len(self._answer) < READ_AHEAD

    # ── what happened ──

    def _take(self, event: Event) -> None:
        match event:
            case ev.ClientOpened():
                self._begin(event)
            case ev.ClientData(data):
                self._inbox += data
            case ev.ClientEof():
                self._client_eof = True
            case ev.UpstreamData(data):
                self._hear(data)
            case ev.UpstreamEof():
                self._upstream_eof = True
                if self._exchange is not None:
                    self._exchange.hear_end()
            case ev.TimedOut(timer):
                self._time_out(timer)
            case ev.TlsStarted(side):
                self._take_tls(side)
            case ev.TlsFailed(side, why):
                self._voice = self._voice if side is Side.UPSTREAM else Voice.NONE
                raise Broken(f"TLS with the {'host' if side is Side.UPSTREAM else 'program'} failed: {why}")
            case ev.Resolved() | ev.ResolveFailed() | ev.UpstreamOpened() | ev.UpstreamFailed():
                self._take_way(event)
            case _:
                assert_never(event)

    def _take_way(self, event: ev.Resolved | ev.ResolveFailed | ev.UpstreamOpened | ev.UpstreamFailed) -> None:
        if self._way is None:
            return
        match event:
            case ev.Resolved(addresses):
                self._out.put(self._way.resolved(addresses))
            case ev.ResolveFailed(why):
                raise Broken(f"{self._way.target.host} could not be looked up: {why}")
            case ev.UpstreamFailed(why):
                self._out.put(self._way.failed(why))
            case ev.UpstreamOpened():
                way, self._way = self._way, None
                self._is_open, self._upstream_eof = True, False
                self._out.rule(way.target, Ruling.GRANTED, way.why)
                self._step = way.then

    def _hear(self, data: bytes) -> None:
        if self._exchange is None:
            self._answer += data
            return
        self._exchange.hear(data, self._out.commands)

    def _time_out(self, timer: Timer) -> None:
        self._out.rang(timer)
        if timer is Timer.HEAD:
            raise Malformed("the program took too long to say what it wants", status=408)

    # ── which host is meant ──

    def _begin(self, opened: ev.ClientOpened) -> None:
        if opened.face is Face.PROXY:
            self._out.start(Timer.HEAD)
            self._step = self._greeting
            return
        local = embedded(opened.local_address)
        self._target = Target(self._terms.names.name_of(local) or str(local), opened.local_port)
        Way.check(self._terms, self._target)
        then = self._next_step(self._target)
        if then == self._first_bytes and self._target.port in WEB_PORTS:
            self._step = then
        else:
            self._reach(self._target, then)

    def _next_step(self, target: Target) -> Callable[[], bool]:
        """What is done with the bytes of a connection to `target`, once one is meant."""
        if self._terms.is_raw(target):
            return self._relay
        self._first = FirstMessages(self._terms, target, self._out)
        if target.port in WEB_PORTS:
            self._out.start(Timer.HEAD)
        return self._first_bytes

    def _greeting(self) -> bool:
        if not self._inbox:
            return self._end_if(self._client_eof)
        if self._inbox[0] == 4:
            raise socks.refuse_socks4()
        if self._inbox[0] == 5:
            self._voice, self._step = Voice.SOCKS, self._socks_request
        else:
            self._speak_http(None, "http")
        return True

    def _socks_request(self) -> bool:
        self._target = self._socks.advance(self._inbox, self._out.commands)
        if self._target is None:
            return self._end_if(self._client_eof)
        self._out.stop(Timer.HEAD)
        self._reach(self._target, self._socks_opened)
        return True

    def _socks_opened(self) -> bool:
        self._out.put(ev.SendClient(socks.write_reply(socks.SUCCEEDED)))
        return self._tunnel()

    def _connect_opened(self) -> bool:
        self._out.put(ev.SendClient(ESTABLISHED))
        return self._tunnel()

    def _tunnel(self) -> bool:
        assert self._target is not None
        self._voice, self._exchange = Voice.NONE, None
        self._step = self._next_step(self._target)
        return True

    # ── the first bytes ──

    def _first_bytes(self) -> bool:
        assert self._first is not None
        ends = Ends(client=self._client_eof, upstream=self._upstream_eof, is_open=self._is_open)
        match self._first.advance(self._inbox, self._answer, ends):
            case Next.WAIT:
                return False
            case Next.END:
                return self._end_if(is_ended=True)
            case Next.RELAY:
                return self._relay()
            case Next.HTTP:
                self._speak_http(self._target, "http")
            case Next.HELLO:
                self._out.start(Timer.HEAD)
                self._voice, self._step = Voice.TLS, self._first_hello
                self._is_outer = self._first.greeted is None
        return True

    def _relay(self) -> bool:
        if self._answer:
            self._out.put(ev.SendClient(bytes(self._answer)))
            self._answer.clear()
        if self._inbox:
            self._out.put(ev.SendUpstream(bytes(self._inbox)))
        if self._client_eof:
            self._out.put(ev.HalfClose(Side.UPSTREAM))
        if self._upstream_eof:
            self._out.put(ev.HalfClose(Side.CLIENT))
        self._out.stop(*Timer)
        self._out.put(ev.Relay())
        self._is_over = True
        return False

    # ── TLS ──

    def _first_hello(self) -> bool:
        assert self._target is not None
        if not self._hello.is_judged(self._inbox, self._target, eof=self._client_eof, needs_name=self._is_outer):
            return False
        self._out.stop(Timer.HEAD)
        then = self._intercept if self._is_outer and self._terms.intercepts(self._target) else self._pass_hello
        if self._is_open:
            self._step = then
        else:
            self._reach(self._target, then)
        return True

    def _pass_hello(self) -> bool:
        self._out.put(ev.SendUpstream(self._hello.take(self._inbox)))
        self._step = self._hello_answered
        return True

    def _hello_answered(self) -> bool:
        again = self._hello.is_asked_again(self._answer)
        if again is None and not self._upstream_eof:
            return False
        if not again:
            return self._relay()
        self._out.start(Timer.HEAD)
        self._step = self._second_hello
        return True

    def _second_hello(self) -> bool:
        if self._answer:
            self._out.put(ev.SendClient(bytes(self._answer)))
            self._answer.clear()
        assert self._target is not None
        if not self._hello.is_judged(self._inbox, self._target, eof=self._client_eof, needs_name=self._is_outer):
            return self._end_if(self._upstream_eof)
        return self._relay()

    def _intercept(self) -> bool:
        assert self._target is not None
        self._is_handshaking, self._step = True, self._wait
        self._out.put(ev.StartTls(side=Side.UPSTREAM, host=self._target.host))
        return False

    def _take_tls(self, side: Side) -> None:
        assert self._target is not None
        if side is Side.UPSTREAM:
            self._out.put(ev.StartTls(side=Side.CLIENT, host=self._target.host, received=bytes(self._inbox)))
            self._inbox.clear()
            return
        self._is_handshaking = False
        self._speak_http(self._target, "https")

    # ── HTTP ──

    def _speak_http(self, target: Target | None, scheme: str) -> None:
        self._exchange = Exchange(self._terms, target=target, scheme=scheme)
        self._exchange.current = target if self._is_open else None
        self._voice, self._step = Voice.HTTP, self._http
        if self._answer:
            raise Broken("the host sent data before it was asked")

    def _http(self) -> bool:
        exchange = self._exchange
        assert exchange is not None
        if exchange.is_idle and self._inbox:
            self._out.start(Timer.HEAD)
        moved = exchange.advance(self._inbox, self._out.commands, eof=self._client_eof)
        if not exchange.is_idle:
            self._out.stop(Timer.HEAD)
        if exchange.upgraded:
            self._answer += exchange.rest
            return self._relay()
        if exchange.finished:
            return self._end_if(is_ended=True)
        wanted = exchange.tunnel or exchange.wanted
        if wanted is not None:
            self._drop_upstream()
            self._target = wanted
            self._reach(wanted, self._connect_opened if exchange.tunnel else self._http_opened)
            return True
        return moved

    def _http_opened(self) -> bool:
        assert self._exchange is not None
        self._exchange.connected(self._out.commands)
        self._step = self._http
        return True

    # ── the way to the host ──

    def _reach(self, target: Target, then: Callable[[], bool]) -> None:
        self._way = Way(self._terms, target, then)
        self._step = self._wait
        self._out.put(self._way.begin())

    def _drop_upstream(self) -> None:
        if self._is_open:
            self._out.put(ev.CloseUpstream())
        self._is_open = self._upstream_eof = False

    # ── the end ──

    def _wait(self) -> bool:
        return False

    def _end_if(self, is_ended: bool) -> bool:  # noqa: FBT001  # the name asks the question
        if is_ended:
            if self._target is not None and not self._is_open:
                self._out.rule(
                    self._target, Ruling.FAILED, "the program closed the connection without asking for anything"
                )
            self._close()
        return False

    def _refuse(self, refused: Refused) -> None:
        self._out.rule(refused.target, Ruling.REFUSED, refused.why, refused.grants)
        if self._voice is Voice.NONE and is_text(self._inbox):
            self._voice = Voice.HTTP
        self._say(say_refused(self._voice, refused.told, status=403))

    def _fail(self, broken: Broken) -> None:
        self._out.rule(self._target, Ruling.FAILED, broken.why)
        if self._exchange is not None and self._exchange.is_idle:
            self._close()  # nobody asked, so nobody is answered
        else:
            self._say(say_failed(self._voice, broken.why, status=broken.status))

    def _say(self, words: bytes) -> None:
        """In the client's protocol where something can be said; a reset where nothing can."""
        is_late = self._exchange is not None and self._exchange.is_answering
        if words and not is_late:
            self._out.put(ev.SendClient(words))
        self._close(reset=is_late or not words)

    def _close(self, *, reset: bool = False) -> None:
        self._out.stop(*Timer)
        self._out.put(ev.CloseAll(reset))
        self._is_over = True
