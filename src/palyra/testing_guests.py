"""Fakes for guests: a canned end, a table of skills, values kept in a dictionary. No wasmtime, no process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from palyra.engine.ports import HostCall
from palyra.errors import Reason, Rejected
from palyra.model.outcome import Execution, Status, Usage
from palyra.model.skill import SkillTool
from palyra.model.wasm import HostAnswer, WasmPlan
from palyra.values import dataclass

DONE = Execution(status=Status.COMPLETED, exit_code=0, usage=Usage(wall_us=1000, fuel=7))


@dataclass
class FakeGuests:
    """Ends as told. `asks` are made of the host on the way, `answers` what came back; `plans` those it was given."""

    output: bytes | None = b"{}"
    execution: Execution = DONE
    asks: tuple[tuple[str, str, bytes], ...] = ()
    answers: list[HostAnswer] = field(default_factory=list)
    plans: list[WasmPlan] = field(default_factory=list)
    failure: BaseException | None = None

    async def run(self, plan: WasmPlan, module: bytes, answer: HostCall) -> tuple[Execution, bytes | None]:
        self.plans.append(plan)
        for operation, name, payload in self.asks:
            self.answers.append(await answer(operation, name, payload, 1.0))
        if self.failure is not None:
            raise self.failure
        return self.execution, self.output


@dataclass
class FakeSkills:
    """Skill tools by skill id, each with its module."""

    active: dict[str, tuple[SkillTool, bytes]] = field(default_factory=dict)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def find(self, skill_id: str, *, version: str, tool_id: str) -> SkillTool:
        skill_id = skill_id or next((name for name, (t, _) in self.active.items() if t.tool_id == tool_id), "")
        if skill_id not in self.active:
            raise Rejected(Reason.SKILL_NOT_ACTIVE, f"No skill {skill_id} is installed and enabled here.")
        return self.active[skill_id][0]

    def module(self, tool: SkillTool) -> bytes:
        return self.active[tool.skill_id][1]

    def fail(self, tool: SkillTool, why: str) -> None:
        self.failed.append((tool.skill_id, why))

    def is_active(self, tool: SkillTool) -> bool:
        return tool.skill_id in self.active


@dataclass
class FakeGuestStorage:
    kept: dict[tuple[str, str], bytes] = field(default_factory=dict)
    quota_bytes: int = 1 << 20

    async def get(self, skill_id: str, key: str) -> bytes | None:
        return self.kept.get((skill_id, key))

    async def put(self, skill_id: str, key: str, value: bytes) -> None:
        if len(value) > self.quota_bytes:
            raise Rejected(Reason.QUOTA_EXCEEDED, f"{skill_id} stores too much.")
        self.kept[skill_id, key] = value

    async def delete(self, skill_id: str, key: str) -> None:
        self.kept.pop((skill_id, key), None)

    async def list(self, skill_id: str, prefix: str) -> Sequence[str]:
        return sorted(key for owner, key in self.kept if owner == skill_id and key.startswith(prefix))
