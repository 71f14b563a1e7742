"""docs/reference/http.md, from the table of routes: who may ask, with what, and what may be answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from palyra.daemon.holding import WORDS
from palyra.daemon.openapi import answers_of, make_openapi
from palyra.daemon.routes import Route, Who
from palyra.daemon.table import ROUTES

_WHO = {Who.ANYBODY: "nobody needs a credential", Who.AGENT: "agents and operators", Who.OPERATOR: "operators"}


def make_http() -> Iterator[str]:
    yield "# HTTP"
    yield (
        "The daemon's routes, with every status they may answer; `GET /openapi.json` has the whole of it with schemas "
        "(OpenAPI 3.1). A credential is a bearer token (`palyra token create`), the home's owner on the Unix socket, "
        "or a session of the console with its CSRF token in `x-palyra-csrf` for whatever changes something. It is "
        'checked before the body is read. Errors are `{"error": {"code", "message", "hint", "fields": '
        '[{"path", "message"}]}}`.'
    )
    yield (
        "A stream of server-sent events goes on as long as its credential holds. Within seconds of its token being "
        "revoked or expiring, or of its session ending, it ends with one last event `closed`: "
        f'`{{"reason", "message"}}`, where `reason` is {_listed(WORDS)}. It bears no id: who comes back with '
        "another credential and `Last-Event-ID` misses nothing."
    )
    document = make_openapi(ROUTES)
    for tag, routes in _by_tag().items():
        yield f"## {tag}"
        rows = ["| route | for | what | answers |", "|---|---|---|---|"]
        rows += [_row(route) for route in routes]
        yield "\n".join(rows)
        for route in routes:
            if fields := _fields(document, route):
                yield fields
    yield "## Pages of the console"
    yield (
        "HTML for people, not in the OpenAPI document; the [guide](../guide/console.md) shows them. Who has not "
        "logged in is led to `/console/login`. Forms take the same models as the API's routes and a field `csrf`, "
        "and lead on with 303. Errors are pages."
    )
    pages = ["| route | what |", "|---|---|"]
    pages += [f"| `{route.method} {route.path}` | {route.summary} |" for route in ROUTES if route.page]
    yield "\n".join(pages)
    yield "## Other doors"
    yield (
        "`/mcp` is the [Model Context Protocol](../guide/mcp.md) over streamable HTTP, with the extra `palyra[mcp]`: "
        "a bearer token, or the home's owner on the Unix socket; a console's session is not taken."
    )


def _listed(words: Iterable[str]) -> str:
    *others, last = (f"`{word}`" for word in words)
    return f"{', '.join(others)} or {last}"


def _by_tag() -> dict[str, list[Route]]:
    found: dict[str, list[Route]] = {}
    for route in ROUTES:
        if not route.page:
            found.setdefault(route.tags[0] if route.tags else "others", []).append(route)
    return found


def _row(route: Route) -> str:
    statuses = " ".join(str(status) for status in answers_of(route))
    return f"| `{route.method} {route.path}` | {_WHO[route.who]} | {route.summary} | {statuses} |"


def _fields(document: dict[str, Any], route: Route) -> str:
    """The members of a JSON body that is one object; others are in the document."""
    operation = document["paths"][route.path][route.method.lower()]
    content = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    first = content.get("anyOf", [content])[0]
    schema = document["components"]["schemas"].get(first.get("$ref", "").rsplit("/", 1)[-1], first)
    if not schema.get("properties"):
        return ""
    needed = schema.get("required", ())
    rows = [f"Body of `{route.method} {route.path}`:", "", "| member | | |", "|---|---|---|"]
    for name, shape in schema["properties"].items():
        kinds = " or ".join(dict.fromkeys(_kind(one) for one in shape.get("anyOf", [shape])))
        rows.append(f"| `{name}` | {kinds}{', needed' if name in needed else ''} | {shape.get('description', '')} |")
    return "\n".join(rows)


def _kind(shape: dict[str, Any]) -> str:
    return str(shape.get("type") or shape.get("$ref", "any").rsplit("/", 1)[-1])
