"""Which tools are shown to a principal: those that the configuration's lists and the policies could ever allow.

Not here: deciding a call; what is hidden here is refused there too, and what is shown may still be refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from palyra.config.schema import Config
from palyra.model.call import Principal
from palyra.model.tool import ToolKind, ToolSpec
from palyra.policy.bundle import PolicyBundle
from palyra.protocol.registry import Registry

PLUGIN_RUN = "palyra.plugin.run"


def tools_for(principal: Principal, registry: Registry, config: Config, bundle: PolicyBundle) -> tuple[ToolSpec, ...]:
    from palyra.policy.reach import Reach  # a call is decided without it

    reach, roles = Reach(bundle), config.principals.roles_of(str(principal))
    return tuple(
        spec for spec in registry.specs() if _is_listed(spec, config) and reach.could(principal, spec, roles=roles)
    )


def _is_listed(spec: ToolSpec, config: Config) -> bool:
    lists = config.tool_call
    if spec.kind is ToolKind.PROCESS and not lists.process_runner.enabled:
        return False
    if spec.kind is ToolKind.PLUGIN and not lists.wasm_runtime.enabled:
        return False
    named = is_named(spec, lists.allowed_tools)
    return named and all(capability.value in lists.allowed_capabilities for capability in spec.capabilities)


def is_named(spec: ToolSpec, allowed_tools: Sequence[str]) -> bool:
    """By its own name; a tool of an enabled skill also as palyra.plugin.run, which calls the same."""
    names = (spec.name,) if spec.provenance == "builtin" else (spec.name, PLUGIN_RUN)
    return any(fnmatchcase(name, pattern) for name in names for pattern in allowed_tools)
