"""Requests on one connection: every one judged, none hidden behind another."""

from __future__ import annotations

import pytest

from palyra.egress import events as ev
from palyra.egress.credentials import Credential
from palyra.egress.events import Ruling, SendClient, SendUpstream, Timer
from palyra.egress.hosts import parse_pattern
from tests.promises import promise
from tests.unit.egress.playbook import CLOSE, EOF, RELAY, RESET, UPSTREAM_EOF, Play, client_hello

GET = b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n"
EVIL = b"GET /secret HTTP/1.1\r\nHost: evil.test\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def opened(first: bytes = GET, *patterns: str, port: int = 80) -> Play:
    play = Play(*(patterns or ("a.test", "a.test:8080", "b.test"))).transparent("a.test", port)
    if port == 80:
        play.say(first)
        play.reach()
    else:
        play.reach()
        play.say(first)
    return play


# ── whose request it is ──


@promise("host-allowlist.fronting")
@pytest.mark.parametrize(
    "host", ["evil.test", "b.test", "a.test:81", "a.test:443", "1.1.1.1", "198.18.0.16", "x.a.test", "localhost"]
)
def test_domain_fronting_by_host_is_refused_even_for_another_granted_host(host):
    play = opened(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (play.upstream, play.was_dialled) == (b"", False)
    assert play.rulings[0][2] is Ruling.REFUSED
    assert play.client.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert play.commands[-1] == CLOSE


@pytest.mark.parametrize("host", ["evil.test", "evil.test:8080", "a.test", "a.test:80"])
def test_domain_fronting_by_host_is_refused_on_other_ports_too(host):
    play = opened(f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(), port=8080)
    assert play.upstream == b""
    assert play.rulings[-1][2] is Ruling.REFUSED


@promise("host-allowlist.fronting")
@pytest.mark.parametrize(
    "field",
    [
        b"X-Forwarded-Host: evil.test", b"x-forwarded-host: a.test, b.test", b"X_Forwarded_Host: evil.test",
        b"X-Original-Host: evil.test:80", b"X-Host: \"evil.test\"", b"Forwarded: for=1.1.1.1;host=evil.test",
        b"Forwarded: host=a.test, for=x;Host=\"evil.test:80\"", b"X-Forwarded-Host: evil test",
        b"X-Original-URL: http://evil.test/", b"X-Rewrite-Url: //evil.test/", b"Destination: http://evil.test/x",
        b"X-URL: http://evil.test/", b"Request-URI: http://evil.test/", b"X_Target_Url: evil.test",
        b"BaseURL: //evil.test/", b"X-Authority: evil.test", b"Callback: <http://evil.test/>", b"CALLBACK: http://evil.test/",
        b"X-HTTP-DestinationURL: http://evil.test/x", b"X-Original-URL: /\\evil.test/", b"X_Rewrite_URL: evil.test",
        b"X-Backend: evil.test", b"x-upstream_server: evil.test", b"Proxy: http://evil.test/",
        b"X.Forwarded.Host: e.test",
        b"XFORWARDEDHOST: evil.test", b"X-Forwarded-Host: /a,evil.test", b"X-Original-URL: http://a.test@evil.test/",
        b"Destination: http://a.test/ http://evil.test/", b"X-Rewrite-URL: https://evil.test", b"Hostname: [::1]",
        b"X-Original-URL: http:evil.test", b"Destination: http://a.test/,//evil.test/", b"X-Forwarded-Server: a;b",
        b"Forwarded: for=1.1.1.1", b"X-Original-URL: http://a.test\\@evil.test/", b"X-Forwarded-Host: a.test:81",
    ],
)  # fmt: skip
def test_no_other_field_names_another_host_in_the_place_of_host(field):
    play = opened(b"GET / HTTP/1.1\r\nHost: a.test\r\n" + field + b"\r\n\r\n")
    assert (play.upstream, play.rulings[-1][2]) == (b"", Ruling.REFUSED)


@pytest.mark.parametrize(
    "field",
    [
        b"X-Forwarded-Host: a.test", b"X-Forwarded-Host: A.test:80", b"X-Original-URL: /x?y=http://b.test/",
        b"Destination: http://a.test/new%20name", b"Destination: /new", b"X-Forwarded-Host: ", b"X-Rewrite-URL: /",
        b"Origin: http://evil.test", b"Referer: http://evil.test/", b"X-Request-Id: evil.test",
    ],
)  # fmt: skip
def test_a_routing_field_may_hold_a_path_or_the_host_itself(field):
    said = b"PUT / HTTP/1.1\r\nHost: a.test\r\n" + field + b"\r\n\r\n"
    assert opened(said).upstream == said


BODIES = (b"Content-Length: 5\r\n\r\nabcde", b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")


@promise("host-allowlist.smuggling")
@pytest.mark.parametrize("method", "GET HEAD OPTIONS DELETE MKACTIVITY COPY MOVE UNLOCK PURGE X".split())
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("port", [80, 8080])
def test_a_body_that_some_server_leaves_for_its_next_request_does_not_pass(method, body, port):
    play = opened(f"{method} / HTTP/1.1\r\nHost: a.test{':8080' * (port != 80)}\r\n".encode() + body, port=port)
    assert (play.upstream, play.rulings[-1][2]) == (b"", Ruling.REFUSED)
    assert f"--allow-raw a.test:{port}".encode() in play.client


@pytest.mark.parametrize("method", "POST PUT PATCH PROPFIND PROPPATCH REPORT MKCOL LOCK SEARCH QUERY".split())
@pytest.mark.parametrize("body", BODIES)
def test_a_body_of_a_method_that_has_one_passes(method, body):
    said = f"{method} / HTTP/1.1\r\nHost: a.test\r\n".encode() + body
    assert opened(said).upstream == said


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_length_of_nothing_is_no_body(method):
    said = f"{method} / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n".encode()
    assert opened(said).upstream == said


@promise("host-allowlist.smuggling")
def test_a_trailer_of_a_request_is_refused_whatever_it_names():
    head = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    play = opened(head + b"1\r\nx\r\n0\r\nX-Forwarded-Host: evil.test\r\n\r\n")
    assert b"evil" not in play.upstream
    assert play.rulings[-1][2] is Ruling.REFUSED


@pytest.mark.parametrize(
    ("said", "sent"), [(b"Transfer-Encoding: cHuNkEd", b"Transfer-Encoding: chunked"),
                       (b"Content-Length: 0002", b"Content-Length: 2")]
)  # fmt: skip
def test_how_long_a_body_is_is_said_in_one_spelling(said, sent):
    play = opened(b"POST / HTTP/1.1\r\nHost: a.test\r\n" + said + b"\r\n\r\n")
    assert play.upstream == b"POST / HTTP/1.1\r\nHost: a.test\r\n" + sent + b"\r\n\r\n"


@promise("host-allowlist.smuggling")
def test_a_pipelined_second_request_for_another_host_never_leaves():
    play = opened(GET + EVIL)
    assert play.upstream == GET
    play.answer(OK)
    assert play.upstream == GET
    assert play.rulings == [("a.test", 80, Ruling.GRANTED), ("evil.test", 80, Ruling.REFUSED)]
    assert play.client.startswith(OK + b"HTTP/1.1 403 ")


def test_a_kept_alive_connection_judges_every_request():
    play = opened()
    for _ in range(3):
        play.answer(OK)
        assert play.say(GET) == [SendUpstream(GET)]
    play.answer(OK)
    play.say(EVIL)
    assert play.upstream == GET * 4
    assert play.rulings[-1] == ("evil.test", 80, Ruling.REFUSED)


def test_the_next_request_waits_for_the_answer_to_this_one():
    play = opened(GET + GET)
    assert play.upstream == GET
    assert play.answer(OK) == [SendClient(OK[:-2]), SendClient(b"ok"), SendUpstream(GET)]


@pytest.mark.parametrize(
    "start",
    [
        "GET http://evil.test/ HTTP/1.1", "GET http://b.test/ HTTP/1.1", "GET http://a.test:81/ HTTP/1.1",
        "GET http://a.test@evil.test/ HTTP/1.1", "GET https://a.test/ HTTP/1.1", "CONNECT a.test:80 HTTP/1.1",
        "GET a.test HTTP/1.1", "GET * HTTP/1.1", "TRACE / HTTP/1.1", "GET ?x HTTP/1.1", "GET /#x HTTP/1.1",
    ],
)  # fmt: skip
def test_a_request_target_that_is_not_this_hosts_is_refused(start):
    play = opened(f"{start}\r\nHost: a.test\r\n\r\n".encode())
    assert (play.upstream, play.was_dialled) == (b"", False)
    assert play.rulings[0][2] is Ruling.REFUSED


@pytest.mark.parametrize("host", ["a.test", "b.test"])
def test_a_connection_to_a_host_takes_paths_alone(host):
    play = opened(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert (play.was_dialled, play.rulings) == (False, [("a.test", 80, Ruling.REFUSED)])


def test_options_star_is_for_this_host():
    star = b"OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n"
    assert opened(star).upstream == star


@promise("host-allowlist.proxy")
@pytest.mark.parametrize(
    "said",
    [
        b"GET http://a.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"GET http://evil.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n",
        b"CONNECT evil.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        b"CONNECT a.test HTTP/1.1\r\n\r\n",
        b"CONNECT a.test:444 HTTP/1.1\r\n\r\n",
        b"CONNECT user@a.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT http://a.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.test:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
        b"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 0x7f000001:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 2130706433:80 HTTP/1.1\r\n\r\n",
        b"CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
        b"CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\n\r\n",
        b"CONNECT a.test\x00.evil.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT \xd0\xb0.test:443 HTTP/1.1\r\n\r\n",
        b"CONNECT 198.18.0.16:443 HTTP/1.1\r\n\r\n",
        b"CONNECT localhost:443 HTTP/1.1\r\n\r\n",
    ],
)
def test_the_proxy_reaches_nothing_that_is_not_granted_in_plain_words(said):
    play = Play("a.test").proxy()
    play.say(said)
    assert (play.was_dialled, ev.Resolve("evil.test") in play.commands) == (False, False)
    assert play.rulings[0][2] is Ruling.REFUSED
    assert play.client.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 "))
    assert play.commands[-1] == CLOSE


def test_a_redirect_to_a_private_address_is_one_more_request_to_judge():
    play = Play("a.test").proxy()
    play.say(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
    play.reach()
    play.answer(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n")
    play.say(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")
    assert play.rulings[-1] == ("169.254.169.254", 80, Ruling.REFUSED)


# ── smuggling ──


@promise("host-allowlist.smuggling")
@pytest.mark.parametrize(
    "said",
    [
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nX",
        b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\nContent-Length: 44\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + EVIL,
        b"POST / HTTP/1.1\r\nHost: a.test\r\nX: y\n" + EVIL,
        b"POST / HTTP/1.1\r\nHost: a.test\r\nX: y\r" + EVIL,
        b"GET / HTTP/1.1\r\nHost: a.test\r\nHost: evil.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.test\r\n Host: evil.test\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.test, evil.test\r\n\r\n",
        b"GET / HTTP/1.1\nHost: a.test\n\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a.test\r\nX: " + b"y" * 70_000,
    ],
)  # fmt: skip
def test_smuggling_is_refused_before_a_byte_leaves(said):
    play = opened(said)
    assert (play.upstream, play.was_dialled, play.is_closed) == (b"", False, True)
    assert play.rulings[-1][2] is Ruling.REFUSED


@promise("host-allowlist.smuggling")
def test_a_request_hidden_in_a_body_stays_a_body():
    post = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: %d\r\n\r\n" % len(EVIL)
    play = opened(post + EVIL)
    assert play.upstream == post + EVIL
    play.answer(OK)
    assert play.rulings == [("a.test", 80, Ruling.GRANTED)]


def test_a_request_behind_a_chunked_body_is_a_request():
    post = b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n"
    play = opened(post + b"5\r\nhello\r\n0\r\n\r\n" + EVIL)
    play.answer(OK)
    assert play.upstream == post + b"5\r\nhello\r\n0\r\n\r\n"
    assert play.rulings[-1] == ("evil.test", 80, Ruling.REFUSED)


@promise("host-allowlist.smuggling")
@pytest.mark.parametrize(
    "chunk", [b"5\nhello", b"5;x\r\n", b"0x5\r\n", b"5\r\nhelloX\r\n", b"0\r\nHost: evil.test\r\n\r\n"]
)
def test_a_chunk_with_two_readings_ends_the_connection(chunk):
    play = opened(b"POST / HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n")
    play.say(chunk + EVIL)
    assert b"evil.test" not in play.upstream
    assert play.rulings[-1] == ("a.test", 80, Ruling.REFUSED)
    assert play.is_closed


# ── upgrades ──

WEBSOCKET = (
    b"GET /ws HTTP/1.1\r\nHost: a.test\r\nSec-WebSocket-Key: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
)


def test_a_websocket_is_relayed_once_the_host_agrees():
    play = opened(WEBSOCKET)
    assert play.upstream == WEBSOCKET
    play.say(b"early")
    switched = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
    assert play.answer(switched + b"frame") == [
        SendClient(switched),
        SendClient(b"frame"),
        SendUpstream(b"early"),
        RELAY,
    ]


def test_a_websocket_that_is_not_agreed_to_stays_http():
    play = opened(WEBSOCKET)
    play.say(EVIL)
    play.answer(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    assert play.upstream == WEBSOCKET
    assert play.rulings[-1] == ("evil.test", 80, Ruling.REFUSED)


def test_an_upgrade_to_http2_is_not_passed_on_and_not_needed():
    play = opened(
        b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AA\r\n\r\n"
    )
    assert play.upstream == GET


def test_a_host_that_changes_the_protocol_unasked_is_cut_off():
    play = opened()
    assert play.answer(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\n\r\n")[-1] == CLOSE
    assert not play.is_relayed


# ── answers ──


def test_interim_answers_are_passed_on_before_the_answer():
    play = opened(b"POST / HTTP/1.1\r\nHost: a.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
    play.answer(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert play.say(b"hi") == [SendUpstream(b"hi")]
    play.answer(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK)
    assert play.client == b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + OK
    assert play.say(GET) == [SendUpstream(GET)]


def test_the_answer_to_head_has_no_body():
    play = opened(b"HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n")
    play.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    assert play.say(GET) == [SendUpstream(GET)]


def test_an_answer_until_the_end_ends_the_connection():
    play = opened()
    play.answer(b"HTTP/1.1 200 OK\r\n\r\nabc", b"def")
    assert play.hear(UPSTREAM_EOF) == [CLOSE]
    assert play.client.endswith(b"abcdef")


@pytest.mark.parametrize("said", ["Connection: close", "Connection: keep-alive, close"])
def test_a_connection_that_is_to_close_is_closed_after_the_answer(said):
    play = opened(f"GET / HTTP/1.1\r\nHost: a.test\r\n{said}\r\n\r\n".encode() + GET)
    assert play.answer(OK)[-1] == CLOSE
    assert play.upstream == b"GET / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n"


def test_an_early_answer_does_not_stop_the_upload_unless_it_closes():
    post = b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nab"
    play = opened(post)
    play.answer(OK)
    assert play.say(b"cd" + GET) == [SendUpstream(b"cd"), SendUpstream(GET)]
    closing = opened(post)
    assert closing.answer(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")[-1] == CLOSE


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)  # fmt: skip
def test_an_answer_that_is_no_http_is_a_failure_of_the_host(answer):
    play = opened()
    play.answer(answer)
    assert play.client.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert play.rulings[-1] == ("a.test", 80, Ruling.FAILED)


def test_an_answer_that_breaks_off_is_a_reset():
    play = opened()
    play.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    assert play.hear(UPSTREAM_EOF)[-1] == RESET


def test_more_than_the_answer_is_never_taken_for_the_next_one():
    play = opened()
    assert play.answer(OK + OK)[-1] == CLOSE
    assert play.client == OK
    assert play.rulings[-1] == ("a.test", 80, Ruling.FAILED)


def test_more_than_an_early_answer_ends_the_connection():
    play = opened(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nab")
    play.answer(OK)
    assert play.answer(b"HTTP/1.1 200 OK\r\n\r\n")[-1] == RESET
    assert play.client == OK


def test_a_host_that_closes_as_the_next_request_comes_lets_the_client_try_again():
    play = opened()
    play.answer(OK)
    play.say(GET)
    assert play.hear(UPSTREAM_EOF) == [CLOSE]
    assert play.client == OK


def test_a_client_that_is_gone_in_the_middle_of_its_request_ends_it():
    play = opened(b"POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n\r\nab")
    assert play.hear(EOF) == [CLOSE]
    half = Play("a.test").transparent("a.test", 80)
    half.say(b"GET / HT")
    half.hear(EOF)
    assert half.rulings == [("a.test", 80, Ruling.FAILED)]


def test_a_client_that_only_stopped_sending_still_gets_its_answer():
    play = opened()
    assert play.hear(EOF) == []
    assert play.answer(OK) == [SendClient(OK[:-2]), SendClient(b"ok"), CLOSE]


# ── credentials ──

TOKEN = Credential(pattern=parse_pattern("a.test:80"), header="Authorization", value="Bearer s3cret")


def test_a_token_is_added_for_its_host_and_replaces_what_the_program_sent():
    play = Play("a.test", credentials=(TOKEN,)).transparent("a.test", 80)
    play.say(b"GET / HTTP/1.1\r\nHost: a.test\r\nAUTHORIZATION: placeholder\r\nAccept: */*\r\n\r\n")
    play.reach()
    assert play.upstream == b"GET / HTTP/1.1\r\nHost: a.test\r\nAccept: */*\r\nAuthorization: Bearer s3cret\r\n\r\n"


def test_a_token_does_not_follow_a_redirect_to_another_granted_host():
    play = Play("a.test", "b.test", credentials=(TOKEN,)).proxy()
    play.say(b"GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n")
    play.reach()
    play.answer(b"HTTP/1.1 302 Found\r\nLocation: http://b.test/\r\nContent-Length: 0\r\n\r\n")
    before = play.upstream
    play.say(b"GET http://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n")
    play.reach()
    assert b"s3cret" in before
    assert play.upstream == before + b"GET / HTTP/1.1\r\nHost: b.test\r\n\r\n"


def test_a_token_is_not_sent_to_an_address_that_only_says_it_is_the_host():
    play = Play("10.0.0.0/8:80", "a.test", credentials=(TOKEN,)).transparent("10.6.6.6", 80)
    play.say(GET)
    play.hear(ev.UpstreamOpened())
    assert play.upstream == GET


def test_a_token_is_in_nothing_the_program_or_a_record_gets_to_see():
    play = Play("a.test", credentials=(TOKEN,)).transparent("a.test", 80)
    play.say(GET)
    play.hear(ev.ResolveFailed("no such name"))
    assert "s3cret" not in repr(play.commands)
    assert b"s3cret" not in play.client


def test_a_token_without_a_port_is_never_sent_in_the_clear():
    bare = Credential(pattern=parse_pattern("a.test"), header="Authorization", value="Bearer s3cret")
    play = Play("a.test", credentials=(bare,)).transparent("a.test", 80)
    play.say(GET)
    play.reach()
    assert play.upstream == GET
    marked = Play("a.test", credentials=(bare,), intercepted=("a.test",)).transparent("a.test", 443)
    marked.say(client_hello("a.test"))
    marked.reach()
    marked.hear(ev.TlsStarted(ev.Side.UPSTREAM), ev.TlsStarted(ev.Side.CLIENT))
    marked.say(GET)
    assert marked.upstream == b"GET / HTTP/1.1\r\nHost: a.test\r\nAuthorization: Bearer s3cret\r\n\r\n"


def test_a_late_timer_says_nothing_into_an_answer():
    play = opened()
    play.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
    before = play.client
    play.hear(ev.TimedOut(Timer.HEAD))
    assert play.client == before
