"""`palyra skills test` as one callable: the package as it was built, run on its recorded inputs.

The same road as a call's: the package is read whole, its modules are scanned, compiled in the compiler's sandbox and
run by a jailed worker, with the handles and limits of its manifest narrowed by the configuration, and the result is
held against the tool's schemas. Only the world outside is recorded: hosts, stored values and secrets are the case's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Protocol

from palyra.canon import Json, canonical, sha256_hex
from palyra.config.tool_call import WasmRuntimeConfig
from palyra.engine.guest_http import read_request
from palyra.engine.ports import HostCall
from palyra.errors import Rejected
from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import Refused
from palyra.inside.wasm.surface import check_key
from palyra.model.limits import Limits
from palyra.model.outcome import Execution, Status
from palyra.model.wasm import GuestKind, HostAnswer, ModuleFacts, WasmLimits, WasmPlan
from palyra.protocol.parse import parse_value
from palyra.protocol.schema import check_arguments, compile_schema
from palyra.sandbox.wasm import narrowed, plan_guest
from palyra.sandbox.wasm_scan import scan
from palyra.skills.bundle import Skill
from palyra.skills.capabilities import grants_of
from palyra.skills.manifest import ToolEntry
from palyra.skills.recorded import Case, Verdict, judge
from palyra.values import dataclass


@dataclass(slots=True)
class RecordedWorld:
    """Answers a guest's host calls from a case, and remembers what it left."""

    case: Case
    requests: int = 0
    storage: dict[str, bytes] = field(default_factory=dict)
    channels: dict[str, list[str]] = field(default_factory=dict)
    surprises: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.storage = {place: text.encode() for place, text in self.case.storage.items()}

    async def answer(self, operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        try:
            return self._answer(operation, name, payload, left_s)
        except Refused as refusal:
            return HostAnswer(number=refusal.number)
        except Rejected as refusal:
            self.surprises.append(refusal.detail)
            return HostAnswer(number=abi.BAD_ARGUMENT)

    def _answer(self, operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        match operation:
            case "log":
                return HostAnswer()
            case "channel-send":
                self.channels.setdefault(name, []).append(payload.decode("utf-8", "replace"))
                return HostAnswer()
            case "secret-get":
                value = self.case.secrets.get(name)
                return HostAnswer(number=abi.NOT_GRANTED) if value is None else HostAnswer(body=value.encode())
            case "http-fetch":
                return self._fetch(name, payload, left_s)
        return self._stored(operation, name, payload)

    def _fetch(self, host: str, payload: bytes, left_s: float) -> HostAnswer:
        read_request(host, payload, left_s=left_s)  # as strictly as at run time
        asked = json.loads(payload)
        expected = self.case.http[self.requests] if self.requests < len(self.case.http) else None
        self.requests += 1
        if expected is None or expected.host != host or dict(expected.request) != asked:
            self.surprises.append(f"request {self.requests} to {host}: {json.dumps(asked, sort_keys=True)}")
            return HostAnswer(number=abi.FAILED)
        return HostAnswer(body=canonical(expected.answer)) if expected.answer else HostAnswer(number=expected.error)

    def _stored(self, operation: str, prefix: str, payload: bytes) -> HostAnswer:
        key, _, value = payload.partition(b"\0")
        text = key.decode("ascii", "replace")
        if text or operation != "storage-list":
            check_key(text)
        place = f"{prefix}/{text}"
        match operation:
            case "storage-get":
                found = self.storage.get(place)
                return HostAnswer(number=abi.ABSENT) if found is None else HostAnswer(body=found)
            case "storage-put":
                self.storage[place] = value
            case "storage-delete":
                self.storage.pop(place, None)
            case "storage-list":
                keys = sorted(key.removeprefix(f"{prefix}/") for key in self.storage if key.startswith(place))
                return HostAnswer(body="\n".join(keys).encode())
        return HostAnswer()

    def left(self) -> dict[str, Json]:
        return {
            "storage_after": {place: data.decode("utf-8", "replace") for place, data in sorted(self.storage.items())},
            "channels": {name: list(texts) for name, texts in sorted(self.channels.items())},
        }


class Guests(Protocol):
    """The engine's own port for guests, or the house behind it."""

    async def run(self, plan: WasmPlan, module: bytes, answer: HostCall) -> tuple[Execution, bytes | None]: ...


class Proving:
    """Runs the tools of one package on cases."""

    def __init__(self, skill: Skill, house: Guests, runtime: WasmRuntimeConfig) -> None:
        self._skill, self._house, self._runtime = skill, house, runtime
        self._tools: Mapping[str, ToolEntry] = {tool.id: tool for tool in skill.manifest.tools}

    async def prove(self, case: Case) -> Verdict:
        tool = self._tools[case.tool]
        world = RecordedWorld(case)
        try:
            check_arguments(compile_schema(tool.input_schema), case.input)
            module = self._skill.files[tool.module]
            plan = self._plan(tool, module, case)
            execution, output = await self._house.run(plan, module, world.answer)
        except Rejected as refused:
            got: dict[str, Json] = {"status": "refused", "reason": refused.reason.value, "message": refused.detail}
            return judge(case, got)
        verdict = judge(case, {**_told(tool, execution, output), **world.left()})
        verdict = replace(verdict, fuel=execution.usage.fuel)
        unmade = len(case.http) - world.requests
        surprises = [*world.surprises, *([f"{unmade} recorded requests were not made"] if unmade > 0 else [])]
        if not surprises:
            return verdict
        notes = "\n".join(f"! {line}" for line in surprises)
        return replace(verdict, passed=False, diff=f"{verdict.diff}\n{notes}".strip())

    def _plan(self, tool: ToolEntry, module: bytes, case: Case) -> WasmPlan:
        facts: ModuleFacts = scan(module)
        asked = self._skill.manifest.capabilities
        runtime, kind = self._runtime, facts.kind
        most = WasmLimits(
            fuel=runtime.component_fuel_budget if kind is GuestKind.COMPONENT else runtime.fuel_budget,
            memory_bytes=runtime.max_memory_bytes,
            table_elements=runtime.max_table_elements,
        )
        return plan_guest(
            module_sha256=sha256_hex(module),
            guest=kind,
            memories=facts.memories,
            skill_id=self._skill.manifest.skill_id,
            tool_id=tool.id,
            input=canonical(case.input),
            wasm=narrowed(asked.quotas.limits(kind), most),
            grants=grants_of(asked),
            limits=Limits(),
            in_process=False,
        )


def _told(tool: ToolEntry, execution: Execution, output: bytes | None) -> dict[str, Json]:
    """What a call's outcome would say."""
    told: dict[str, Json] = {
        "status": execution.status.value,
        "reason": execution.reason.value if execution.reason else None,
        "message": execution.message,
        "exit_code": execution.exit_code,
        "result": None,
    }
    if execution.status is not Status.COMPLETED or output is None:
        return told
    try:
        told["result"] = result = parse_value(output)
        check_arguments(compile_schema(tool.output_schema), result)
    except Rejected as refused:
        message = f"Its output does not fit the tool's output schema: {refused.detail}"
        told |= {"status": "trapped", "reason": "TRAPPED", "message": message}
    return told
