"""`/openapi.json`: the document of all routes, itself among them, made once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import orjson
from starlette.responses import Response

from palyra.daemon.openapi import make_openapi
from palyra.daemon.routes import JSON_TYPE, Answer, Asked, Route, Who


def document_route(routes: Sequence[Route]) -> Route:
    @cache
    def document() -> bytes:
        return orjson.dumps(make_openapi((*routes, route)))

    async def handler(asked: Asked) -> Response:
        return Response(document(), media_type=JSON_TYPE)

    route = Route(
        method="GET",
        path="/openapi.json",
        name="openapi",
        who=Who.ANYBODY,
        handler=handler,
        summary="This document.",
        answers={200: Answer(meaning="OpenAPI 3.1.", model=dict[str, Any])},
        tags=("health",),
    )
    return route
