"""A guest's HTTP request: read strictly, sent to the one host its handle stands for, answered as JSON.

Rules: the host comes from the plan, never from the guest, who gives a path; the grant of the request is that host
alone, so that a redirect anywhere else is refused by the same rules; headers are those palyra.http.fetch may send;
credentials go along only where the skill was granted the secret and the secret is bound to the host. An answer that is
compressed all the same is not unpacked here, outside every sandbox: it is a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import orjson

from palyra.canon import Json
from palyra.egress.fetch_url import parse_url
from palyra.egress.hosts import parse_pattern
from palyra.errors import Reason, Rejected
from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchOrder, FetchUrl
from palyra.model.net import EgressMode, NetGrant
from palyra.protocol.fetch_catalog import ANSWER_HEADERS, DEFAULT_TIMEOUT_MS, MAX_BYTES, REQUEST_HEADERS

PLAIN = "http://"
"""Before a granted host: unencrypted. Without it a guest's requests are https."""
MAX_REDIRECTS = 3
MAX_HEADERS = 16
_METHODS = frozenset({"GET", "HEAD", "POST"})


def read_request(host: str, payload: bytes, *, left_s: float) -> FetchOrder:
    """Raises Rejected(BAD_ARGUMENTS) for whatever is not exactly a request."""
    try:
        given = orjson.loads(payload)
    except orjson.JSONDecodeError:
        raise _bad("it is not JSON") from None
    if not isinstance(given, dict) or not given.keys() <= {"method", "path", "headers", "body"}:
        raise _bad("it has fields other than method, path, headers and body")
    method, path, body = given.get("method", "GET"), given.get("path"), given.get("body")
    if method not in _METHODS or not isinstance(path, str) or not path.startswith("/"):
        raise _bad("its method or path cannot be sent")
    if body is not None and (not isinstance(body, str) or method != "POST"):
        raise _bad("only a POST has a body, which is text")
    url = _url(host, path)
    return FetchOrder(
        method=method,
        url=url,
        headers=(*_headers(given.get("headers", [])), ("accept-encoding", "identity")),
        body=(body or "").encode("utf-8", "replace"),
        net=NetGrant(EgressMode.STRICT, (parse_pattern(_with_port(url)),)),
        max_bytes=MAX_BYTES,
        timeout_ms=max(1, min(DEFAULT_TIMEOUT_MS, int(left_s * 1000))),
        max_redirects=MAX_REDIRECTS,
    )


def host_of(granted: str) -> tuple[str, int]:
    """What a granted host's requests are sent to. Raises Rejected(BAD_ARGUMENTS)."""
    url = _url(granted, "/")
    return url.host, url.port


def _url(granted: str, path: str) -> FetchUrl:
    return parse_url(f"{'http' if granted.startswith(PLAIN) else 'https'}://{granted.removeprefix(PLAIN)}{path}")


def _with_port(url: FetchUrl) -> str:
    """With its port, so that a redirect to another port of the host is judged as another place."""
    return f"[{url.host}]:{url.port}" if ":" in url.host else f"{url.host}:{url.port}"


def _headers(given: Json) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, list) or len(given) > MAX_HEADERS:
        raise _bad("its headers are not a short list of pairs")
    found = []
    for pair in given:
        if not (isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
            raise _bad("its headers are not a short list of pairs")
        name, value = pair[0].lower(), pair[1]
        if name not in REQUEST_HEADERS or len(value) > 1024 or not (value.isascii() and value.isprintable()):
            raise _bad("it has a header that may not be sent")
        found.append((name, value))
    return tuple(sorted(found))


def _bad(why: str) -> Rejected:
    return Rejected(
        Reason.BAD_ARGUMENTS, f"The guest's request cannot be sent: {why}.", "docs/spec/wasm.md has its form."
    )


def write_answer(fetched: Fetched) -> bytes:
    headers: Mapping[str, str] = dict(fetched.headers)
    if fetched.truncated:
        raise Rejected(Reason.QUOTA_EXCEEDED, "The answer is larger than a guest may be given.")
    if headers.get("content-encoding", "identity").lower() not in ("", "identity"):
        raise Rejected(Reason.BAD_ARGUMENTS, "The host's answer is compressed in a way that was not asked for.")
    told = [[name, value[:4096]] for name, value in fetched.headers if name in ANSWER_HEADERS]
    return orjson.dumps({"status": fetched.status, "headers": told, "body": fetched.body.decode("utf-8", "replace")})


def of_granted(
    secrets: Sequence[str], bound: Callable[[FetchUrl], Sequence[Credential]]
) -> Callable[[FetchUrl], Sequence[Credential]]:
    """Of the credentials bound to a host, those of secrets that the skill was granted."""
    return lambda url: tuple(one for one in bound(url) if one.secret in secrets)
