"""`/v1/hooks/{agent}`: an agent's host asks before it runs a tool itself. The body is its event, as it came.

Rules: only the home's owner over the Unix socket, or an operator's token: an agent's token must not have events judged
under another agent's name. The answer is what the hook prints, ready; its exit code stands in `Palyra-Exit`.
"""

from __future__ import annotations

from starlette.responses import Response

from palyra.daemon.routes import Answer, Asked, Refused, Route, Who
from palyra.protocol.agent_events import MAX_EVENT_BYTES, Agent
from palyra.wiring.hooks import answer_hook

_MAX_PROJECT = 4096
AS_IT_IS = "application/octet-stream"


async def answer(asked: Asked) -> Response:
    try:
        agent = Agent(asked.path["agent"])
    except ValueError:
        raise Refused(404, "NOT_FOUND", "There is no hook for such an agent.", f"One of {', '.join(Agent)}.") from None
    project = asked.request.headers.get("palyra-project", "")[:_MAX_PROJECT]
    said = await answer_hook(asked.state.installation, agent, asked.raw, project=project)
    headers = {"Palyra-Exit": str(said.code)}
    return Response(said.stderr if said.code else said.stdout, headers=headers, media_type="application/json")


ROUTES = (
    Route(
        method="POST",
        path="/v1/hooks/{agent}",
        name="answerHook",
        who=Who.OPERATOR,
        handler=answer,
        summary="Decide on what an agent's host asks its hook about.",
        answers={200: Answer(meaning="What the hook prints; its exit code is in the header Palyra-Exit.")},
        accepts=AS_IT_IS,
        max_body_bytes=MAX_EVENT_BYTES,
        tags=("hooks",),
    ),
)
