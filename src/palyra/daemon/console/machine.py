"""`/console/processes`, `secrets`, `tokens`, `doctor`: what runs on, what is kept, who may come in, is it fit."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.console.making import Visit, form, page, then, to, to_the
from palyra.daemon.console.rendering import render
from palyra.daemon.operators import host, processes, secrets, tokens
from palyra.daemon.operators.answering import NextPage, installed
from palyra.daemon.routes import Asked
from palyra.tokens.store import LAST
from palyra.wiring.checkup import backends_json

LOG_BYTES = 64 * 1024


class ProcessesPage(NextPage):
    said: str = ""


class TokensPage(NextPage):
    said: str = ""


async def processes_page(asked: Asked) -> Response:
    query: ProcessesPage = asked.query
    found = await installed(asked).background.everything(before=query.before, count=query.count)
    following = found[-1].process_id if len(found) == query.count else None
    items = [processes.process_json(one) for one in found]
    return render(asked, "processes.html", section="processes", processes=items, next=following)


async def process_page(asked: Asked) -> Response:
    process = await processes.known_process(asked)
    background = installed(asked).background
    total = background.read(process, offset_bytes=0, max_bytes=1).total_bytes
    log = background.read(process, offset_bytes=max(0, total - LOG_BYTES), max_bytes=LOG_BYTES)
    return render(
        asked,
        "process.html",
        section="processes",
        it=processes.process_json(process),
        log=processes.log_json(log),
    )


async def secrets_page(asked: Asked) -> Response:
    listing: Any = await secrets.list_secrets(asked)
    return render(asked, "secrets.html", section="secrets", secrets=listing["items"])


async def tokens_page(asked: Asked) -> Response:
    return _tokens(asked, made=None)


async def token_made(asked: Asked) -> Response:
    """Shown on this answer alone: a redirect would have to carry it."""
    return _tokens(asked, made=await tokens.create_token(asked))


def _tokens(asked: Asked, *, made: Json) -> Response:
    query = asked.query if isinstance(asked.query, TokensPage) else TokensPage()
    found = asked.state.tokens.list(before=query.before or LAST, count=query.count)
    following = found[-1].token_id if len(found) == query.count else None
    return render(asked, "tokens.html", section="tokens", tokens=found, made=made, next=following)


async def doctor_page(asked: Asked) -> Response:
    found: Any = await host.examine(asked)
    backends = backends_json(installed(asked).host)
    return render(asked, "doctor.html", section="doctor", ok=found["ok"], checks=found["items"], backends=backends)


ROUTES = (
    page("/processes", processes_page, name="processes", says="Background processes.", query=ProcessesPage),
    page("/processes/{id}", process_page, name="process", says="One background process and its log."),
    form("/processes/{id}/stop", then(processes.stop_process, to_the("processes", "id", said="stopped")),
         name="stop_process", says="End it."),
    page("/secrets", secrets_page, name="secrets", says="Names of secrets; never values.", query=Visit),
    form("/secrets", then(secrets.set_secret, to("secrets", said="set")), name="set_secret", says="Store one.",
         body=secrets.SettingSecret),
    form("/secrets/{name}/delete", then(secrets.delete_secret, to("secrets", said="deleted")), name="delete_secret",
         says="Take one out."),
    page("/tokens", tokens_page, name="tokens", says="Credentials.", query=TokensPage),
    form("/tokens", token_made, name="create_token", says="Make one; it is shown only once.",
         body=tokens.CreatingToken),
    form("/tokens/{id}/revoke", then(tokens.revoke_token, to("tokens", said="revoked")), name="revoke_token",
         says="Take one back."),
    page("/doctor", doctor_page, name="doctor", says="Can this machine run sandboxes?", query=Visit),
)  # fmt: skip
