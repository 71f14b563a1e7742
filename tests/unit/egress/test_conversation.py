"""A connection from its first byte to its relay or its refusal, face by face."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from palyra.egress import events as ev
from palyra.egress.conversation import ESTABLISHED, READ_AHEAD
from palyra.egress.events import Ruled, Ruling, SendClient, SendUpstream, Side, Timer
from tests.promises import promise
from tests.unit.egress.playbook import (
    CLOSE,
    EOF,
    OPENED,
    OTHER,
    PUBLIC,
    RELAY,
    RESET,
    RESOLVED,
    UPSTREAM_EOF,
    Play,
    client_hello,
    dial,
    granted,
    server_hello,
)

GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


# ── the transparent face ──


def test_a_plain_request_is_judged_looked_up_pinned_and_sent():
    play = Play("a.test").transparent("a.test", 80)
    assert play.say(GET) == [ev.Resolve("a.test")]
    assert play.hear(ev.Resolved((PUBLIC, OTHER))) == [dial("a.test", 80)]
    assert play.hear(OPENED) == [granted("a.test", 80), SendUpstream(GET)]
    assert play.answer(OK) == [SendClient(OK[:-2]), SendClient(b"ok")]
    assert play.hear(EOF) == [CLOSE]


def test_a_tls_hello_is_judged_before_anything_is_dialled_and_relayed_once_the_host_answers():
    hello = client_hello("a.test")
    play = Play("a.test").transparent("a.test", 443)
    assert play.say(hello) == [ev.Resolve("a.test")]
    assert play.hear(RESOLVED) == [dial("a.test", 443)]
    assert play.hear(OPENED) == [granted("a.test", 443), SendUpstream(hello)]
    answer = server_hello()
    assert play.answer(answer) == [SendClient(answer), RELAY]


def test_another_port_is_dialled_at_once_so_that_hosts_may_speak_first():
    play = Play("b.test:22")
    opened = ev.ClientOpened(face=ev.Face.TRANSPARENT, local_address=play.names.address_of("b.test"), local_port=22)
    assert play.hear(opened) == [ev.Resolve("b.test")]
    assert play.reach() == [granted("b.test", 22, "b.test:22")]
    assert play.answer(b"SSH-2.0-x\r\n") == [SendClient(b"SSH-2.0-x\r\n")]
    assert play.say(b"SSH-2.0-y\r\n") == [SendUpstream(b"SSH-2.0-y\r\n"), RELAY]


@pytest.mark.parametrize(
    "first", [b"PING\r\nSET a b\r\n", b"EHLO me\r\n", b'{"a":1}', b"hi\n", b"<stream>", b"\x01\x02"]
)
@pytest.mark.parametrize("port", [80, 9418])
def test_a_protocol_that_is_not_in_the_table_is_refused_with_the_grant_that_allows_it(first, port):
    play = Play(f"b.test:{port}").transparent("b.test", port)
    play.reach()
    play.say(first)
    assert (play.upstream, play.rulings[-1]) == (b"", ("b.test", port, Ruling.REFUSED))
    assert next(one.grants for one in reversed(play.commands) if isinstance(one, Ruled)) == (f"b.test:{port} raw",)
    assert play.is_closed


def test_a_line_of_text_that_is_refused_is_answered_with_the_flag():
    play = Play("b.test:25").transparent("b.test", 25)
    play.reach()
    play.say(b"EHLO me\r\n")
    assert b"--allow-raw b.test:25" in play.client


@pytest.mark.parametrize("face", ["transparent", "tunnel"])
@pytest.mark.parametrize("line", [b"GET /\r\n", b"GET / X\r\n", b"\1 / X\r\n"])
@pytest.mark.parametrize("cut", [0, 1, 9])
def test_a_request_without_a_version_does_not_lead_to_another_host_of_many_names(face, line, cut):
    play = Play("b.test:9000")
    if face == "tunnel":
        play.proxy().say(b"CONNECT b.test:9000 HTTP/1.1\r\n\r\n")
    else:
        play.transparent("b.test", 9000)
    play.reach()
    request = line + b"A: b\r\nHost: evil.test\r\n\r\n"
    play.say(request[:cut])
    play.say(request[cut:])
    assert b"evil" not in play.upstream
    assert play.rulings[-1] == ("b.test", 9000, Ruling.REFUSED)


@pytest.mark.parametrize("before", [b"\x15\x03\x01\0\x02\x01\x5a", b"\x15\x04\x01\0\x02\x01\x5a"])
def test_an_alert_before_the_hello_does_not_hide_it(before):
    play = Play("b.test:9000").transparent("b.test", 9000)
    play.reach()
    play.say(before + client_hello("evil.test"))
    assert (play.upstream, play.rulings[-1]) == (b"", ("b.test", 9000, Ruling.REFUSED))


@promise("host-allowlist.fronting")
@pytest.mark.parametrize("version", [b"\x02\x03", b"\x04\x01", b"\0\0"])
def test_a_hello_in_a_record_of_no_version_is_not_passed_on(version):
    play = Play("b.test:9000").transparent("b.test", 9000)
    play.reach()
    play.say(b"\x16" + version + client_hello("evil.test")[3:])
    assert (play.upstream, play.rulings[-1]) == (b"", ("b.test", 9000, Ruling.REFUSED))


def test_bytes_and_the_end_that_came_before_the_host_are_not_lost():
    play = Play("b.test:22").transparent("b.test", 22)
    assert play.hear(ev.ClientData(b"SSH-2.0-y\r\n"), EOF) == []
    assert play.reach() == [granted("b.test", 22, "b.test:22"), SendUpstream(b"SSH-2.0-y\r\n")]
    answer = b"SSH-2.0-x\r\n"
    assert play.answer(answer) == [SendClient(answer), ev.HalfClose(Side.UPSTREAM), RELAY]


def test_a_first_message_that_never_ends_is_ended_by_the_head_timer():
    play = Play("b.test:9000").transparent("b.test", 9000)
    play.reach()
    assert play.talk.receive(ev.ClientData(b"GET / HT")) == (ev.StartTimer(Timer.HEAD),)
    play.hear(ev.TimedOut(Timer.HEAD))
    assert (play.upstream, play.rulings[-1]) == (b"", ("b.test", 9000, Ruling.REFUSED))


@pytest.mark.parametrize("header", [b"PROXY TCP4 1.1.1.1 1.0.0.1 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"])
def test_a_proxy_header_is_not_passed_on(header):
    play = Play("b.test:9000").transparent("b.test", 9000)
    play.reach()
    play.say(header)
    assert (play.upstream, play.rulings[-1]) == (b"", ("b.test", 9000, Ruling.REFUSED))


def test_a_granted_address_is_dialled_as_it_is_and_needs_no_sni():
    hello = client_hello(None)
    play = Play("10.1.2.3:443").transparent("10.1.2.3", 443)
    assert play.say(hello) == [dial("10.1.2.3", 443, ip_address("10.1.2.3"))]
    assert play.hear(OPENED) == [granted("10.1.2.3", 443, "10.1.2.3:443"), SendUpstream(hello)]


def test_an_ipv6_address_is_named_in_brackets_by_host():
    play = Play("[fd00::5]:80").transparent("fd00::5", 80)
    play.say(b"GET / HTTP/1.1\r\nHost: [fd00::5]\r\n\r\n")
    assert play.hear(OPENED)[1:] == [SendUpstream(b"GET / HTTP/1.1\r\nHost: [fd00::5]\r\n\r\n")]


def test_an_address_nobody_granted_is_refused_by_a_reset_and_recorded():
    play = Play("a.test").transparent("127.0.0.1", 80)
    why = "127.0.0.1:80 is not among the granted addresses"
    ruled = Ruled(host="127.0.0.1", port=80, ruling=Ruling.REFUSED, why=why, grants=("127.0.0.1",))
    assert play.commands == [ruled, RESET]


def test_a_port_that_is_not_granted_for_this_name_is_refused():
    play = Play("a.test:8080", "b.test:9090").transparent("a.test", 9090)
    assert play.rulings == [("a.test", 9090, Ruling.REFUSED)]
    assert play.commands[-1] == RESET


def test_a_connection_without_a_word_is_recorded_and_closed():
    play = Play("a.test").transparent("a.test", 80)
    why = "the program closed the connection without asking for anything"
    assert play.hear(EOF) == [Ruled(host="a.test", port=80, ruling=Ruling.FAILED, why=why), CLOSE]


# ── the proxy face ──


def test_connect_is_answered_when_the_host_is_open_and_then_judged_again():
    play = Play("a.test").proxy()
    assert play.say(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n") == [ev.Resolve("a.test")]
    assert play.reach() == [granted("a.test", 443), SendClient(ESTABLISHED)]
    hello = client_hello("a.test")
    assert play.say(hello) == [SendUpstream(hello)]
    assert play.answer(server_hello())[-1] == RELAY


def test_connect_to_another_port_passes_what_stands_in_the_table():
    play = Play("b.test:22").proxy()
    play.say(b"CONNECT b.test:22 HTTP/1.0\r\n\r\n")
    play.reach()
    assert play.say(b"SSH-2.0-x\r\n") == [SendUpstream(b"SSH-2.0-x\r\n")]
    assert play.answer(b"SSH-2.0-y\r\n")[-1] == RELAY


def test_absolute_form_becomes_origin_form_and_proxy_fields_go_no_further():
    play = Play("a.test").proxy()
    play.say(
        b"GET http://a.test/x?y HTTP/1.1\r\nHost: a.test\r\nProxy-Connection: keep-alive\r\n"
        b"Proxy-Authorization: Basic eA==\r\nAccept: */*\r\n\r\n"
    )
    play.reach()
    assert play.upstream == b"GET /x?y HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\n\r\n"


def test_each_request_through_the_proxy_goes_to_its_own_host():
    play = Play("a.test", "b.test:8080").proxy()
    play.say(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
    play.reach()
    play.answer(OK)
    second = b"GET http://b.test:8080/ HTTP/1.1\r\nHost: b.test:8080\r\n\r\n"
    assert play.say(second) == [ev.CloseUpstream(), ev.Resolve("b.test")]
    assert play.reach() == [
        granted("b.test", 8080, "b.test:8080"), SendUpstream(b"GET / HTTP/1.1\r\nHost: b.test:8080\r\n\r\n"),
    ]  # fmt: skip
    play.answer(OK)
    play.say(b"GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n")
    assert play.rulings[-1] == ("evil.test", 80, Ruling.REFUSED)
    assert b"--allow-host evil.test:80" in play.client
    assert play.is_closed


def test_socks5_by_name():
    play = Play("a.test").proxy()
    assert play.say(b"\x05\x02\x00\x02") == [SendClient(b"\x05\x00")]
    assert play.say(b"\x05\x01\x00\x03\x06a.test\x01\xbb") == [ev.Resolve("a.test")]
    assert play.reach() == [granted("a.test", 443), SendClient(b"\x05\x00\x00\x01" + bytes(6))]
    assert play.say(b"nonsense\n")[-1] == RESET


def test_socks5_by_address_is_judged_as_an_address():
    play = Play("10.1.2.3:22").proxy()
    play.say(b"\x05\x01\x00", b"\x05\x01\x00\x01\x0a\x01\x02\x03\x00\x16")
    assert play.commands[-1] == dial("10.1.2.3", 22, ip_address("10.1.2.3"))
    mapped = Play("10.1.2.3:22").proxy()
    mapped.say(b"\x05\x01\x00", b"\x05\x01\x00\x04" + ip_address("::ffff:10.1.2.4").packed + b"\x00\x16")
    assert mapped.rulings == [("10.1.2.4", 22, Ruling.REFUSED)]
    assert mapped.client.endswith(b"\x05\x02\x00\x01" + bytes(6))


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (b"\x04\x01\x00\x50\x01\x01\x01\x01\x00", b"\x00\x5b" + bytes(6)),
        (b"\x05\x01\x02", b"\x05\xff"),
    ],
)
def test_other_ways_of_socks_are_refused_in_their_own_words(said, answered):
    play = Play("a.test").proxy()
    play.say(said)
    assert (play.client, play.commands[-1]) == (answered, CLOSE)


# ── the way to the host ──


@promise("host-allowlist.private-address")
def test_one_private_address_in_the_answer_spoils_it():
    play = Play("a.test").transparent("a.test", 80)
    play.say(GET)
    play.hear(ev.Resolved((PUBLIC, ip_address("10.0.0.1"))))
    assert (play.was_dialled, play.rulings) == (False, [("a.test", 80, Ruling.REFUSED)])
    assert play.client.startswith(b"HTTP/1.1 403 ")


def test_the_record_names_the_private_address_and_the_program_does_not_learn_it():
    play = Play("a.test").transparent("a.test", 80)
    play.say(GET)
    play.hear(ev.Resolved((ip_address("10.11.12.13"),)))
    assert "10.11.12.13" in next(one.why for one in play.commands if isinstance(one, Ruled))
    assert play.client.endswith(b"palyra: a.test leads to an address that is not granted.\n")


@promise("host-allowlist.private-address")
@pytest.mark.parametrize(
    "address",
    """127.0.0.1 10.0.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 ::1 fe80::1 fd00::1 ::ffff:127.0.0.1
    ::127.0.0.1 64:ff9b::7f00:1 2002:7f00:1::1 198.18.0.16 224.0.0.1 255.255.255.255""".split(),
)
def test_a_name_that_leads_to_a_private_address_is_never_dialled(address):
    play = Play("a.test").transparent("a.test", 80)
    play.say(GET)
    play.hear(ev.Resolved((ip_address(address),)))
    assert (play.was_dialled, play.rulings) == (False, [("a.test", 80, Ruling.REFUSED)])


@promise("host-allowlist.private-address")
def test_rebinding_between_two_connections_is_judged_anew():
    first = Play("a.test").transparent("a.test", 80)
    first.say(GET)
    assert first.hear(RESOLVED) == [dial("a.test", 80)]
    second = Play("a.test").transparent("a.test", 80)
    second.say(GET)
    second.hear(ev.Resolved((ip_address("127.0.0.1"),)))
    assert not second.was_dialled


def test_a_late_second_answer_changes_nothing():
    play = Play("a.test").transparent("a.test", 80)
    play.say(GET)
    play.reach()
    assert play.hear(ev.Resolved((ip_address("127.0.0.1"),))) == []


def test_the_next_address_of_the_answer_is_tried_and_no_other():
    play = Play("a.test").transparent("a.test", 80)
    play.say(GET)
    play.hear(ev.Resolved((PUBLIC, OTHER)))
    assert play.hear(ev.UpstreamFailed("refused")) == [dial("a.test", 80, OTHER)]
    play.hear(ev.UpstreamFailed("refused"))
    assert play.rulings == [("a.test", 80, Ruling.FAILED)]
    assert play.client.startswith(b"HTTP/1.1 502 ")
    assert play.commands[-1] == CLOSE


def test_a_name_that_cannot_be_looked_up_is_a_failure_not_a_refusal():
    play = Play("a.test").transparent("a.test", 443)
    play.say(client_hello("a.test"))
    play.hear(ev.ResolveFailed("the name does not exist"))
    assert play.rulings == [("a.test", 443, Ruling.FAILED)]
    assert play.client == bytes((21, 3, 3, 0, 2, 2, 80))


# ── slow, early and late peers ──


@pytest.mark.parametrize("part", [b"", b"GET / HTTP/1.1\r\nHo", b"\x16\x03\x01\x02"])
def test_a_slow_client_is_ended_by_the_head_timer(part):
    play = Play("a.test").transparent("a.test", 80)
    if part:
        play.say(part)
    play.hear(ev.TimedOut(Timer.HEAD))
    assert play.rulings == [("a.test", 80, Ruling.REFUSED)]
    assert play.is_closed
    assert not play.was_dialled


def test_the_head_timer_runs_for_every_request_of_a_connection():
    play = Play("a.test").transparent("a.test", 80)
    play.say(GET)
    play.reach()
    play.answer(OK)
    assert play.talk.receive(ev.ClientData(b"G")) == (ev.StartTimer(Timer.HEAD),)
    play.hear(ev.TimedOut(Timer.HEAD))
    assert play.client.endswith(b"palyra: the program took too long to say what it wants.\n")


def test_a_client_that_sends_without_reading_is_no_longer_read():
    play = Play("b.test:9000").transparent("b.test", 9000)
    assert play.talk.wants(Side.CLIENT)
    assert not play.talk.wants(Side.UPSTREAM)
    play.say(bytes(READ_AHEAD))
    assert not play.talk.wants(Side.CLIENT)


def test_nothing_is_asked_for_after_the_end():
    play = Play("a.test").transparent("127.0.0.1", 80)
    assert play.hear(ev.ClientData(b"x"), OPENED, UPSTREAM_EOF, ev.TimedOut(Timer.HEAD)) == []
    assert not play.talk.wants(Side.CLIENT)


def test_a_host_that_closes_without_a_word_ends_the_connection():
    play = Play("b.test:9000").transparent("b.test", 9000)
    play.reach()
    assert play.hear(UPSTREAM_EOF) == [CLOSE]


# ── ending TLS outside ──


def test_a_marked_host_is_spoken_to_in_two_tls_sessions_with_http_between():
    hello = client_hello("a.test")
    play = Play("a.test", intercepted=("a.test",)).transparent("a.test", 443)
    play.say(hello)
    assert play.reach() == [granted("a.test", 443), ev.StartTls(side=Side.UPSTREAM, host="a.test")]
    assert not play.talk.wants(Side.CLIENT)
    assert play.hear(ev.TlsStarted(Side.UPSTREAM)) == [ev.StartTls(side=Side.CLIENT, host="a.test", received=hello)]
    assert play.hear(ev.TlsStarted(Side.CLIENT)) == []
    assert play.say(GET) == [SendUpstream(GET)]
    play.answer(OK)
    play.say(b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n")
    assert play.rulings[-1] == ("evil.test", 443, Ruling.REFUSED)


def test_a_certificate_that_does_not_hold_ends_the_connection():
    play = Play("a.test", intercepted=("a.test",)).transparent("a.test", 443)
    play.say(client_hello("a.test"))
    play.reach()
    assert play.hear(ev.TlsFailed(Side.UPSTREAM, "the certificate is for b.test"))[-1] == CLOSE
