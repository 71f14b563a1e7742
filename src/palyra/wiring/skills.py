"""No skill is installed: what answers for skills where there is no store of them."""

from __future__ import annotations

from palyra.errors import Reason, Rejected
from palyra.model.skill import SkillTool


class NoSkills:
    def find(self, skill_id: str, *, version: str, tool_id: str) -> SkillTool:
        raise Rejected(
            Reason.SKILL_NOT_ACTIVE,
            f"No skill {skill_id} is installed and enabled here.",
            "Send the module itself as module_base64, where allow_inline_modules and the policies permit it.",
        )

    def module(self, tool: SkillTool) -> bytes:
        raise Rejected(Reason.SKILL_NOT_ACTIVE, f"No skill {tool.skill_id} is installed and enabled here.")
