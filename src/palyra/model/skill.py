"""A tool of an installed skill, as the engine runs it: which payload, with which grants, within which limits.

`SkillTool` is resolved once a call: gate, grant and run are of the same payload digest.

Not here: manifests, trust, life cycle (skills), running it (launch/guests).
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json
from palyra.model.tool import Capability
from palyra.model.wasm import CapabilityGrants, GuestKind, WasmLimits
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillTool:
    skill_id: str
    """`publisher.name`."""
    version: str
    tool_id: str
    payload_sha256: str
    """Of the skill as it was audited and enabled."""
    module_sha256: str
    guest: GuestKind
    memories: int
    grants: CapabilityGrants
    limits: WasmLimits
    """What the manifest asks for; the configuration narrows it."""
    capabilities: frozenset[Capability]
    input_schema: Mapping[str, Json]
    output_schema: Mapping[str, Json]
    sensitive: bool = False
    """Its manifest wants a person to agree to each call."""

    @property
    def publisher(self) -> str:
        return self.skill_id.partition(".")[0]
