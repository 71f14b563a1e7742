"""`/v1/tools`: the tools this caller could ever be allowed to use, with their schemas."""

from __future__ import annotations

from starlette.responses import Response

from palyra.daemon.call_models import ToolPage
from palyra.daemon.routes import Answer, Asked, Route, Who, json_response
from palyra.engine.listing import tools_for
from palyra.model.call import parse_principal
from palyra.protocol.wire import tool_json


async def listed(asked: Asked) -> Response:
    installation = asked.state.installation
    specs = tools_for(
        parse_principal(asked.caller.principal),
        installation.engine.registry,
        installation.config,
        installation.policies.current(),
    )
    return json_response({"items": [tool_json(spec) for spec in specs], "next": None})


ROUTES = (
    Route(
        method="GET",
        path="/v1/tools",
        name="list_tools",
        who=Who.AGENT,
        handler=listed,
        summary="The tools that this caller could be allowed to use.",
        answers={200: Answer(meaning="All of them.", model=ToolPage)},
        tags=("tools",),
    ),
)
