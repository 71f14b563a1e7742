"""Any bytes, cut anywhere, from either side: never an exception, never a leak, always the same decision."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from palyra.egress import events as ev
from palyra.egress.conversation import READ_AHEAD
from palyra.egress.events import Side, Timer
from tests.unit.egress.playbook import OPENED, PUBLIC, RETRY, Play, client_hello, server_hello

READ_BYTES = 65_536
GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
EVIL = b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc"
CHUNKS = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
WORDS = st.sampled_from([
    GET, EVIL, POST, CHUNKS, b"\r\n", b"\n", b"\0", b" ", b"GET ", b"HTTP/1.1", b"PROXY x\r\n", b"SSH-2.0-x\r\n",
    b"Host: ",
    b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
    b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
    b"CONNECT a.test:443 HTTP/1.1\r\n\r\n", b"CONNECT b.test:22 HTTP/1.1\r\n\r\n", b"\x05\x01\x00", b"\x04\x01",
    b"\x05\x01\x00\x03\x06a.test\x01\xbb", b"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", client_hello("a.test"),
    client_hello("evil.test"), client_hello("a.test", size=7), client_hello(None),
    b"\x14\x03\x03\0\x01\x01", b"\x17\x03\x03\0\x01x",
    b"\0\0\0\x08\x04\xd2\x16\x2f", b"\0\0\0\x10\0\x03\0\0user\0a\0\0", b"*1\r\n$4\r\nPING\r\n",
    b"0026git-upload-pack /x\0host=b.test:22\0", b"\x20\0\0\x01\0\x08\0\0" + bytes(28), b"MAIL FROM:<a@b>\r\n",
])  # fmt: skip
SAID = st.lists(WORDS | st.binary(max_size=12), min_size=1, max_size=5).map(b"".join)
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\n"
ANSWERS = st.sampled_from([
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", INTERIM, server_hello(), RETRY,
    b"SSH-2.0-y\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nok", b"x",
    b"S", b"N", b"R\0\0\0\x08", b"+PONG\r\n+OK\r\n", b"000eversion 2\n", b"\x0a\0\0\0\x0a8.0\0", b"220 mail\r\n",
    b"HTTP/1.1 101 Switching\r\n\r\n", b"HTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
])  # fmt: skip
OPENINGS = st.sampled_from([("transparent", 80), ("transparent", 443), ("transparent", 22), ("proxy", 0)])


def new(opening: tuple[str, int]) -> Play:
    play = Play("a.test", "b.test:22")
    kind, port = opening
    if kind == "proxy":
        return play.proxy()
    return play.transparent("b.test" if port == 22 else "a.test", port)


def run(play: Play, events: list[ev.Event]) -> Play:
    """Deliver them, with the host answering look-ups and connections at once."""
    for event in events:
        pending = [event]
        while pending:
            before = len(play.commands)
            play.hear(pending.pop(0))
            for command in play.commands[before:]:
                if isinstance(command, ev.Resolve):
                    pending.append(ev.Resolved((PUBLIC,)))
                elif isinstance(command, ev.Dial):
                    pending.append(OPENED)
    return play


def decisions(play: Play) -> tuple[object, ...]:
    """What a split may not change: bytes each way, rulings, and how it ended."""
    ends = [one for one in play.commands if isinstance(one, ev.CloseAll | ev.Relay | ev.HalfClose)]
    return play.upstream, play.client, play.rulings, ends


@given(OPENINGS, SAID, st.integers(1, 40))
def test_the_same_bytes_in_other_pieces_are_the_same_conversation(opening, said, step):
    whole = run(new(opening), [ev.ClientData(said)])
    pieces = run(new(opening), [ev.ClientData(said[at : at + step]) for at in range(0, len(said), step)])
    if whole.is_relayed or pieces.is_relayed:
        # What came behind the relay is the server's to copy: compare what was decided before it.
        assert (whole.is_relayed, whole.rulings) == (pieces.is_relayed, pieces.rulings)
        assert whole.upstream.startswith(pieces.upstream)
    else:
        assert decisions(whole) == decisions(pieces)


# One answer: a second one is an answer to the next question only when that was sent in between.
@given(
    OPENINGS, SAID, st.sampled_from([b"", INTERIM]).flatmap(lambda one: ANSWERS.map(one.__add__)), st.integers(1, 40)
)
def test_the_hosts_bytes_in_other_pieces_are_the_same_conversation(opening, said, answers, step):
    whole = run(new(opening), [ev.ClientData(said), ev.UpstreamData(answers)])
    cut = [ev.UpstreamData(answers[at : at + step]) for at in range(0, len(answers), step)]
    pieces = run(new(opening), [ev.ClientData(said), *cut])
    if whole.is_relayed or pieces.is_relayed:
        assert (whole.is_relayed, whole.rulings) == (pieces.is_relayed, pieces.rulings)
        assert whole.client.startswith(pieces.client)
    else:
        assert decisions(whole) == decisions(pieces)


EVENTS = st.one_of(
    SAID.map(ev.ClientData), ANSWERS.map(ev.UpstreamData), st.binary(max_size=20).map(ev.UpstreamData),
    st.sampled_from([
        ev.ClientEof(), ev.UpstreamEof(), ev.TimedOut(Timer.HEAD), ev.UpstreamFailed("x"),
        ev.ResolveFailed("x"), ev.Resolved(()), ev.Resolved((PUBLIC,)), OPENED,
    ]),
)  # fmt: skip


@given(OPENINGS, st.lists(EVENTS, max_size=12))
def test_no_order_of_events_raises_or_sends_to_a_host_that_is_not_open(opening, events):
    play = run(new(opening), events)
    is_open = is_over = False
    for command in play.commands:
        assert not is_over
        match command:
            case ev.Ruled(ruling=ev.Ruling.GRANTED):
                is_open = True
            case ev.CloseUpstream():
                assert is_open
                is_open = False
            case ev.SendUpstream() | ev.Relay():
                assert is_open
                is_over = isinstance(command, ev.Relay)
            case ev.CloseAll():
                is_over = True
            case ev.Dial(address=address, host=host):
                assert (address, host) in ((PUBLIC, "a.test"), (PUBLIC, "b.test"))
            case _:
                pass


@given(OPENINGS, st.lists(EVENTS, max_size=12))
def test_no_request_for_another_host_leaves_before_the_relay(opening, events):
    play = run(new(opening), events)
    at = play.commands.index(ev.Relay()) if play.is_relayed else len(play.commands)
    sent = b"".join(one.data for one in play.commands[:at] if isinstance(one, ev.SendUpstream))
    if not play.is_relayed:
        assert b"\r\nHost: evil.test" not in sent
    assert client_hello("evil.test") not in sent or opening[1] == 22


@given(OPENINGS, st.lists(EVENTS, max_size=12))
def test_what_is_held_is_bounded_while_the_server_reads_only_what_is_wanted(opening, events):
    play = new(opening)
    for event in events:
        if isinstance(event, ev.ClientData | ev.UpstreamData):
            side = Side.CLIENT if isinstance(event, ev.ClientData) else Side.UPSTREAM
            if play.talk.wants(side):
                run(play, [replace(event, data=(event.data * 9000)[:READ_BYTES])])
        else:
            run(play, [event])
        assert len(play.talk._inbox) < READ_AHEAD + READ_BYTES
        assert len(play.talk._answer) < READ_AHEAD + READ_BYTES


@given(st.lists(EVENTS, max_size=12))
def test_no_line_of_mail_leaves_before_the_relay(events):
    """Whatever stands before it, and whatever the host says that is no protocol of the table."""
    play = run(new(("transparent", 22)), events)
    at = play.commands.index(ev.Relay()) if play.is_relayed else len(play.commands)
    heard = b"".join(one.data for one in play.commands[:at] if isinstance(one, ev.SendUpstream))
    if not play.is_relayed and b"POST" not in heard:
        assert b"MAIL" not in heard
