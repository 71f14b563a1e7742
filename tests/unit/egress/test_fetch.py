"""The transport half of palyra.http.fetch against real servers on loopback: every hop judged, everything bounded."""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from palyra.egress.fetch import HttpFetcher
from palyra.egress.fetch_url import parse_url
from palyra.egress.hosts import parse_pattern
from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchFailed, FetchOrder, FetchUrl
from palyra.model.net import EgressMode, NetGrant
from tests.promises import promise

TOKEN = b"tok-secret-value"
Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Dialing:
    """Names of our own; what is looked up and dialled is kept."""

    table: dict[str, Any]
    looked_up: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def resolve(self, host: str) -> tuple[Any, ...]:
        self.looked_up.append(host)
        answer = self.table.get(host)
        if callable(answer):
            answer = answer()
        if answer is None:
            try:
                return (ipaddress.ip_address(host),)
            except ValueError:
                raise OSError(0, "no such name") from None
        return tuple(ipaddress.ip_address(text) for text in answer)

    async def connect(self, address: Any, port: int) -> socket.socket:
        self.dialled.append((str(address), port))
        made = socket.socket(socket.AF_INET)
        made.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(made, (str(address), port))
        except BaseException:
            made.close()
            raise
        return made


@dataclass
class Site:
    """A server that answers with `handler`; `heads` are the requests it got."""

    handler: Handler
    tls: ssl.SSLContext | None = None
    heads: list[bytes] = field(default_factory=list)
    port: int = 0

    async def __aenter__(self) -> Site:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=self.tls)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(x.split(b":")[1]) for x in head.split(b"\r\n") if x.lower().startswith(b"content-length")), 0
            )
            self.heads.append(head + await reader.readexactly(length))
            await self.handler(head, writer)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()


def says(text: str | bytes) -> Handler:
    async def handler(_: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode("latin-1") if isinstance(text, str) else text)
        await writer.drain()

    return handler


def ok(body: str = "hello", extra: str = "") -> Handler:
    return says(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{extra}\r\n{body}")


def moved(to: str, status: int = 302) -> Handler:
    return says(f"HTTP/1.1 {status} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")


def order(url: str, *granted: str, **changes: Any) -> FetchOrder:
    given: dict[str, Any] = {
        "method": "GET", "url": parse_url(url), "headers": (), "body": b"", "max_bytes": 10_000, "timeout_ms": 10_000,
        "net": NetGrant(EgressMode.STRICT, tuple(parse_pattern(text) for text in granted)), "max_redirects": 5,
    }  # fmt: skip
    return FetchOrder(**(given | changes))


def nobody(_: FetchUrl) -> tuple[Credential, ...]:
    return ()


def for_a(url: FetchUrl) -> tuple[Credential, ...]:
    if url.host != "a.test":
        return ()
    return (Credential(secret="T", host="a.test", header="Authorization", value=b"Bearer " + TOKEN),)


async def failure(fetcher: HttpFetcher, given: FetchOrder, credentials: Any = nobody) -> FetchFailed:
    with pytest.raises(FetchFailed) as caught:
        await fetcher.fetch(given, credentials)
    return caught.value


def loopback(port: int, *names: str) -> tuple[str, ...]:
    """Grants of names that lead to loopback: the range must be granted too."""
    return (*(f"{name}:{port}" for name in names), f"127.0.0.1:{port}")


def test_an_answer_comes_back_with_what_was_sent_and_counted():
    async def story() -> None:
        async with Site(ok("hello", "X-A: b\r\n")) as site:
            dialing = Dialing({"a.test": ["127.0.0.1"]})
            url = f"http://a.test:{site.port}/x?y=1"
            fetched = await HttpFetcher(dialing).fetch(order(url, *loopback(site.port, "a.test")), nobody)
            assert (fetched.status, fetched.url, fetched.body, fetched.truncated) == (200, url, b"hello", False)
            assert ("x-a", "b") in fetched.headers
            (connection,) = fetched.connections
            assert (connection.host, connection.port, connection.verdict) == ("a.test", site.port, "allowed")
            assert (connection.bytes_up, connection.bytes_down > 5) == (len(site.heads[0]), True)
            lines = site.heads[0].split(b"\r\n")
            assert lines[:2] == [b"GET /x?y=1 HTTP/1.1", b"Host: a.test:%d" % site.port]

    asyncio.run(story())


def test_a_post_sends_its_body_and_headers():
    async def story() -> None:
        async with Site(ok()) as site:
            given = order(
                f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}",
                method="POST", body=b'{"a": 1}', headers=(("content-type", "application/json"),),
            )  # fmt: skip
            await HttpFetcher(Dialing({})).fetch(given, nobody)
            assert b"content-type: application/json\r\n" in site.heads[0]
            assert site.heads[0].endswith(b'Content-Length: 8\r\n\r\n{"a": 1}')

    asyncio.run(story())


# ── what may be reached ──────────────────────────────────────────────────────


@promise("egress.fetch-targets")
@pytest.mark.parametrize(
    ("url", "granted", "table", "why"),
    [
        ("http://evil.test/", ("a.test",), {"evil.test": ["127.0.0.1"]}, "not among the granted hosts"),
        ("http://a.test/", (), {"a.test": ["203.0.114.1"]}, "not among the granted hosts"),
        ("http://a.test:8080/", ("a.test",), {"a.test": ["127.0.0.1"]}, "not among the granted hosts"),
        ("http://a.test/", ("a.test",), {"a.test": ["127.0.0.1"]}, "loopback"),
        ("http://a.test/", ("a.test",), {"a.test": ["10.1.2.3"]}, "private"),
        ("http://a.test/", ("a.test",), {"a.test": ["8.8.8.8", "10.1.2.3"]}, "private"),
        ("http://a.test/", ("a.test",), {"a.test": ["::ffff:127.0.0.1"]}, "loopback"),
        ("http://a.test/", ("a.test", "169.254.0.0/16"), {"a.test": ["169.254.169.254"]}, "metadata"),
        ("http://a.test/", ("a.test",), {"a.test": []}, "has no address"),
        ("http://127.0.0.1/", ("a.test",), {}, "not among the granted addresses"),
        ("http://[::1]/", ("a.test",), {}, "not among the granted addresses"),
    ],
)
def test_nothing_is_dialled_that_is_not_granted(url: str, granted: tuple[str, ...], table: dict[str, Any], why: str):
    dialing = Dialing(table)
    failed = asyncio.run(failure(HttpFetcher(dialing), order(url, *granted)))
    assert (failed.code, why in failed.detail, dialing.dialled) == ("EGRESS_DENIED", True, [])
    assert [c.verdict for c in failed.connections] == ["denied"]


@promise("egress.fetch-targets")
def test_a_host_that_is_not_granted_is_not_even_looked_up():
    """A name server would be told what the agent wants to say."""
    dialing = Dialing({})
    asyncio.run(failure(HttpFetcher(dialing), order("http://secret-data.evil.test/", "a.test")))
    assert dialing.looked_up == []


@promise("egress.fetch-targets")
def test_a_name_is_looked_up_once_and_what_was_judged_is_dialled():
    """Rebinding: the second answer would be another address."""

    async def story() -> None:
        async with Site(ok()) as site:
            answers = iter([["127.0.0.1"], ["10.0.0.1"]])
            dialing = Dialing({"a.test": lambda: next(answers)})
            given = order(f"http://a.test:{site.port}/", *loopback(site.port, "a.test"))
            await HttpFetcher(dialing).fetch(given, nobody)
            assert (dialing.looked_up, dialing.dialled) == (["a.test"], [("127.0.0.1", site.port)])

    asyncio.run(story())


@promise("egress.fetch-targets")
def test_a_name_that_leads_elsewhere_at_a_redirect_is_judged_again():
    async def story() -> None:
        async with Site(moved("/again")) as site:
            answers = iter([["127.0.0.1"], ["10.0.0.1"]])
            dialing = Dialing({"a.test": lambda: next(answers)})
            given = order(f"http://a.test:{site.port}/", *loopback(site.port, "a.test"))
            failed = await failure(HttpFetcher(dialing), given)
            assert (failed.code, "private" in failed.detail, len(dialing.dialled)) == ("EGRESS_DENIED", True, 1)

    asyncio.run(story())


# ── redirects ────────────────────────────────────────────────────────────────


@promise("egress.fetch-targets")
@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:22/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/", "http://evil.test/",
        "//evil.test/", "http://10.0.0.1/", "http://localhost/", "http://a.test:1/",
    ],
)  # fmt: skip
def test_a_redirect_to_what_is_not_granted_is_refused(target: str):
    async def story() -> None:
        async with Site(moved(target)) as site:
            dialing = Dialing({"a.test": ["127.0.0.1"]})
            given = order(f"http://a.test:{site.port}/", *loopback(site.port, "a.test"))
            failed = await failure(HttpFetcher(dialing), given, for_a)
            assert failed.code == "EGRESS_DENIED"
            assert [hop.status for hop in failed.redirects] == [302]
            assert [c.verdict for c in failed.connections] == ["allowed", "denied"]
            assert len(dialing.dialled) == 1

    asyncio.run(story())


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "gopher://x/", "http://user:pw@a.test/", "http://0x7f.1/", "\x01", "http://h/\\x"]
)
def test_a_redirect_that_leads_nowhere_is_refused(target: str):
    async def story() -> None:
        async with Site(moved(target)) as site:
            given = order(f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}")
            assert (await failure(HttpFetcher(Dialing({})), given)).code in ("BAD_REDIRECT", "BAD_ANSWER")

    asyncio.run(story())


@promise("egress.fetch-credentials")
def test_a_credential_goes_to_its_host_and_is_not_carried_along_nor_brought_back():
    async def story() -> None:
        async with Site(ok()) as other:
            table = {"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]}

            async def away(head: bytes, writer: asyncio.StreamWriter) -> None:
                to = f"http://b.test:{other.port}/" if head.startswith(b"GET / ") else "http://nowhere.test/"
                await moved(to)(head, writer)

            async with Site(away) as first:
                other.handler = moved(f"http://a.test:{first.port}/chosen-by-b")
                granted = (*loopback(first.port, "a.test"), *loopback(other.port, "b.test"))
                asked = []

                def credentials(url: FetchUrl) -> tuple[Credential, ...]:
                    asked.append(url.host)
                    return for_a(url)

                given = order(f"http://a.test:{first.port}/", *granted)
                await failure(HttpFetcher(Dialing(table)), given, credentials)
                assert [TOKEN in head for head in first.heads] == [True, False]
                assert not any(TOKEN in head for head in other.heads)
                assert asked == ["a.test"]

    asyncio.run(story())


@promise("egress.fetch-credentials")
def test_a_credential_takes_the_place_of_a_field_of_its_name():
    async def story() -> None:
        async with Site(ok()) as site:
            given = order(
                f"http://a.test:{site.port}/",
                *loopback(site.port, "a.test"),
                headers=(("accept", "x"), ("prefer", "y")),
            )
            own = (Credential(secret="T", host="a.test", header="Prefer", value=TOKEN),)
            await HttpFetcher(Dialing({"a.test": ["127.0.0.1"]})).fetch(given, lambda _: own)
            assert b"prefer: y" not in site.heads[0]
            assert b"\r\nPrefer: " + TOKEN + b"\r\n" in site.heads[0]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "method"), [(301, b"GET"), (302, b"GET"), (303, b"GET"), (307, b"POST"), (308, b"POST")]
)
def test_a_redirected_post_keeps_its_body_only_where_it_must(status: int, method: bytes):
    async def story() -> None:
        async with Site(ok()) as site:

            async def once(head: bytes, writer: asyncio.StreamWriter) -> None:
                await (moved("/next", status) if head.startswith(b"POST / ") else ok())(head, writer)

            site.handler = once
            given = order(f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}", method="POST", body=b"data")
            await HttpFetcher(Dialing({})).fetch(given, nobody)
            assert (site.heads[1].split(b" ")[0], site.heads[1].endswith(b"data")) == (method, method == b"POST")

    asyncio.run(story())


def test_a_body_is_never_sent_on_to_another_host():
    async def story() -> None:
        async with Site(ok()) as other, Site(moved(f"http://b.test:{other.port}/", 307)) as first:
            granted = (*loopback(first.port, "a.test"), *loopback(other.port, "b.test"))
            given = order(f"http://a.test:{first.port}/", *granted, method="POST", body=b"data")
            dialing = Dialing({"a.test": ["127.0.0.1"], "b.test": ["127.0.0.1"]})
            assert (await failure(HttpFetcher(dialing), given)).code == "BAD_REDIRECT"
            assert other.heads == []

    asyncio.run(story())


def test_a_loop_of_redirects_ends_and_none_can_be_asked_for():
    async def story() -> None:
        async with Site(moved("/")) as site:
            given = order(f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}", max_redirects=3)
            failed = await failure(HttpFetcher(Dialing({})), given)
            assert (failed.code, len(site.heads)) == ("TOO_MANY_REDIRECTS", 4)
            none = order(f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}", max_redirects=0)
            fetched: Fetched = await HttpFetcher(Dialing({})).fetch(none, nobody)
            assert (fetched.status, dict(fetched.headers)["location"]) == (302, "/")

    asyncio.run(story())


# ── hostile servers ──────────────────────────────────────────────────────────


def asked(handler: Handler, **changes: Any) -> Fetched | FetchFailed:
    async def story() -> Fetched | FetchFailed:
        async with Site(handler) as site:
            given = order(f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}", **changes)
            try:
                return await HttpFetcher(Dialing({})).fetch(given, nobody)
            except FetchFailed as failed:
                return failed

    return asyncio.run(story())


async def endless(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def silent(_: bytes, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def dripping(_: bytes, writer: asyncio.StreamWriter) -> None:
    for letter in b"HTTP/1.1 200 OK\r\nX: " + b"y" * 5000:
        writer.write(bytes([letter]))
        await asyncio.sleep(0.02)


async def huge_head(_: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"X: " + b"y" * 60000 + b"\r\n")
        await writer.drain()


def test_an_endless_body_is_cut():
    fetched = asked(endless)
    assert isinstance(fetched, Fetched)
    assert (len(fetched.body), fetched.truncated) == (10_000, True)


@pytest.mark.parametrize("handler", [silent, dripping])
def test_a_slow_server_is_left_at_the_deadline(handler: Handler):
    failed = asked(handler, timeout_ms=300)
    assert isinstance(failed, FetchFailed)
    assert failed.code == "TIMEOUT"


@pytest.mark.parametrize(
    "handler",
    [
        huge_head, says("garbage"), says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        says("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"), says(""),
        says("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_refused(handler: Handler):
    failed = asked(handler)
    assert isinstance(failed, FetchFailed)
    assert failed.code in ("BAD_ANSWER", "CONNECTION_LOST")


def test_a_closed_port_and_an_unknown_name_are_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    fetcher = HttpFetcher(Dialing({}))
    assert (
        asyncio.run(failure(fetcher, order(f"http://127.0.0.1:{port}/", f"127.0.0.1:{port}"))).code == "CONNECT_FAILED"
    )
    assert asyncio.run(failure(fetcher, order("http://a.test/", "a.test"))).code == "LOOKUP_FAILED"


def test_a_cancelled_fetch_closes_its_connection():
    async def story() -> None:
        gone = asyncio.Event()

        async def watch(_: bytes, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.01)
            finally:
                gone.set()

        async with Site(watch) as site:
            given = order(f"http://127.0.0.1:{site.port}/", f"127.0.0.1:{site.port}")
            task = asyncio.create_task(HttpFetcher(Dialing({})).fetch(given, nobody))
            while not site.heads:
                await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.wait_for(gone.wait(), 10)

    asyncio.run(story())


# ── TLS ──────────────────────────────────────────────────────────────────────


@dataclass
class Authority:
    folder: Path

    def __post_init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test authority")])
        self._certificate = self._sign(
            self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None)
        )
        (self.folder / "ca.pem").write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def _sign(self, name: x509.Name, key: Any, *extensions: Any) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(days=1))
        builder = builder.not_valid_after(now + datetime.timedelta(days=1))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(self._key, hashes.SHA256())

    def server(self, host: str) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(host)])
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
        issued = self._sign(subject, key.public_key(), names)
        file = self.folder / f"{host}.pem"
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file.write_bytes(private + issued.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.pem"))


def over_tls(tmp_path: Path, host: str, *, trusted: bool) -> tuple[Fetched | FetchFailed, list[bytes]]:
    async def story() -> tuple[Fetched | FetchFailed, list[bytes]]:
        authority = Authority(tmp_path)
        async with Site(ok(), tls=authority.server("a.test")) as site:
            make = authority.trusting if trusted else ssl.create_default_context
            fetcher = HttpFetcher(Dialing({host: ["127.0.0.1"]}), tls=make)
            given = order(f"https://{host}:{site.port}/", *loopback(site.port, host))
            try:
                return await fetcher.fetch(given, for_a), site.heads
            except FetchFailed as failed:
                return failed, site.heads

    return asyncio.run(story())


def test_a_server_is_verified_against_the_granted_name(tmp_path: Path):
    fetched, heads = over_tls(tmp_path, "a.test", trusted=True)
    assert isinstance(fetched, Fetched)
    assert TOKEN in heads[0]


@pytest.mark.parametrize(("host", "trusted"), [("b.test", True), ("a.test", False)])
def test_another_name_or_an_unknown_authority_gets_no_request(tmp_path: Path, host: str, trusted: bool):
    failed, heads = over_tls(tmp_path, host, trusted=trusted)
    assert isinstance(failed, FetchFailed)
    assert (failed.code, heads) == ("TLS_FAILED", [])


def test_a_redirect_from_https_to_http_is_not_followed(tmp_path: Path):
    async def story() -> None:
        authority = Authority(tmp_path)
        async with Site(ok()) as plain:
            handler = moved(f"http://a.test:{plain.port}/")
            async with Site(handler, tls=authority.server("a.test")) as site:
                fetcher = HttpFetcher(Dialing({"a.test": ["127.0.0.1"]}), tls=authority.trusting)
                granted = (*loopback(site.port, "a.test"), *loopback(plain.port, "a.test"))
                failed = await failure(fetcher, order(f"https://a.test:{site.port}/", *granted))
                assert (failed.code, plain.heads) == ("BAD_REDIRECT", [])

    asyncio.run(story())


def test_plain_http_on_a_port_that_should_speak_tls_is_refused():
    async def story() -> None:
        async with Site(says("HTTP/1.1 200 OK\r\n\r\n")) as site:
            given = order(f"https://a.test:{site.port}/", *loopback(site.port, "a.test"), timeout_ms=3000)
            failed = await failure(HttpFetcher(Dialing({"a.test": ["127.0.0.1"]})), given)
            assert failed.code in ("TLS_FAILED", "TIMEOUT")

    asyncio.run(story())
