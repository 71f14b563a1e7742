"""HTTP/1.1 requests and their answers on one connection, one at a time, every one of them judged.

Rules: the next request is read when the one before is sent and its answer has come, so that a second request behind
the first is seen as what it is. On a connection that was made to a host, Host must name it; through the proxy, the
address of each request says where it goes and Host must agree. Heads are written anew towards the host: in origin form,
with one Host, without Proxy-* and other hop-by-hop fields. WebSocket is passed on after the host has agreed to it.

Not here: finding and dialling the host (egress/conversation), heads and bodies themselves (egress/http, egress/bodies).
"""

from __future__ import annotations

from palyra.egress.bodies import Body, Chunked, Counted, UntilClose
from palyra.egress.credentials import add_credentials
from palyra.egress.events import Command, SendClient, SendUpstream
from palyra.egress.grammar import Malformed, Target, parse_authority, show, write_authority
from palyra.egress.http import (
    Fields,
    Request,
    Response,
    check_body,
    check_path,
    find_head,
    parse_request,
    parse_response,
    read_url,
    routing_fields,
    the_host,
    write_head,
)
from palyra.egress.terms import Broken, Refused, Terms
from palyra.model.net import RAW

_PORTS = {"http": 80, "https": 443}
_HOP = frozenset({"host", "connection", "keep-alive", "te", "upgrade", "http2-settings"})


class Exchange:
    """`target` None: the proxy face, where each request says its own."""

    def __init__(self, terms: Terms, *, target: Target | None, scheme: str) -> None:
        self._terms = terms
        self._fixed = target
        self._scheme = scheme
        self._port = _PORTS[scheme]
        self._scanned = 0
        self._request: Request | None = None
        self._upload: Body = Counted(0)
        self._response: Response | None = None
        self._download: Body = Counted(0)
        self._head = bytearray()
        self._head_scanned = 0
        self._waiting = b""
        self.asked = 0
        """Requests that were judged and let through."""
        self.wanted: Target | None = None
        """The host that must be connected before the request can be sent; then call `connected`."""
        self.tunnel: Target | None = None
        """CONNECT: leave HTTP behind and go there."""
        self.current: Target | None = None
        self.finished = False
        self.upgraded = False
        self.rest = b""
        """What the host sent behind its agreement to the upgrade."""

    @property
    def is_idle(self) -> bool:
        return self._request is None and self.tunnel is None

    @property
    def is_answering(self) -> bool:
        """Part of the host's answer has gone to the client: nothing else can be said to it now."""
        return self._response is not None

    # ── the client's side ──

    def advance(self, inbox: bytearray, out: list[Command], *, eof: bool) -> bool:
        """Take what can be taken from the client's bytes; whether there was anything. Raises Malformed, Refused."""
        if self.wanted or self.tunnel or self.finished or self.upgraded:
            return False
        if self._request is None:
            return self._begin(inbox, out, eof=eof)
        if self._upload.done:
            return False
        if not inbox:
            self.finished = eof  # the request ends in the middle: nobody is left to answer
            return False
        mine, rest = self._upload.feed(bytes(inbox))
        inbox[:] = rest
        if mine:
            out.append(SendUpstream(mine))
        if self._upload.broken:
            raise self._upload.broken
        self._settle()
        return True

    def connected(self, out: list[Command]) -> None:
        self.current, self.wanted = self.wanted, None
        out.append(SendUpstream(self._waiting))
        self._waiting = b""

    def _begin(self, inbox: bytearray, out: list[Command], *, eof: bool) -> bool:
        while inbox.startswith(b"\r\n"):
            del inbox[:2]
        if not inbox:
            self.finished = eof
            return False
        end, self._scanned = find_head(inbox, self._scanned)
        if end is None:
            if eof:
                raise Malformed("the connection ended in the middle of a head")
            return False
        head = bytes(inbox[:end])
        del inbox[:end]
        self._scanned = 0
        self._judge(parse_request(head), out)
        return True

    def _judge(self, request: Request, out: list[Command]) -> None:
        if request.method == "CONNECT":
            self.tunnel = self._judge_connect(request)
            return
        if request.method == "TRACE":
            raise Malformed("TRACE would show what was added to the request", status=405)
        target, path = self._judge_target(request)
        self._check_body(request, target)
        fields = _forwarded(request, write_authority(self._named(request, target), default_port=self._port))
        fields = add_credentials(fields, self._terms.credentials_for(target), target, is_tls=self._scheme == "https")
        self._waiting = write_head(f"{request.method} {path} HTTP/1.{request.minor}", fields)
        self._request = request
        self._upload = Chunked(is_request=True) if request.body_bytes is None else Counted(request.body_bytes)
        self.asked += 1
        self.wanted = target
        if self.current == target:
            self.connected(out)

    def _check_body(self, request: Request, target: Target) -> None:
        try:
            check_body(request)
        except Malformed as bad:
            told = f"{bad.why}. An operator lets all bytes pass with --allow-raw {target}"
            raise Refused(target, bad.why, told=told, grants=(f"{target} {RAW}",)) from None

    def _judge_connect(self, request: Request) -> Target:
        if self._fixed is not None:
            raise Malformed("CONNECT is for the proxy, and this connection is to a host", status=405)
        target = parse_authority(request.target, default_port=None)
        named = request.values("host")
        if request.body_bytes != 0 or len(named) > 1:
            raise Malformed("CONNECT has no body and at most one Host")
        if named and parse_authority(named[0], default_port=target.port) != target:
            raise Refused(target, f"Host says {show(named[0])}, CONNECT says {target}")
        return target

    def _judge_target(self, request: Request) -> tuple[Target, str]:
        """Where it goes and the path to ask for, when everything in the head agrees about that."""
        text, fixed = request.target, self._fixed
        if fixed is not None and text.startswith("/"):
            return fixed, check_path(text)
        if fixed is not None and text == "*" and request.method == "OPTIONS":
            return fixed, text
        if fixed is None and text.startswith("/"):
            raise Malformed("this is a proxy: ask it for a whole address, http://host/path")
        if fixed is not None:
            raise Malformed("a request to a host names a path, not an address")
        return read_url(text, scheme=self._scheme, default_port=self._port)

    def _named(self, request: Request, target: Target) -> Target:
        named = the_host(request, default_port=self._port)
        if not self._may_name(target, named):
            raise Refused(named, f"Host names {named}, the connection was made to {target}")
        for field, other in routing_fields(request.fields, port=named.port):
            if other is None:
                raise Malformed(f"{show(field)} may hold a path or the host alone")
            if other != named and not self._may_name(target, other):
                raise Refused(other, f"{field} names {other}, the connection was made to {target}")
        return named

    def _may_name(self, target: Target, named: Target) -> bool:
        return named == target if self._fixed is None else self._terms.may_name(target, named)

    # ── the host's side ──

    def hear(self, data: bytes, out: list[Command]) -> None:
        """Take the host's bytes. Raises `Broken`."""
        while data and not self.upgraded and not self.finished:
            if self._request is None:
                raise Broken("the host sent data before it was asked")
            if self._response is None:
                data = self._hear_head(data, out)
                continue
            if self._download.done:
                raise Broken("the host sent more than its answer")
            mine, data = self._download.feed(data)
            if mine:
                out.append(SendClient(mine))
            if self._download.broken:
                raise Broken(f"in the host's answer, {self._download.broken.why}")
            self._settle()

    def hear_end(self) -> None:
        """The host will say nothing more. Raises `Broken` when it should have."""
        if self._request is None or (self._response and isinstance(self._download, UntilClose)):
            self.finished = True
            return
        if self._response is None and not self._head and self.asked > 1:
            self.finished = True  # a kept-alive connection that ended as the request came: clients ask again
            return
        raise Broken("the host closed the connection before its answer was complete")

    def _hear_head(self, data: bytes, out: list[Command]) -> bytes:
        assert self._request is not None
        self._head += data
        try:
            end, self._head_scanned = find_head(self._head, self._head_scanned)
            if end is None:
                return b""
            head, rest = bytes(self._head[:end]), bytes(self._head[end:])
            response = parse_response(head, method=self._request.method)
        except Malformed as bad:
            raise Broken(f"in the host's answer, {bad.why}") from None
        self._head.clear()
        self._head_scanned = 0
        if response.status == 101:
            if not self._request.upgrades or not self._upload.done:
                raise Broken("the host switched protocols without being asked to")
            self.upgraded, self.rest, rest = True, rest, b""
        out.append(SendClient(head))
        if response.status >= 200:
            self._response = response
            self._download = _download(response)
            self._settle()
        return rest

    def _settle(self) -> None:
        """When question and answer are whole: the next one, or the end."""
        if self._request is None or self._response is None or not self._download.done:
            return
        if self._response.closes or (self._request.closes and self._upload.done):
            self.finished = True
        elif self._upload.done:
            self._request = self._response = None


def _download(response: Response) -> Body:
    if response.is_chunked:
        return Chunked(is_request=False)
    return UntilClose() if response.body_bytes is None else Counted(response.body_bytes)


def _forwarded(request: Request, authority: str) -> Fields:
    fields = [("Host", authority)]
    fields += [
        (name, _plain_framing(name, value))
        for name, value in request.fields
        if name.lower() not in _HOP and not name.lower().startswith("proxy-")
    ]
    if request.upgrades:
        fields += [("Connection", "Upgrade"), ("Upgrade", "websocket")]
    elif "close" in request.options or "keep-alive" in request.options:
        fields.append(("Connection", "close" if "close" in request.options else "keep-alive"))
    return tuple(fields)


def _plain_framing(name: str, value: str) -> str:
    """How far the body reaches, in the one spelling that no reader takes for another: `cHuNkEd`, `007`."""
    match name.lower():
        case "transfer-encoding":
            return value.lower()
        case "content-length":
            return str(int(value))
    return value
