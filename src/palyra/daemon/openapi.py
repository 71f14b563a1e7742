"""The OpenAPI 3.1 document, made from the table and its models: what is served is what is described.

Rules: every JSON route is there with every answer it may give; answers that any route may give (a bad credential, a
body that is too large …) are added here, by the same rules by which the application gives them. Pages are not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import models_json_schema

from palyra.daemon.routes import JSON_TYPE, Answer, AnswerModel, Route, Who
from palyra.version import __version__

REF = "#/components/schemas/{model}"
EVENTS = "text/event-stream"
_PARAMETER = re.compile(r"{([a-z_]+)}")


class FieldError(AnswerModel):
    path: str
    message: str


class ErrorBody(AnswerModel):
    code: str
    message: str
    hint: str | None
    fields: list[FieldError]


class Error(AnswerModel):
    error: ErrorBody


def _error(meaning: str) -> Answer:
    return Answer(meaning=meaning, model=Error)


ANY = {400: _error("The request cannot be read."), 403: _error("Not for this caller, host name or origin.")}
"""What every route may answer, whatever it is."""
WITH_CREDENTIAL = {401: _error("No credential, or one that is not valid."), 429: _error("Too much at once.")}
WITH_BODY = {408: _error("The body took too long."), 413: _error("The body is too large.")}
CHECKED = {422: _error("The request does not have the documented form.")}
STATEFUL = {409: _error("The current state does not allow it."), 503: _error("Nothing can be recorded now.")}
MISSING = {404: _error("There is no such thing, or it belongs to somebody else.")}


def answers_of(route: Route) -> dict[int, Answer]:
    """All that a route may answer; what it says itself stands before what any route says."""
    found: dict[int, Answer] = dict(ANY)
    if route.who is not Who.ANYBODY:
        found |= WITH_CREDENTIAL | STATEFUL | MISSING
    if route.body is not None or route.accepts != JSON_TYPE:
        found |= WITH_BODY | CHECKED
    if route.query is not None:
        found |= CHECKED
    if _PARAMETER.search(route.path):
        found |= MISSING | CHECKED
    return dict(sorted((found | dict(route.answers)).items()))


def make_openapi(routes: Sequence[Route]) -> dict[str, Any]:
    shown = [route for route in routes if not route.page]
    schemas = _Schemas(shown)
    paths: dict[str, dict[str, Any]] = {}
    for route in shown:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Palyra",
            "version": __version__,
            "description": "Tool calls of AI agents: decided by policy, confined by a sandbox, signed and journaled.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.definitions,
            "securitySchemes": {
                "agent": {"type": "http", "scheme": "bearer", "description": "A token of palyra token create."},
                "operator": {"type": "http", "scheme": "bearer", "description": "A token made with --operator."},
            },
        },
    }


class _Schemas:
    """Every model once, by reference."""

    def __init__(self, routes: Iterable[Route]) -> None:
        models: dict[tuple[type[BaseModel], str], None] = {}
        self._others: dict[str, Any] = {}
        for route in routes:
            kinds = [(route.body, "validation")]
            kinds += [(answer.model, "serialization") for answer in answers_of(route).values()]
            for kind, mode in kinds:
                if isinstance(kind, type) and issubclass(kind, BaseModel):
                    models[kind, mode] = None
        self._refs, defined = models_json_schema(list(models), ref_template=REF)  # type: ignore[arg-type]
        self.definitions: dict[str, Any] = defined.get("$defs", {})

    def of(self, kind: Any, mode: str) -> dict[str, Any]:
        if (kind, mode) in self._refs:
            return dict(self._refs[kind, mode])  # type: ignore[index]
        schema = TypeAdapter(kind).json_schema(mode=mode, ref_template=REF)  # type: ignore[arg-type]
        self.definitions.update(schema.pop("$defs", {}))
        return schema


def _operation(route: Route, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": list(route.tags),
        "responses": {str(status): _response(answer, schemas) for status, answer in answers_of(route).items()},
        "security": _security(route.who),
    }
    if parameters := [*_path_parameters(route), *_query_parameters(route)]:
        operation["parameters"] = parameters
    if route.body is not None or route.accepts != JSON_TYPE:
        schema = schemas.of(route.body, "validation") if route.body is not None else {"type": "string"}
        content: dict[str, Any] = {"schema": schema}
        if route.examples:
            content["examples"] = {name: {"value": value} for name, value in route.examples.items()}
        operation["requestBody"] = {"required": True, "content": {route.accepts: content}}
    return operation


def _security(who: Who) -> list[dict[str, list[str]]]:
    if who is Who.ANYBODY:
        return []
    return [{"operator": []}] if who is Who.OPERATOR else [{"agent": []}, {"operator": []}]


def _response(answer: Answer, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {"description": answer.meaning}
    if answer.model is not None:
        found["content"] = {answer.media_type: {"schema": schemas.of(answer.model, "serialization")}}
    elif answer.media_type != JSON_TYPE:
        schema: dict[str, Any] = {} if answer.media_type == EVENTS else {"type": "string"}
        found["content"] = {answer.media_type: {"schema": schema}}
    return found


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.path)
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    schema: Mapping[str, Any] = route.query.model_json_schema()
    required = schema.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": dict(shape)}
        for name, shape in schema.get("properties", {}).items()
    ]
