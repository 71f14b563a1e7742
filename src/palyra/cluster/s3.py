"""Blobs in an S3-compatible store: objects named by their digest below one prefix of one bucket.

Rules: path-style addresses; TLS, unless the store is on loopback; no redirect is followed, because it would take the
signature elsewhere; every body that comes is bounded and held against its name; a request is sent at most `ATTEMPTS`
times, and only where sending again changes nothing (all of these are). A store that refuses, or cannot be reached, is a
`StateError` that says why and which setting to look at. Not here: signing (cluster/sigv4).
"""

from __future__ import annotations

import hashlib
import http.client
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from html import unescape
from urllib.parse import urlsplit

from palyra.cluster.blobs import KeptBlob, check_digest, checked, is_digest, missing
from palyra.cluster.sigv4 import Credentials, Request, signed
from palyra.errors import StateError

ATTEMPTS = 4
FIRST_PAUSE_S = 0.1
TIMEOUT_S = 30.0
MOST_IDLE = 8
MOST_REMEMBERED = 100_000
SMALL_BYTES = 32 << 10
"""What is smaller is sent without asking whether it is there: asking costs as much."""
MOST_TOLD_BYTES = 4 << 20
"""Of an answer that is no blob: a page of a listing, an error."""
FRESH_S = 3600.0
"""So long what was put, or seen to be young, counts as put now; a collection leaves what is younger than a day."""
AGAIN = frozenset({408, 429, 500, 502, 503, 504})
HINT = "Check [cluster.blobs]: endpoint, bucket, region, access_key, secret."
_LISTED = re.compile(rb"<Contents>(.*?)</Contents>", re.DOTALL)
_TAG = {name: re.compile(rf"<{name}>([^<]*)</{name}>".encode()) for name in ("Key", "LastModified", "Size", "Code")}
_NEXT = re.compile(rb"<NextContinuationToken>([^<]*)</NextContinuationToken>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Where it is; no secret."""

    endpoint: str
    bucket: str
    region: str
    prefix: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    body: bytes = field(repr=False)
    date: str = ""
    """When it was answered, by the store's clock."""
    modified: str = ""


class S3Blobs:
    """Used by many threads at once; connections are kept and used again."""

    def __init__(self, store: Store, credentials: Callable[[], Credentials], now_unix_ms: Callable[[], int]) -> None:
        self._store, self._credentials, self._now = store, credentials, now_unix_ms
        parts = urlsplit(store.endpoint)
        self._is_tls, self._name, self._port = parts.scheme == "https", parts.hostname or "", parts.port
        self._host = parts.netloc
        self._base = f"{parts.path.rstrip('/')}/{store.bucket}"
        self._tls = ssl.create_default_context(cafile=store.ca_file or None) if self._is_tls else None
        self._idle: list[http.client.HTTPConnection] = []
        self._there: dict[str, float] = {}
        """Digests that this process has put or seen, and when: a file is not asked about with every call."""
        self._guard = threading.Lock()

    def put(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if time.monotonic() - self._there.get(sha256, -FRESH_S) < FRESH_S:
            return sha256
        if len(data) <= SMALL_BYTES or not self._is_young(sha256):
            self._expect(self._ask("PUT", sha256, body=data), {200, 201, 204}, f"keep {sha256}")
        self._remember(sha256)
        return sha256

    def _is_young(self, sha256: str) -> bool:
        """There, and put within the hour: else it is put again, so that no collection takes it meanwhile."""
        answer = self._look(sha256)
        now, put = _date_ms(answer.date), _date_ms(answer.modified)
        return answer.status == 200 and now > 0 and put > 0 and now - put < FRESH_S * 1000

    def get(self, sha256: str, *, most_bytes: int) -> bytes:
        check_digest(sha256)
        answer = self._ask("GET", sha256, most_bytes=most_bytes)
        if answer.status == 404 and _code(answer) != "NoSuchBucket":
            self._there.pop(sha256, None)
            raise missing(sha256)
        self._expect(answer, {200}, f"read {sha256}")
        return checked(answer.body, sha256, most_bytes=most_bytes)

    def has(self, sha256: str) -> bool:
        return self._look(sha256).status == 200

    def _look(self, sha256: str) -> _Answer:
        check_digest(sha256)
        answer = self._ask("HEAD", sha256)
        self._expect(answer, {200, 404}, f"look for {sha256}")
        return answer

    def delete(self, sha256: str) -> None:
        check_digest(sha256)
        self._there.pop(sha256, None)
        self._expect(self._ask("DELETE", sha256), {200, 204, 404}, f"remove {sha256}")

    def delete_older(self, name: str, before_unix_ms: int) -> bool:
        """Looked at a moment before: S3 has no removal that asks for the age itself. Whoever puts in this very moment
        what is that old finds it missing: a workspace is put again, a node's change fails its call and changes
        nothing."""
        seen = self._look(name)
        if seen.status == 200:
            if not 0 < _date_ms(seen.modified) < before_unix_ms:  # what tells no time is not known to be old
                return False
            self.delete(name)
        return True

    def now_unix_ms(self) -> int:
        answer = self._ask("GET", "", query={"list-type": "2", "prefix": self._store.prefix, "max-keys": "1"})
        self._expect(answer, {200}, "list its blobs")
        now = _date_ms(answer.date)
        if not now:
            raise StateError("The blob store does not tell the time.", HINT)
        return now

    def kept(self) -> Iterator[KeptBlob]:
        query = {"list-type": "2", "prefix": self._store.prefix, "max-keys": "1000"}
        while True:
            page = self._ask("GET", "", query=query)
            self._expect(page, {200}, "list its blobs")
            for listed in _LISTED.findall(page.body):
                key = unescape(_found("Key", listed)).removeprefix(self._store.prefix)
                if is_digest(key):
                    yield KeptBlob(key, _unix_ms(_found("LastModified", listed)), int(_found("Size", listed) or 0))
            following = _NEXT.search(page.body)
            if following is None:
                return
            query = {**query, "continuation-token": unescape(following[1].decode("utf-8", "replace"))}

    def forget(self) -> None:
        with self._guard:
            self._there.clear()

    def close(self) -> None:
        with self._guard:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # ── requests ──

    def _ask(
        self,
        method: str,
        sha256: str,
        *,
        body: bytes = b"",
        query: Mapping[str, str] | None = None,
        most_bytes: int = 0,
    ) -> _Answer:
        path = f"{self._base}/{self._store.prefix}{sha256}" if sha256 else self._base
        request = Request(
            method=method,
            host=self._host,
            path=path,
            query=query or {},
            payload_sha256=hashlib.sha256(body).hexdigest(),
        )
        pause_s, why = FIRST_PAUSE_S, ""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause_s)
                pause_s *= 4
            try:
                answer = self._send(request, body, max(most_bytes + 1, MOST_TOLD_BYTES))
            except (OSError, http.client.HTTPException) as error:
                why = f"{error}" or type(error).__name__
                continue
            if answer.status not in AGAIN:
                return answer
            why = f"it answers {answer.status} {_code(answer)}".rstrip()
        raise StateError(f"The blob store {self._store.endpoint} cannot be used: {why}.", HINT)

    def _send(self, request: Request, body: bytes, most_bytes: int) -> _Answer:
        connection = self._connection()
        try:
            headers = signed(request, self._credentials(), region=self._store.region, now_unix_ms=self._now())
            connection.request(request.method, request.target, body or None, headers)
            answer = connection.getresponse()
            told = _Answer(
                status=answer.status,
                body=answer.read(most_bytes),
                date=answer.getheader("Date", ""),
                modified=answer.getheader("Last-Modified", ""),
            )
            if answer.length and len(told.body) < most_bytes:
                raise ConnectionError("its answer was cut short")
            is_whole = answer.isclosed()
        except BaseException:
            connection.close()
            raise
        if is_whole and not answer.will_close:
            self._give_back(connection)
        else:
            connection.close()
        return told

    def _connection(self) -> http.client.HTTPConnection:
        with self._guard:
            if self._idle:
                return self._idle.pop()
        if self._tls is None:
            return http.client.HTTPConnection(self._name, self._port, timeout=TIMEOUT_S)
        return http.client.HTTPSConnection(self._name, self._port, timeout=TIMEOUT_S, context=self._tls)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        with self._guard:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _remember(self, sha256: str) -> None:
        with self._guard:
            if len(self._there) >= MOST_REMEMBERED:
                self._there.clear()
            self._there[sha256] = time.monotonic()

    def _expect(self, answer: _Answer, statuses: set[int], what: str) -> None:
        if answer.status in statuses:
            return
        if 300 <= answer.status < 400:
            why, hint = "it redirects, which is not followed", "Set [cluster.blobs] endpoint and region."
        else:
            why, hint = f"it answers {answer.status} {_code(answer)}".rstrip(), HINT
        raise StateError(f"The blob store {self._store.endpoint} does not {what}: {why}.", hint)


def _code(answer: _Answer) -> str:
    """The store's own word for what is wrong; never more than a word of what it sent."""
    return re.sub(r"[^A-Za-z0-9]", "", _found("Code", answer.body[:10_000]))[:60]


def _found(name: str, told: bytes) -> str:
    found = _TAG[name].search(told)
    return found[1].decode("utf-8", "replace") if found is not None else ""


def _unix_ms(moment: str) -> int:
    try:
        return int(datetime.fromisoformat(moment).timestamp() * 1000)
    except ValueError as error:
        raise StateError("The blob store gives no times for its objects.", HINT) from error


def _date_ms(header: str) -> int:
    """Of an HTTP date; 0 for none, and for what is none."""
    try:
        return int(parsedate_to_datetime(header).timestamp() * 1000) if header else 0
    except (ValueError, TypeError):
        return 0
