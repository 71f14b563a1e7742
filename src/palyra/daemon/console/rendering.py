"""Templates to pages: escaping, the spelling of hidden characters, the Content-Security-Policy, the frame around each.

Rules: autoescape is on and every value that a template prints goes through `finalize`, which makes control, bidi and
zero-width characters visible: a page cannot forget it. No inline script or style runs without this answer's nonce, and
none is needed. What a page may load is what this daemon serves. Not here: what pages show (one file a noun).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChainableUndefined, Environment, FunctionLoader
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from palyra.daemon.auth import Caller
from palyra.daemon.console import plots, words
from palyra.daemon.operators.answering import installed
from palyra.daemon.operators.host import waiting_count
from palyra.daemon.routes import Asked
from palyra.errors import ConfigError
from palyra.model.visible import visible
from palyra.policy.exceptions import SCOPES
from palyra.version import __version__

FOLDER = resources.files("palyra.daemon.console")
NAVIGATION = (
    ("Watch", (("overview", "Overview", "/console"), ("approvals", "Approvals", "/console/approvals"),
               ("calls", "Calls", "/console/calls"), ("runs", "Runs", "/console/runs"),
               ("processes", "Processes", "/console/processes"))),
    ("Decide", (("policy", "Policy", "/console/policy"), ("skills", "Skills", "/console/skills"),
                ("secrets", "Secrets", "/console/secrets"), ("tokens", "Tokens", "/console/tokens"))),
    ("Check", (("journal", "Journal", "/console/journal"), ("doctor", "Doctor", "/console/doctor"))),
)  # fmt: skip
SAID = {
    "approved": "Approved. The caller repeats the call to use it.",
    "denied": "Denied.",
    "revoked": "Taken back.",
    "extended": "The budget was extended.",
    "run_ended": "The run was ended: it takes no more calls.",
    "cancelled": "The call was told to end.",
    "stopped": "The process was ended.",
    "set": "The secret was stored.",
    "deleted": "The secret was deleted.",
    "used": "These policies are in use now.",
    "allowed": "The exception is in force. The caller makes the call again, under a fresh call id.",
    "disallowed": "The exception was taken back.",
    "rolled-back": "The previous policies are in use again.",
    "installed": "The skill was installed; it is in quarantine until it is enabled.",
    "enabled": "The skill is active.",
    "disabled": "The skill is disabled.",
    "quarantined": "The skill is in quarantine.",
    "skill-rolled-back": "The skill's previous version is back in place.",
    "audited": "The skill was audited again.",
    "reviewed": "The review was recorded.",
    "removed": "The skill was removed.",
    "trusted": "The key is trusted.",
    "distrusted": "The key is no longer trusted.",
    "promoted": "The candidate was promoted.",
    "logged-out": "You are logged out.",
}
"""What a page may be told to say after an act: codes, so that no link can put words into its mouth."""


def finalize(value: object) -> object:
    """Every value on its way into a page."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else visible(str(value))


@cache
def environment() -> Environment:
    made = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=ChainableUndefined,  # records of older versions lack what newer ones have
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    names = ("mark", "bounded", "short", "moment", "iso", "clock", "ago", "duration", "size", "number", "amount")
    made.filters |= {name: getattr(words, name) for name in (*names, "argv", "pretty", "covered")}
    made.globals |= {
        "meter": plots.meter,
        "link": link,
        "navigation": NAVIGATION,
        "version": __version__,
        "asset": asset_link,
        "scopes": SCOPES,
    }
    return made


def _source(name: str) -> str:
    return (FOLDER / "templates" / name).read_text(encoding="utf-8")


@cache
def asset(name: str) -> bytes:
    return (FOLDER / "static" / name).read_bytes()


def asset_link(name: str) -> str:
    """Its content is in its name, so that it may be kept for long."""
    return f"/console/static/{name}?v={hashlib.sha256(asset(name)).hexdigest()[:12]}"


def link(*parts: object, **query: object) -> str:
    """A path of ours: every part quoted whole, so that an id can never lead elsewhere."""
    path = "/console" + "".join(f"/{quote(str(part), safe='')}" for part in parts)
    given = {name: str(value) for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def policy_of(nonce: str) -> str:
    """What a page may do: load what bears this answer's nonce, send forms home; nobody may frame it."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


def render_page(
    template: str, values: Mapping[str, Any], *, nonce: str, status: int = 200, caller: Caller | None = None
) -> Response:
    csrf = caller.session.csrf if caller is not None and caller.session is not None else ""
    frame = {"nonce": nonce, "caller": caller, "csrf": csrf, "section": "", "waiting": 0, "said": "", **values}
    text = environment().get_template(template).render(frame)
    headers = {
        "Content-Security-Policy": policy_of(nonce),
        # With no-referrer a browser sends `Origin: null` with our own forms, which the door's keeper must refuse.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    }
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status, headers=headers)


def _stale(asked: Asked) -> str:
    """Why the policies in force are not the files of now; every page says it."""
    try:
        return installed(asked).policies.current().stale
    except ConfigError as error:
        return error.detail


def render(asked: Asked, template: str, *, section: str, status: int = 200, **values: Any) -> Response:
    """A page for who is logged in."""
    ids, clock = asked.state.ids, asked.state.clock
    said = SAID.get(getattr(asked.query, "said", ""), "")
    frame = {
        "stale": _stale(asked),
        "section": section,
        "waiting": waiting_count(asked),
        "now": clock.now_unix_ms(),
        "said": said,
    }
    nonce = ids.random_bytes(16).hex()
    return render_page(template, {**frame, **values}, nonce=nonce, status=status, caller=asked.caller)
