"""URLs for palyra.http.fetch: read once, strictly, into the parts that are judged, dialled and sent.

Rules: http and https alone; no user name or password (they would stand in logs); no white space, control character or
backslash anywhere, which readers take for different things; the host in its one spelling (egress/hosts); what is not
ASCII in the path is percent-encoded; the fragment is left out. A redirect's target is read the same way.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote, urljoin, urlsplit

from palyra.egress.hosts import parse_host
from palyra.errors import Reason, Rejected
from palyra.late import late
from palyra.model.fetch import FetchUrl

MAX_URL_CHARS = 8192
_ODD = late(r"[\x00-\x20\x7f\\]|[\ud800-\udfff]")
_HINT = "Write it as https://host/path."


def parse_url(text: str) -> FetchUrl:
    """Rejected(BAD_ARGUMENTS) for what is no URL that could be fetched."""
    if len(text) > MAX_URL_CHARS or _ODD.search(text):
        raise _refuse("The URL is too long, or holds white space, a control character or a backslash.")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _refuse("The URL cannot be read.") from None
    scheme = _scheme(parts.scheme)
    if parts.username is not None or parts.password is not None:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "The URL holds a user name or password.",
            "Bind a secret to the host: palyra secrets set NAME --host HOST.",
        )
    name = parts.hostname or ""
    host = parse_host(f"[{name}]" if ":" in name else name)
    if port == 0:
        raise _refuse("The URL's port is not between 1 and 65535.")
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~-._") + (f"?{_query(parts.query)}" if parts.query else "")
    return FetchUrl(scheme, host, port or (443 if scheme == "https" else 80), path)


def join_url(base: FetchUrl, location: str) -> FetchUrl:
    """Where a redirect leads. Rejected as above."""
    try:
        joined = urljoin(str(base), location.strip(" \t"))
    except ValueError:
        raise _refuse("The redirect's target cannot be read.") from None
    return parse_url(joined)


def _scheme(text: str) -> Literal["http", "https"]:
    match text.lower():
        case "https":
            return "https"
        case "http":
            return "http"
    raise _refuse("Only http and https URLs can be fetched.")


def _query(text: str) -> str:
    return quote(text, safe="/%:@!$&'()*+,;=~-._?[]|^`{}\"<>")


def _refuse(detail: str) -> Rejected:
    return Rejected(Reason.BAD_ARGUMENTS, detail, _HINT, fields=(("url", detail),))
