"""What goes wrong on the way to a page, as a page: the same words as the API's error, for who reads HTML."""

from __future__ import annotations

import orjson
from starlette.responses import Response

from palyra.daemon.console.rendering import render_page
from palyra.daemon.routes import JSON_TYPE


def error_page(answer: Response, *, nonce: str) -> Response:
    """An error in the one shape, told in HTML; anything else as it is. Its headers stay."""
    if answer.status_code < 400 or answer.media_type != JSON_TYPE:
        return answer
    error = orjson.loads(bytes(answer.body))["error"]
    page = render_page("error.html", {**error, "status": answer.status_code}, nonce=nonce, status=answer.status_code)
    kept = {name: value for name, value in answer.headers.items() if name in ("retry-after", "allow")}
    page.headers.update(kept)
    return page
