"""`/console/v1/links`: a link to the console that logs its maker in, once and within a minute. For `palyra console`."""

from __future__ import annotations

from palyra.canon import Json
from palyra.daemon.operators.answering import change
from palyra.daemon.routes import AnswerModel, Asked, Refused
from palyra.daemon.sessions import LINK_MS


class LoginLink(AnswerModel):
    url: str
    principal: str
    expires_at_unix_ms: int


async def make_link(asked: Asked) -> Json:
    place = next((place for place in asked.state.listening if place.startswith("http")), None)
    if place is None:
        raise Refused(
            409, "NO_ADDRESS", "The daemon listens on no address a browser could open.", "See --host, --port."
        )
    caller = asked.caller
    principal = caller.principal
    credential = caller.session.credential_id if caller.session is not None else caller.credential_id
    return {
        "url": f"{place}/console/login?code={asked.state.sessions.make_link(principal, credential)}",
        "principal": principal,
        "expires_at_unix_ms": asked.state.clock.now_unix_ms() + LINK_MS,
    }


ROUTES = (
    change("/links", make_link, name="make_login_link", says="A link that logs its maker into the console, once.",
           model=LoginLink),
)  # fmt: skip
