"""Active skills over MCP: `skills/list`, `skills/get`, and their files as resources (SEP-2640).

Rules: a caller sees a skill when it could ever be allowed to call one of its tools, so this list is filtered by policy
like the tools' own; what is not active, or somebody else's, is not there. Reading tells how to use it and runs nothing.

Not here: the text (skill_text), enabling and trust (wiring/skill_acts), calling a skill's tools (calls).
"""

from __future__ import annotations

from typing import Any

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from palyra.engine.listing import tools_for
from palyra.errors import PalyraError
from palyra.mcp.callers import Callers, Context
from palyra.mcp.messages import listed_names
from palyra.mcp.skill_text import EXTENSION, MIME, SkillFile, skill_file
from palyra.model.tool import ToolSpec
from palyra.wiring.embedded import Installation

FRESH: dict[str, Any] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
"""What a caller sees changes with policies and with each skill that is enabled."""
BUILTIN = "builtin"


class SkillParams(types.RequestParams):
    uri: str


class Skills:
    def __init__(self, installation: Installation, callers: Callers) -> None:
        self._installation = installation
        self._callers = callers

    def attach(self, server: Server[Any]) -> None:
        server.extensions[EXTENSION] = {}
        server.add_request_handler("skills/list", types.PaginatedRequestParams, self.list_skills)
        server.add_request_handler("skills/get", SkillParams, self.get_skill)
        server.add_request_handler("resources/list", types.PaginatedRequestParams, self.resources)
        server.add_request_handler("resources/read", types.ReadResourceRequestParams, self.read)
        server.add_request_handler("resources/templates/list", types.PaginatedRequestParams, self.templates)

    async def list_skills(self, ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _one_page(params)
        return {"skills": [file.entry() for file in self._files(ctx)], **FRESH}

    async def get_skill(self, ctx: Context, params: SkillParams) -> dict[str, Any]:
        return {"skill": self._find(ctx, params.uri).entry(), **FRESH}

    async def resources(self, ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _one_page(params)
        return {"resources": [file.resource() for file in self._files(ctx)], **FRESH}

    async def read(self, ctx: Context, params: types.ReadResourceRequestParams) -> dict[str, Any]:
        file = self._find(ctx, str(params.uri))
        content = {"uri": file.uri, "mimeType": MIME, "text": file.text}
        return {"contents": [content], **FRESH}

    async def templates(self, ctx: Context, params: types.PaginatedRequestParams) -> dict[str, Any]:
        _one_page(params)
        return {"resourceTemplates": [], **FRESH}

    def _find(self, ctx: Context, uri: str) -> SkillFile:
        found = next((file for file in self._files(ctx) if file.uri == uri), None)
        if found is None:
            raise MCPError(code=types.INVALID_PARAMS, message="Resource not found", data={"uri": uri[:1000]})
        return found

    def _files(self, ctx: Context) -> list[SkillFile]:
        installation = self._installation
        registry, principal = installation.engine.registry, self._callers.of(ctx).run.context.principal
        allowed = tools_for(principal, registry, installation.config, installation.policies.current())
        by_payload: dict[str, list[ToolSpec]] = {}
        for spec in allowed:
            if spec.provenance != BUILTIN:
                by_payload.setdefault(spec.provenance, []).append(spec)
        if not by_payload:
            return []
        listed = {dotted: name for name, dotted in listed_names(registry.specs()).items()}
        rows = installation.skills.list_skills()
        files = [
            self._file(str(row["skill_id"]), by_payload[str(row["sha256"])], listed)
            for row in rows
            if row["status"] == "active" and str(row["sha256"]) in by_payload
        ]
        return sorted((file for file in files if file is not None), key=lambda file: file.uri)

    def _file(self, skill_id: str, specs: list[ToolSpec], listed: dict[str, str]) -> SkillFile | None:
        try:
            view = self._installation.skills.show_skill(skill_id)
        except PalyraError:  # taken back a moment ago
            return None
        tools = [(listed[spec.name], spec.description, spec.input_schema) for spec in specs]
        return skill_file(view, tools)


def _one_page(params: types.PaginatedRequestParams) -> None:
    if params.cursor is not None:
        raise MCPError(code=types.INVALID_PARAMS, message="There is one page, and no such cursor.")
