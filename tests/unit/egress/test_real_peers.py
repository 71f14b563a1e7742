"""Real TLS on both ends of a conversation, and requests as a careless server would read them. No sockets."""

from __future__ import annotations

import contextlib
import datetime
import re
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from palyra.egress import events as ev
from palyra.egress.clienthello import HandshakeReader, is_retry
from palyra.egress.events import Ruling, SendClient, SendUpstream
from tests.unit.egress.playbook import Play

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a.test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("a.test")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("tls") / "a.pem"
    plain = serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return str(path)


class Peer:
    """One end of TLS over memory."""

    def __init__(self, context: ssl.SSLContext, **options) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, **options)
        self.is_ready = False

    def step(self, data: bytes = b"") -> bytes:
        self.incoming.write(data)
        if not self.is_ready:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.tls.do_handshake()
                self.is_ready = True
        return self.outgoing.read()


def shake_hands(play: Play, client: Peer, server: Peer) -> None:
    """Through the conversation until it relays, then straight through. `reach` is done when it asks for it."""
    said = client.step()
    for _ in range(12):
        if said and not play.is_relayed:
            before = len(play.commands)
            play.say(said)
            if ev.Resolve("a.test") in play.commands[before:]:
                play.reach()
            said = b"".join(one.data for one in play.commands[before:] if isinstance(one, SendUpstream))
        heard = server.step(said)
        if heard and not play.is_relayed:
            before = len(play.commands)
            play.answer(heard)
            now = play.commands[before:]
            heard = b"".join(one.data for one in now if isinstance(one, SendClient))
            held = b"".join(one.data for one in now if isinstance(one, SendUpstream))
            heard += server.step(held) if held else b""
        said = client.step(heard)
        if client.is_ready and server.is_ready and not said:
            return


@pytest.mark.parametrize("curve", [None, "secp384r1"], ids=["straight", "with a retry request"])
def test_real_tls_shakes_hands_through_a_conversation(certificate, curve):
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    if curve:
        serving.set_ecdh_curve(curve)  # not what clients offer a share of at first: TLS 1.3 asks again
    asking = ssl.create_default_context(cafile=certificate)
    play = Play("a.test").transparent("a.test", 443)
    client, server = Peer(asking, server_hostname="a.test"), Peer(serving, server_side=True)
    shake_hands(play, client, server)
    assert (client.is_ready, server.is_ready, play.is_relayed) == (True, True, True)
    assert client.tls.version() == "TLSv1.3"
    first = next(one.data for one in play.commands if isinstance(one, SendClient))
    assert is_retry(HandshakeReader(), bytearray(first)) is bool(curve)
    assert play.rulings == [("a.test", 443, Ruling.GRANTED)]


# ── a server that forgives everything ──


def careless(data: bytes) -> list[tuple[str, bytes]]:
    """(method, every Host) of each request, read as generously as any server may: bare LF, folded lines, spaces
    before colons, the last length, Transfer-Encoding first. What it sees beyond what we judged would be smuggled."""
    found = []
    while data.strip():
        data = data.lstrip()
        end = re.search(rb"\r?\n\r?\n", data)
        if end is None:
            break
        head, data = data[: end.start()], data[end.end() :]
        lines = re.split(rb"\r\n|\n|\r", head)
        fields = [line.split(b":", 1) for line in lines[1:] if b":" in line]
        named = [(name.strip().lower().replace(b"_", b"-"), value.strip()) for name, value in fields]
        hosts = [value for name, value in named if name == b"host"]
        found.append((lines[0].split()[0].decode("latin-1"), b"|".join(hosts)))
        if any(name == b"transfer-encoding" and b"chunked" in value.lower() for name, value in named):
            data = _after_chunks(data)
        else:
            lengths = [int(value) for name, value in named if name == b"content-length" and value.isdigit()]
            data = data[lengths[-1] if lengths else 0 :]
    return found


def _after_chunks(data: bytes) -> bytes:
    while data:
        line, _, data = data.partition(b"\n")
        size = re.match(rb"\s*([0-9a-fA-F]+)", line)
        if size is None:
            return data
        length = int(size[1], 16)
        if length == 0:
            return data.partition(b"\n")[2]
        data = data[length:].lstrip(b"\r\n")
    return data


LINES = st.sampled_from([
    b"Host: a.test\r\n", b"Host: evil.test\r\n", b"Content-Length: 5\r\n", b"Content-Length: 0\r\n",
    b"Content-Length:44\r\n", b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding : chunked\r\n", b"X: y\n",
    b" folded\r\n", b"Connection: close\r\n", b"Content_Length: 5\r\n", b"X: y\r", b"\r\n", b"Host : evil.test\r\n",
])  # fmt: skip
BODIES = st.sampled_from([
    b"", b"hello", b"0\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n", b"5;x\r\nhello\r\n0\r\n\r\n", b"5\nhello\n0\n\n",
    b"GET /secret HTTP/1.1\r\nHost: evil.test\r\n\r\n", b"0\r\nHost: evil.test\r\n\r\n", b"\r\n", b"f\r\nhello",
])  # fmt: skip
REQUESTS = st.tuples(
    st.sampled_from([b"GET / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.0\r\n", b"GET / HTTP/1.1\n"]),
    st.lists(LINES, max_size=3).map(b"".join),
    st.sampled_from([b"Host: a.test\r\n\r\n", b"Host: a.test\r\nContent-Length: 5\r\n\r\n", b"\r\n"]),
    BODIES,
).map(b"".join)


@given(st.lists(REQUESTS, min_size=1, max_size=4), st.integers(1, 60))
def test_no_careless_server_sees_a_request_that_was_not_judged(requests, step):
    play = Play("a.test").transparent("a.test", 80)
    said = b"".join(requests)
    answered = 0
    for at in range(0, len(said), step):
        play.say(said[at : at + step])
        if ev.Resolve("a.test") in play.commands and not play.was_dialled:
            play.reach()
        seen = careless(play.upstream)
        if len(seen) > answered and not play.is_closed:
            play.answer(OK)
            answered = len(seen)
    assert {host for _, host in careless(play.upstream)} <= {b"a.test"}
