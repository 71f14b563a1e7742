"""Name → tool, immutable. A tool's schemas are compiled when it is first asked for: most commands need one or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType

from palyra.errors import Reason, Rejected
from palyra.model.tool import ToolSpec
from palyra.protocol.schema import CompiledSchema, compile_schema

_SHOWN = 60


class RegisteredTool:
    """A spec with its compiled schemas."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    @cached_property
    def input_schema(self) -> CompiledSchema:
        return compile_schema(self.spec.input_schema)

    @cached_property
    def output_schema(self) -> CompiledSchema:
        return compile_schema(self.spec.output_schema)


@dataclass(frozen=True, slots=True)
class Registry:
    _tools: Mapping[str, RegisteredTool] = field(default_factory=dict)

    def get(self, name: str) -> RegisteredTool:
        tool = self._tools.get(name)
        if tool is None:
            raise Rejected(Reason.UNKNOWN_TOOL, f"There is no tool {name[:_SHOWN]!r}.", self._hint(name))
        return tool

    def has(self, name: str) -> bool:
        return name in self._tools

    def specs(self) -> tuple[ToolSpec, ...]:
        return tuple(self._tools[name].spec for name in sorted(self._tools))

    def with_added(self, specs: Iterable[ToolSpec]) -> Registry:
        return make_registry((*self.specs(), *specs))

    def _hint(self, name: str) -> str:
        near = get_close_matches(name[:_SHOWN], self._tools, n=3)
        return f"Did you mean {' or '.join(near)}?" if near else "palyra tools list shows them all."


def make_registry(specs: Iterable[ToolSpec]) -> Registry:
    tools: dict[str, RegisteredTool] = {}
    for spec in specs:
        if spec.name in tools:
            raise ValueError(f"two tools are called {spec.name}")
        tools[spec.name] = RegisteredTool(spec)
    return Registry(MappingProxyType(tools))
