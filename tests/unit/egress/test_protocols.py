"""The table of protocols: what passes, what is held until the host has answered, and that nothing hides behind it."""

from __future__ import annotations

import re
import ssl
import time
from typing import NamedTuple

import pytest

from palyra.egress import events as ev
from palyra.egress.events import Ruling, SendClient, SendUpstream
from palyra.egress.protocols import REDIS_PROBE, UnknownProtocol, read_greeting, read_opening
from tests.promises import promise
from tests.unit.egress.playbook import CLOSE, EOF, RELAY, RETRY, Play, client_hello, server_hello

MAIL = b"\r\nMAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n"
SSL_REQUEST = b"\0\0\0\x08\x04\xd2\x16\x2f"
CANCEL = b"\0\0\0\x10\x04\xd2\x16\x2e" + bytes(8)
MYSQL_HELLO = b"\x0a\0\0\0\x0a8.0.1\0xyz"
MYSQL_ERROR = b"\x0a\0\0\0\xff\x10\x04many"


def startup(*pairs: bytes, version: int = 0x30000) -> bytes:
    body = version.to_bytes(4, "big") + b"".join(one + b"\0" for one in pairs) + b"\0"
    return (4 + len(body)).to_bytes(4, "big") + body


def git(words: bytes) -> bytes:
    return b"%04x" % (4 + len(words)) + words


def login(capabilities: int = 0, *, user: bytes = b"root\0", filler: bytes = bytes(23)) -> bytes:
    body = capabilities.to_bytes(4, "little") + b"\0\0\0\1\x21" + filler + user
    return len(body).to_bytes(3, "little") + b"\1" + body


USER = startup(b"user", b"a")
FETCH = git(b"git-upload-pack /x\0host=b.test:9000\0\0version=2\0")
PING = b"*1\r\n$4\r\nPING\r\n"


class Row(NamedTuple):
    first: bytes
    answer: bytes
    sent: bytes = b""
    """In place of the first message."""


ROWS = {
    "SSH": Row(b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n", b"SSH-2.0-x\r\n"),
    "PostgreSQL": Row(USER, b"R\0\0\0\x08\0\0\0\0"),
    "PostgreSQL, an error": Row(startup(b"user", b"a", b"options", b"-c a=b"), b"E\0\0\0\x09Sx\0"),
    "git": Row(FETCH, b"000eversion 2\n"),
    "git, an error": Row(git(b"git-receive-pack /x\0host=b.test:9000\0"), b"0009ERR x"),
    "git, references": Row(FETCH, b"00320123456789"),
    "Redis": Row(PING, b"+PONG\r\n", REDIS_PROBE),
    "Redis, a password": Row(b"*2\r\n$4\r\nAUTH\r\n$3\r\na b\r\n", b"-NOAUTH x\r\n", REDIS_PROBE),
}


def open_play(port: int = 9000) -> Play:
    play = Play(f"b.test:{port}").transparent("b.test", port)
    play.reach()
    return play


@promise("host-allowlist.known-protocols")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("step", [1, 7, 999])
def test_a_protocol_of_the_table_passes_once_the_host_has_answered_in_it(row, step):
    play = open_play()
    play.say(*(row.first[at : at + step] for at in range(0, len(row.first), step)))
    assert (play.upstream, play.is_relayed) == (row.sent or row.first, False)
    play.answer(*(row.answer[at : at + 1] for at in range(len(row.answer))))
    assert play.is_relayed
    assert play.upstream == (row.sent + row.first if row.sent else row.first)


@promise("host-allowlist.mail", "host-allowlist.mail-behind-protocol")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize(
    "greeting", [b"220 mail.b.test ESMTP\r\n", b"* OK IMAP\r\n", b"+OK POP3\r\n", b"421 x\r\n", b"\0"]
)
def test_mail_behind_a_first_message_never_reaches_a_mail_server(row, greeting):
    """Redis, SSH, MySQL, PostgreSQL and git starts with SMTP behind them once did."""
    play = open_play()
    play.say(row.first + MAIL)
    assert b"MAIL" not in play.upstream
    play.answer(greeting, greeting)
    play.say(MAIL)
    assert (b"MAIL" in play.upstream, play.is_relayed) == (False, False)
    assert play.rulings[-1] == ("b.test", 9000, Ruling.REFUSED)


@promise("host-allowlist.mail")
@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_host_that_greets_in_another_protocol_is_left_at_once(row):
    play = open_play()
    play.answer(b"220 mail.b.test ESMTP\r\n")
    assert (play.is_closed, play.client) == (True, b"")
    play.say(row.first + MAIL)
    assert play.upstream == b""


@promise("host-allowlist.mail", "host-allowlist.mail-behind-protocol")
def test_mail_behind_a_tls_hello_never_reaches_a_mail_server():
    hello = client_hello("b.test")
    play = open_play()
    play.say(hello + MAIL)
    assert play.upstream == hello
    play.answer(b"220 mail.b.test ESMTP\r\n")
    play.say(MAIL)
    assert (play.upstream, play.rulings[-1]) == (hello, ("b.test", 9000, Ruling.REFUSED))


def test_a_warning_before_the_hosts_hello_does_not_open_the_way_for_a_second_one():
    play = open_play()
    play.say(client_hello("b.test"))
    play.answer(b"\x15\x03\x03\0\x02\x01\x70" + RETRY)
    play.say(client_hello("evil.test"))
    assert (client_hello("evil.test") in play.upstream, play.is_relayed) == (False, False)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r", b"\0\n", b" \xff\r\n"])
@pytest.mark.parametrize("before", [b"\n", b"\r\n", b"\n\t \0", b"\n" + b"x" * 9 + b"\n", b"\n" + bytes(12) + b"\n"])
@pytest.mark.parametrize(
    "line", [b"RCPT TO:<a@evil.test>", b"RCPT TO:a@b", b"RCPT TO:<\xc3\xa9@evil.test>", b"rcpt to:a", b"DATA"]
)
def test_no_line_of_a_tls_hello_begins_with_text_of_the_programs_choosing(line, before, end):
    """Short lines, and lines with a letter beyond ASCII, were commands to a mail server that read on."""
    text = before + line + end
    hello = client_hello("b.test", b"\0\x10" + len(text).to_bytes(2, "big") + text)
    play = open_play()
    play.say(hello)
    lines = re.split(rb"[\r\n]+", play.upstream)
    assert all(one.startswith(b"\x16\x03\x01\0") for one in lines if one)
    assert without_headers(play.upstream) == without_headers(hello)


def test_a_tls_hello_that_was_cut_anew_is_understood_by_openssl():
    client, server = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client.set_alpn_protocols(["\nRCPT TO:<a@evil.test>\r\n"])
    wire = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        client.wrap_bio(ssl.MemoryBIO(), wire, server_hostname="b.test").do_handshake()
    play, inside, named = open_play(), ssl.MemoryBIO(), []
    play.say(wire.read())
    inside.write(play.upstream)
    server.sni_callback = lambda _, name, __: named.append(name)
    with pytest.raises(ssl.SSLError):  # no certificate
        server.wrap_bio(inside, ssl.MemoryBIO(), server_side=True).do_handshake()
    assert (named, play.upstream.count(b"\x16\x03\x01\0") > 1) == (["b.test"], True)


def without_headers(records: bytes) -> bytes:
    message = b""
    while records:
        length = int.from_bytes(records[3:5], "big")
        message, records = message + records[5 : 5 + length], records[5 + length :]
    return message


@promise("host-allowlist.fronting", "host-allowlist.known-protocols")
@pytest.mark.parametrize(
    "said",
    [
        b"GET http://evil.test/\r\n", b"GET /\r\nHost: evil.test\r\n\r\n", b"GET / X\r\nHost: evil.test\r\n\r\n",
        b"get / HTTP/1.1\r\nHost: evil.test\r\n\r\n", b"\r\nGET / HTTP/1.1\r\nHost: b.test:9000\r\n\r\n",
        b"GET  / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.1\nHost: b.test\n\n", b"GET\t/\tHTTP/1.1\r\n\r\n", b"PING\r\n",
        b"QUIT\n",
        b"GET / RTSP/1.0\r\n\r\n", b"PROXY TCP4 1.1.1.1 1.0.0.1 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c",
        b"\x15\x03\x01\0\x02\x01\x5a", b"\x16\x04\x01\0\x05abcde", b"\x16\x03\x05\0\x05abcde", b"\x16\0\0\0\x05abcde",
        b"SSH-1.5-x\r\n", b"SSH-2.0-x\n\r\ny\r\n"[:4] + b"\r\n", b"SSH-2.0-a b c\r\n", b"SSH-2.0-<x>\r\n",
        b"SSH-2.0-" + b"a" * 300,
        b"SSH-2.0-x\0\r\n", b"*0\r\n", b"*1\n$4\n", b"*x", b"**", b"*99999999\r\n", b"*1\r\n:1\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        startup(b"user", b"a\r\nMAIL FROM:<a>\r\n"), startup(b"user\r\n", b"a"),
        startup(b"user", b"a", version=0x20000),
        startup(b"user", b"a")[:-1] + b"x", b"\0\0\0\x08\0\0\0\x01", b"\0\1\0\0" + bytes(99),
        CANCEL[:4] + b"\x04\xd2\x16\x2f",
        git(b"git-upload-pack /x\0"), git(b"git-upload-pack /x\r\nQUIT\r\n\0host=b.test:9000\0"),
        git(b"git-shell /x\0host=b.test\0"),
        git(b"git-upload-pack x\0host=b.test:9000\0"), b"0000git-upload-pack", b"ffff" + b"git-" + bytes(5000),
        b"00zz", b"1234\r\n",
        login(), bytes(40), b"\xff", b"hello", b"\x05\x01\0", b"\x04\x01",
    ],
)  # fmt: skip
def test_what_is_not_exactly_of_the_table_is_refused(said):
    play = open_play()
    play.say(said)
    assert (play.upstream, play.rulings[-1][2]) == (b"", Ruling.REFUSED)


@promise("host-allowlist.fronting")
@pytest.mark.parametrize("named", [b"evil.test", b"b.test", b"b.test:9418", b"b.test:9000:1", b"a@b.test:9000"])
def test_git_names_the_host_of_its_connection_and_no_other(named):
    play = open_play()
    play.say(git(b"git-upload-pack /x\0host=" + named + b"\0"))
    assert (play.upstream, play.rulings[-1][2]) == (b"", Ruling.REFUSED)


def test_gits_own_port_need_not_be_named():
    play = open_play(9418)
    said = git(b"git-upload-pack /x\0host=b.test\0")
    assert play.say(said) == [SendUpstream(said)]


# ── hosts that greet ──


def test_a_host_that_greets_as_mysql_is_heard_and_its_client_read():
    play = open_play()
    assert play.answer(MYSQL_HELLO) == [SendClient(MYSQL_HELLO)]
    assert play.say(login()) == [SendUpstream(login()[:36]), SendUpstream(login()[36:]), RELAY]


def test_a_host_that_greets_by_an_error_is_heard():
    play = open_play()
    assert play.answer(MYSQL_ERROR) == [SendClient(MYSQL_ERROR)]
    assert play.hear(ev.UpstreamEof()) == [CLOSE]


@pytest.mark.parametrize(
    "said", [login(0x800), login(filler=b"x" * 23), b"\x01\0\0\1" + bytes(40), b"GET / HTTP/1.1\r\n\r\n", PING]
)
def test_a_client_that_does_not_answer_mysql_is_refused(said):
    play = open_play()
    play.answer(MYSQL_HELLO)
    play.say(said)
    assert (play.upstream, play.rulings[-1][2]) == (b"", Ruling.REFUSED)


@promise("host-allowlist.known-protocols", "host-allowlist.mail-behind-protocol")
@pytest.mark.parametrize("row", [row for name, row in ROWS.items() if name != "SSH"])
def test_a_client_that_speaks_another_protocol_than_the_host_is_refused(row):
    play = open_play()
    play.answer(b"SSH-2.0-x\r\n")
    play.say(row.first)
    assert (play.upstream, play.rulings[-1][2]) == (b"", Ruling.REFUSED)


def test_greetings_are_known_in_pieces():
    for greeting in (b"SSH-2.0-x", MYSQL_HELLO):
        kinds = [read_greeting(greeting[:at]) for at in range(1, len(greeting) + 1)]
        assert kinds[0] is None
        assert len({kind for kind in kinds if kind is not None}) == 1
    with pytest.raises(UnknownProtocol):
        read_greeting(b"220 ")


# ── TLS behind a first message of another protocol ──


def encrypted(*, host: str | None) -> tuple[Play, list[ev.Command]]:
    play = open_play()
    assert play.say(SSL_REQUEST) == [SendUpstream(SSL_REQUEST)]
    assert play.answer(b"S") == [SendClient(b"S")]
    return play, play.say(client_hello(host))


@pytest.mark.parametrize("host", [None, "b.test"])
def test_postgresql_over_tls_names_its_own_host_or_none(host):
    play, commands = encrypted(host=host)
    assert commands == [SendUpstream(client_hello(host))]
    assert play.answer(server_hello())[-1] == RELAY


@promise("host-allowlist.fronting")
@pytest.mark.parametrize("host", ["evil.test", "a.b.test"])
def test_postgresql_over_tls_does_not_name_another_host(host):
    play, _ = encrypted(host=host)
    assert (play.upstream, play.rulings[-1]) == (SSL_REQUEST, (host, 9000, Ruling.REFUSED))


def test_a_second_hello_behind_postgresqls_request_is_judged_too():
    play, _ = encrypted(host="b.test")
    play.answer(RETRY)
    play.say(client_hello("evil.test"))
    assert client_hello("evil.test") not in play.upstream
    assert play.rulings[-1] == ("evil.test", 9000, Ruling.REFUSED)


def test_postgresql_goes_on_without_tls_where_the_host_has_none():
    play = open_play()
    play.say(SSL_REQUEST)
    play.answer(b"N")
    assert play.say(USER) == [SendUpstream(USER)]
    assert play.answer(b"R\0\0\0\x08")[-1] == RELAY


@pytest.mark.parametrize("said", [MAIL, PING, b"GET / HTTP/1.1\r\nHost: b.test:9000\r\n\r\n", client_hello("b.test")])
def test_only_postgresql_follows_a_host_that_refused_it_tls(said):
    play = open_play()
    play.say(SSL_REQUEST)
    play.answer(b"N")
    play.say(said)
    assert (play.upstream, play.rulings[-1][2]) == (SSL_REQUEST, Ruling.REFUSED)


@pytest.mark.parametrize("answer", [b"SN", b"Sx", b"220 x", b"X", b"HTTP/1.1 400"])
def test_a_host_that_says_more_than_yes_or_no_to_postgresqls_request_is_left(answer):
    play = open_play()
    play.say(SSL_REQUEST + MAIL)
    play.answer(answer)
    assert (play.upstream, play.rulings[-1][2]) == (SSL_REQUEST, Ruling.REFUSED)


def test_mysql_asks_for_tls_in_a_packet_of_its_own_and_the_hello_is_judged():
    for host, ruling in ((None, Ruling.GRANTED), ("evil.test", Ruling.REFUSED)):
        play = open_play()
        play.answer(MYSQL_HELLO)
        asks = login(0x800, user=b"")
        play.say(asks + client_hello(host))
        assert play.rulings[-1][2] is ruling
        assert play.upstream == (asks + client_hello(host) if host is None else asks)


def test_postgresqls_request_to_cancel_is_passed_on_and_nothing_behind_it():
    play = open_play()
    assert play.say(CANCEL + MAIL) == [SendUpstream(CANCEL)]
    assert play.hear(ev.UpstreamEof()) == [CLOSE]


# ── raw ──


@pytest.mark.parametrize(
    "said", [MAIL, b"\1\2\3", client_hello("evil.test"), b"GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"]
)
@pytest.mark.parametrize("port", [80, 443, 9000])
def test_all_bytes_pass_where_the_operator_granted_it_raw(said, port, raw):
    play = raw(f"b.test:{port}").transparent("b.test", port)
    assert play.reach()[-1] == RELAY
    tunnel = raw(f"b.test:{port}").proxy()
    tunnel.say(f"CONNECT b.test:{port} HTTP/1.1\r\n\r\n".encode())
    tunnel.reach()
    assert tunnel.say(said) == []
    assert tunnel.is_relayed


@promise("host-allowlist.known-protocols")
@pytest.mark.parametrize(("host", "port"), [("b.test", 9001), ("a.test", 9000), ("10.0.0.1", 9000)])
def test_raw_is_of_one_host_and_one_port(host, port, raw):
    play = raw("b.test:9000", "a.test:9000", "b.test:9001", "10.0.0.0/8:9000").transparent(host, port)
    play.reach()
    play.say(MAIL)
    assert (play.upstream, play.is_relayed) == (b"", False)


def test_a_granted_address_that_is_raw_makes_no_name_raw_that_leads_to_it(raw):
    play = raw("10.0.0.1:9000", "b.test:9000").transparent("b.test", 9000)
    from ipaddress import ip_address

    play.hear(ev.Resolved((ip_address("10.0.0.1"),)), ev.UpstreamOpened())
    play.say(MAIL)
    assert play.upstream == b""


@pytest.fixture
def raw():
    """The first pattern is raw, the others are not."""

    def make(first: str, *others: str, **options) -> Play:
        return Play(f"{first} raw", *others, **options)

    return make


def test_raw_goes_without_credentials_and_without_ending_tls(raw):
    from palyra.egress.credentials import Credential
    from palyra.egress.hosts import parse_pattern

    secret = Credential(pattern=parse_pattern("b.test:8080"), header="Authorization", value="s3cret")
    play = raw("b.test:8080", credentials=(secret,), intercepted=("b.test:8080",)).transparent("b.test", 8080)
    assert play.reach()[-1] == RELAY
    proxied = raw("b.test:8080", credentials=(secret,)).proxy()
    proxied.say(b"GET http://b.test:8080/ HTTP/1.1\r\nHost: b.test:8080\r\n\r\n")
    proxied.reach()
    assert b"s3cret" not in proxied.upstream
    assert b"GET / " in proxied.upstream


@promise("host-allowlist.fronting", "host-allowlist.known-protocols")
def test_more_bytes_never_change_what_a_first_message_is():
    for row in ROWS.values():
        found = [read_opening((row.first + MAIL)[:at], 9000, None) for at in range(1, len(row.first + MAIL))]
        assert len({one for one in found if one is not None}) == 1
        assert all(one is not None for one in found[len(row.first) :])


@promise("egress.server-bounds")
@pytest.mark.slow
@pytest.mark.parametrize(
    "unit", [b"GET /" + b"a" * 9000, startup(b"user", b"a" * 9000), git(b"git-upload-pack /" + b"a" * 4000)]
)
def test_a_first_line_that_comes_byte_by_byte_costs_little(unit):
    """Thousands of packets of one byte once kept the loop that serves every call busy for seconds."""

    def cost(length: int) -> float:
        play, before = open_play(), time.process_time()
        for at in range(length):
            play.say(unit[at : at + 1])
        assert not play.is_closed
        return time.process_time() - before

    size = len(unit) - 1
    assert min(cost(size) for _ in range(3)) < 24 * min(cost(size // 8) for _ in range(3))


@pytest.mark.parametrize("port", [80, 9000])
def test_http2_without_tls_is_told_what_to_do(port):
    play = open_play(port)
    play.say(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert play.client.startswith(b"HTTP/1.1 403 ")
    assert b"HTTP/2 without TLS" in play.client
    assert f"--allow-raw b.test:{port}".encode() in play.client


@promise("egress.server-bounds")
def test_a_client_that_ends_in_the_middle_of_its_first_message_ends_the_connection():
    play = open_play()
    play.say(USER[:9])
    assert play.hear(EOF) == [CLOSE]
