"""The engine's port for skills, and the registry's source of their tools.

What is behind it is loaded when the first name that is not Palyra's own is asked for: most calls never need it, and
every start of the command line would pay for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.engine.ports import Clock
from palyra.errors import StateError
from palyra.model.skill import SkillTool
from palyra.model.tool import ToolSpec
from palyra.protocol.registry import RegisteredTool
from palyra.state.writer import Writer

if TYPE_CHECKING:
    from palyra.config.schema import Config
    from palyra.wiring.skill_acts import SkillDesk
    from palyra.wiring.skill_audit import Compiles
    from palyra.wiring.skills import InstalledSkills


class SkillDoor:
    def __init__(self, writer: Writer, clock: Clock, home: Path) -> None:
        self._writer, self._clock, self._home = writer, clock, home
        self._skills: InstalledSkills | None = None
        self._desk: SkillDesk | None = None

    def desk(self, config: Config, compiler: Compiles) -> SkillDesk:
        """The operator's; one, because it remembers which rows it has verified."""
        if self._desk is None:
            acts, files = import_module("palyra.wiring.skill_acts"), import_module("palyra.wiring.skill_files")
            self._desk = acts.SkillDesk(self._writer, config, self._clock, files.SkillFiles(self._home), compiler)
        assert self._desk is not None
        return self._desk

    def find(self, skill_id: str, *, version: str, tool_id: str) -> SkillTool:
        return self._installed().find(skill_id, version=version, tool_id=tool_id)

    def module(self, tool: SkillTool) -> bytes:
        return self._installed().module(tool)

    def is_active(self, tool: SkillTool) -> bool:
        return self._installed().is_active(tool)

    def fail(self, tool: SkillTool, why: str) -> None:
        self._installed().fail(tool, why)

    def knows(self, name: str) -> bool:
        try:
            return self._is_named(name)
        except StateError:  # asked before a call has begun; the call itself says that the journal is down
            return False

    def tool(self, name: str) -> RegisteredTool | None:
        return self._installed().tool(name) if self._is_named(name) else None

    def _is_named(self, name: str) -> bool:
        if name.startswith("palyra.") or "." not in name:  # no skill can have such a name
            return False
        return bool(self._writer.rows("SELECT 1 FROM skill_tools WHERE tool_id = ? LIMIT 1", (name,)))

    def specs(self) -> Sequence[ToolSpec]:
        if not self._writer.rows("SELECT 1 FROM skills WHERE status = 'active' LIMIT 1"):
            return ()
        return self._installed().specs()

    def _installed(self) -> InstalledSkills:
        if self._skills is None:
            skills, files = import_module("palyra.wiring.skills"), import_module("palyra.wiring.skill_files")
            self._skills = skills.InstalledSkills(self._writer, self._clock, files.SkillFiles(self._home))
        assert self._skills is not None
        return self._skills
