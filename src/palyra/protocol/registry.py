"""Name → tool. A tool's schemas are compiled when it is first asked for: most commands need one or none.

The tools of Palyra's own are fixed; those of enabled skills come and go, and are asked of their source each time. A
source never answers for a name that is Palyra's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

from palyra.errors import Reason, Rejected
from palyra.model.tool import ToolSpec
from palyra.protocol.schema import CompiledSchema
from palyra.values import dataclass

_SHOWN = 60


class RegisteredTool:
    """A spec with its compiled schemas."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    @cached_property
    def input_schema(self) -> CompiledSchema:
        return CompiledSchema(self.spec.input_schema)

    @cached_property
    def output_schema(self) -> CompiledSchema:
        return CompiledSchema(self.spec.output_schema)


class ToolSource(Protocol):
    """Tools that come and go while we look: those of enabled skills."""

    def knows(self, name: str) -> bool:
        """Whether it is a tool's name at all, usable or not."""

    def tool(self, name: str) -> RegisteredTool | None:
        """None for a name that is none; Rejected for a tool that cannot be used now."""

    def specs(self) -> Sequence[ToolSpec]: ...


@dataclass(frozen=True, slots=True)
class Registry:
    _tools: Mapping[str, RegisteredTool] = field(default_factory=dict)
    _source: ToolSource | None = None

    def get(self, name: str) -> RegisteredTool:
        tool = self._find(name)
        if tool is None:
            raise Rejected(Reason.UNKNOWN_TOOL, f"There is no tool {name[:_SHOWN]!r}.", self._hint(name))
        return tool

    def has(self, name: str) -> bool:
        return name in self._tools or (self._source is not None and self._source.knows(name))

    def specs(self) -> tuple[ToolSpec, ...]:
        own = [tool.spec for tool in self._tools.values()]
        others = [] if self._source is None else self._source.specs()
        return tuple(sorted((*own, *others), key=lambda spec: spec.name))

    def with_source(self, source: ToolSource) -> Registry:
        return Registry(self._tools, source)

    def _find(self, name: str) -> RegisteredTool | None:
        found = self._tools.get(name)
        return found if found is not None or self._source is None else self._source.tool(name)

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches  # only for a name that nobody knows

        near = get_close_matches(name[:_SHOWN], self._tools, n=3)
        return f"Did you mean {' or '.join(near)}?" if near else "palyra tools list shows them all."


def make_registry(specs: Iterable[ToolSpec]) -> Registry:
    tools: dict[str, RegisteredTool] = {}
    for spec in specs:
        if spec.name in tools:
            raise ValueError(f"two tools are called {spec.name}")
        tools[spec.name] = RegisteredTool(spec)
    return Registry(MappingProxyType(tools))
