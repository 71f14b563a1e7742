"""Blobs by digest: the same promises of a folder and of an S3-compatible store, with a real server of the latter."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import orjson
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as BotoCredentials

from palyra.canon import canonical
from palyra.cluster import s3
from palyra.cluster.blob_places import from_box, open_blobs, to_box
from palyra.cluster.blobs import BlobFolder, BlobMissing
from palyra.cluster.s3 import S3Blobs, Store
from palyra.cluster.sealing import Lock, seal
from palyra.cluster.sigv4 import Credentials, Request, signed
from palyra.config.cluster import BlobsConfig
from palyra.errors import StateError, TrustError
from palyra.model.outcome import Status
from palyra.signing import SigningKey
from palyra.wiring.cluster import store_credentials
from tests.cluster.machines import CLUSTER_KEY, Machines, plan_of
from tests.cluster.stores_of_blobs import ADMIN, Server, blobs_in, now_unix_ms, s3_server
from tests.conformance.arena import Kept

NODE_KEY = SigningKey(bytes(range(1, 33)))
TEMPORARY = Credentials(access_key="ASIAEXAMPLE", secret_key="a/b+c=", session_token="tok/en+==")


# ── any store ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("data", [b"", b"small", b"\0" * (s3.SMALL_BYTES + 1)])
def test_what_was_put_is_there_by_its_digest_and_goes_when_it_is_deleted(blobs, data):
    name = blobs.put(data)
    assert name == hashlib.sha256(data).hexdigest() == blobs.put(data)
    assert (blobs.get(name, most_bytes=len(data)), blobs.has(name)) == (data, True)
    ((listed, at, size),) = blobs.kept()
    assert (listed, size) == (name, len(data))
    assert abs(at - now_unix_ms()) < 3_600_000
    for _ in range(2):
        blobs.delete(name)
    assert (blobs.has(name), list(blobs.kept())) == (False, [])
    with pytest.raises(BlobMissing, match="is missing"):
        blobs.get(name, most_bytes=10)
    assert blobs.put(data) == name
    assert blobs.has(name)


def test_a_blob_larger_than_it_may_be_is_refused(blobs):
    name = blobs.put(b"x" * 1000)
    with pytest.raises(StateError, match="does not match its digest"):
        blobs.get(name, most_bytes=999)


def test_a_name_that_is_no_digest_reaches_nothing(blobs):
    blobs.put(b"x")
    for name in ("../x", "", "A" * 64, "0" * 63, "0" * 64 + "/../x"):
        for way in (lambda name=name: blobs.get(name, most_bytes=9), lambda name=name: blobs.has(name),
                    lambda name=name: blobs.delete(name)):  # fmt: skip
            with pytest.raises(StateError, match="not a digest"):
                way()


# ── S3 ───────────────────────────────────────────────────────────────────────


def test_an_object_that_somebody_changed_in_the_bucket_is_refused(store_server):
    blobs = store_server.blobs("changed")
    name = blobs.put(b"right")
    store_server.client().put_object(Bucket="changed", Key=f"palyra/blobs/{name}", Body=b"wrong")
    with pytest.raises(StateError, match="does not match its digest"):
        blobs.get(name, most_bytes=100)


def test_a_listing_goes_on_over_pages_and_tells_digests_alone(store_server):
    store = store_server.bucket("pages")
    client = store_server.client()
    names = {hashlib.sha256(str(number).encode()).hexdigest() for number in range(1005)}
    for name in names:
        client.put_object(Bucket="pages", Key=f"palyra/blobs/{name}", Body=b"")
    client.put_object(Bucket="pages", Key="palyra/blobs/readme&<x>", Body=b"")
    client.put_object(Bucket="pages", Key=f"elsewhere/{'0' * 64}", Body=b"")
    listed = [name for name, *_ in blobs_in(store).kept()]
    assert (len(listed), set(listed)) == (1005, names)


def test_a_server_that_checks_signatures_takes_ours_and_no_other(monkeypatch):
    """moto judges every request's signature once authentication is on."""
    with s3_server() as strict:
        blobs = strict.blobs("signed")
        user = strict.user()
        strict.check_signatures()
        ours = blobs_in(blobs._store, user)
        name = ours.put(b"x" * 100_000)
        assert ours.get(name, most_bytes=100_000) == b"x" * 100_000
        assert [one for one, *_ in ours.kept()] == [name]
        for other in (replace(user, secret_key="another"), ADMIN):
            with pytest.raises(StateError, match=r"answers 403 \w+") as refused:
                blobs_in(blobs._store, other).get(name, most_bytes=10)
            assert "[cluster.blobs]" in (refused.value.hint or "")
            assert other.secret_key not in f"{refused.value} {refused.value.hint}"


def test_a_bucket_that_is_not_there_is_said_to_be_so(store_server):
    store = Store(endpoint=store_server.endpoint, bucket="nobody", region="us-east-1")
    blobs = blobs_in(store)
    for way in (lambda: blobs.put(b"x"), lambda: blobs.get("0" * 64, most_bytes=1), lambda: list(blobs.kept())):
        with pytest.raises(StateError, match="NoSuchBucket"):
            way()


class _Odd(BaseHTTPRequestHandler):
    """Answers as it is told to, once each; then as a store that has everything."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[list[Any]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        type(self).asked.append(self.path)
        answer = self.answers.pop(0) if self.answers else (200, b"good", {})
        if answer == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, body, headers = answer
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        if int(headers.get("Content-Length", len(body))) != len(body):
            self.close_connection = True

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def odd(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[S3Blobs, type[_Odd]]]:
    monkeypatch.setattr(s3, "FIRST_PAUSE_S", 0.001)
    _Odd.answers, _Odd.asked = [], []
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _Odd)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    store = Store(endpoint=f"http://127.0.0.1:{listening.server_port}", bucket="odd", region="r")
    blobs = S3Blobs(store, lambda: ADMIN, now_unix_ms)
    yield blobs, _Odd
    blobs.close()
    listening.shutdown()
    listening.server_close()


GOOD = hashlib.sha256(b"good").hexdigest()


def test_a_store_that_falters_is_asked_again_a_few_times(odd):
    blobs, handler = odd
    handler.answers += [
        (503, b"<Error><Code>SlowDown</Code></Error>", {}),
        "cut",
        (200, b"go", {"Content-Length": "4"}),
    ]
    assert blobs.get(GOOD, most_bytes=10) == b"good"
    handler.answers += [(500, b"", {})] * s3.ATTEMPTS
    with pytest.raises(StateError, match="cannot be used: it answers 500"):
        blobs.get(GOOD, most_bytes=10)
    assert len(handler.asked) == 2 * s3.ATTEMPTS


def test_a_redirect_is_not_followed_and_an_endless_answer_is_not_read(odd):
    blobs, handler = odd
    handler.answers += [(307, b"", {"Location": "http://127.0.0.1:1/"})]
    with pytest.raises(StateError, match="it redirects"):
        blobs.get(GOOD, most_bytes=10)
    handler.answers += [(200, b"x" * 100, {"Content-Length": str(1 << 40)})] * s3.ATTEMPTS
    with pytest.raises(StateError, match="cut short"):
        blobs.get(GOOD, most_bytes=10)
    handler.answers += [(403, b"<Code>\x1b[31m<script>Denied</Code>", {})]
    with pytest.raises(StateError, match=r"(?m)answers 403\.$"):
        blobs.get(GOOD, most_bytes=10)


def test_a_store_that_is_away_is_said_to_be_so_with_what_to_look_at(monkeypatch):
    monkeypatch.setattr(s3, "FIRST_PAUSE_S", 0.001)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        store = Store(endpoint=f"http://127.0.0.1:{taken.getsockname()[1]}", bucket="abc", region="r")
        with pytest.raises(StateError, match="cannot be used") as away:
            blobs_in(store).put(b"x")
    assert "endpoint" in (away.value.hint or "")


# ── signatures, held against botocore's ──────────────────────────────────────


@pytest.mark.parametrize("credentials", [ADMIN, TEMPORARY])
@pytest.mark.parametrize(
    ("method", "path", "query", "body"),
    [
        ("GET", "/bucket/palyra/blobs/00ff", {}, b""),
        ("PUT", "/bucket/a b~c*/ü+%41", {}, b"body"),
        ("GET", "/bucket", {"list-type": "2", "prefix": "a/b c", "continuation-token": "x+/=&é"}, b""),
        ("HEAD", "/", {}, b""),
        ("DELETE", "/bucket/x", {}, b""),
    ],
)
def test_a_signature_is_botocores(method, path, query, body, credentials):
    request = Request(
        method=method, host="s3.example:9000", path=path, query=query, payload_sha256=hashlib.sha256(body).hexdigest()
    )
    ours = signed(request, credentials, region="eu-central-1", now_unix_ms=now_unix_ms())
    boto = AWSRequest(method=method, url=f"https://s3.example:9000{request.target}", data=body)
    boto.headers["X-Amz-Content-SHA256"] = request.payload_sha256
    boto.context["payload_signing_enabled"] = True
    signer = S3SigV4Auth(
        BotoCredentials(credentials.access_key, credentials.secret_key, credentials.session_token or None),
        "s3",
        "eu-central-1",
    )
    signer.add_auth(boto)
    assert ours["x-amz-date"] == boto.context["timestamp"]  # taken within one second, or this test is run again
    assert ours["authorization"] == boto.headers["Authorization"]


def test_secrets_do_not_show_in_a_representation():
    assert "a/b+c=" not in repr(TEMPORARY)
    assert "tok" not in repr(TEMPORARY)


# ── credentials ──────────────────────────────────────────────────────────────


def test_credentials_are_the_vaults_or_the_three_names_of_the_environment(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    named = BlobsConfig(endpoint="https://s", bucket="abc", access_key="A", secret="store")
    assert store_credentials(named, {"store": b"key\n"}.get)() == Credentials(access_key="A", secret_key="key")
    with pytest.raises(StateError, match="no secret store") as gone:
        store_credentials(named, lambda _: None)()
    assert "palyra secrets set store --scope tool=cluster.blobs" in (gone.value.hint or "")
    unnamed = store_credentials(replace(named, access_key="", secret=""), lambda _: None)
    with pytest.raises(StateError, match="no credentials"):
        unnamed()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "E")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    assert unnamed() == Credentials(access_key="E", secret_key="s", session_token="t")


def test_credentials_reach_the_node_they_are_sealed_to_and_nobody_else():
    lock = Lock("one", NODE_KEY)
    box = seal(to_box(TEMPORARY), lock.shown, node_id="one", node_key=NODE_KEY.public, key=CLUSTER_KEY)
    assert b"a/b+c" not in box
    assert from_box(lock.open(orjson.loads(box), CLUSTER_KEY.public)) == TEMPORARY
    for other in (Lock("one", NODE_KEY), Lock("two", NODE_KEY)):  # another start of it, another node
        with pytest.raises(TrustError):
            other.open(orjson.loads(box), CLUSTER_KEY.public)
    with pytest.raises(TrustError):  # a daemon of another cluster
        lock.open(orjson.loads(box), NODE_KEY.public)
    stranger = SigningKey(os.urandom(32))
    for shown, node_id, key in ((Lock("one", stranger).shown, "one", NODE_KEY), (lock.shown, "two", NODE_KEY)):
        with pytest.raises(TrustError):  # a lock that the node did not sign, or another node's
            seal(to_box(TEMPORARY), shown, node_id=node_id, node_key=key.public, key=CLUSTER_KEY)


def test_a_box_that_was_changed_does_not_open():
    import base64

    lock = Lock("one", NODE_KEY)
    envelope = orjson.loads(seal(to_box(ADMIN), lock.shown, node_id="one", node_key=NODE_KEY.public, key=CLUSTER_KEY))
    told = orjson.loads(base64.b64decode(envelope["payload"]))
    for name, value in (("sealed", "AAAA"), ("from", base64.b64encode(bytes(32)).decode()), ("sealed", 7)):
        from palyra.cluster.sealing import BOX_TYPE
        from palyra.signing import dsse_sign

        with pytest.raises(TrustError):
            lock.open(dsse_sign(CLUSTER_KEY, BOX_TYPE, canonical({**told, name: value})), CLUSTER_KEY.public)


# ── calls ────────────────────────────────────────────────────────────────────


@pytest.fixture
def machines(machines: Machines, store_server: Server) -> Machines:
    machines.blobs = store_server.blobs(f"calls{os.urandom(4).hex()}")
    return machines


def test_a_call_finds_its_workspace_in_the_store_and_brings_changes_home_by_it(machines, workspace):
    machines.add("one")
    (workspace / "in").write_bytes(b"given" * 100_000)
    (workspace / "empty").touch()
    execution = asyncio.run(
        machines.executor().run(plan_of(workspace, "wc -c < in; cp in out; rm empty"), out := Kept())
    )
    assert (execution.status, out.stdout) == (Status.COMPLETED, "500000\n")
    assert (workspace / "out").read_bytes() == b"given" * 100_000
    assert not (workspace / "empty").exists()


def test_blobs_that_were_removed_behind_the_daemons_back_are_put_again_once(machines, workspace):
    """Whoever keeps the bucket small may remove any blob at any time; the copy on the node is gone too."""
    machines.add("one")
    (workspace / "in").write_text("given")
    executor = machines.executor()
    asyncio.run(executor.run(plan_of(workspace, "true"), Kept()))
    for name, *_ in list(blobs_in(machines.blobs._store).kept()):
        blobs_in(machines.blobs._store).delete(name)
    machines.nodes["one"].copies._idle.clear()
    execution = asyncio.run(executor.run(plan_of(workspace, "cat in"), out := Kept()))
    assert (execution.status, execution.exit_code, out.stdout) == (Status.COMPLETED, 0, "given")

    class Sieve:
        def __getattr__(self, name: str) -> Any:
            return getattr(machines.blobs, name)

        def get(self, sha256: str, *, most_bytes: int) -> bytes:
            raise BlobMissing("gone")

    machines.nodes["one"].blobs = Sieve()
    machines.nodes["one"].copies._idle.clear()
    execution = asyncio.run(executor.run(plan_of(workspace, "cat in"), Kept()))
    assert execution.status is Status.FAILED
    assert "does not keep what it is given" in execution.message


def test_open_blobs_takes_the_place_that_is_configured(tmp_path, store_server):
    def never() -> Credentials:
        raise AssertionError("a folder needs none")

    assert isinstance(open_blobs(BlobsConfig(folder=str(tmp_path)), never, now_unix_ms), BlobFolder)
    store = store_server.bucket("opened")
    config = BlobsConfig(endpoint=store.endpoint, bucket="opened", prefix="a/")
    blobs = open_blobs(config, lambda: ADMIN, now_unix_ms)
    assert blobs.get(blobs.put(b"x"), most_bytes=1) == b"x"
    blobs.close()
