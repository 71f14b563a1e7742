"""palyra.plugin.run: a guest of tier A, from its input to its answer.

Before: a skill's tool as it is enabled now, or an inline module that was scanned; limits and grants narrowed by the
configuration. After: the guest's JSON is checked against the tool's schema and redacted; what it sent to channels
becomes artifacts of the run. Nothing the guest says is trusted: not its output, not its sentences.

Not here: running it (the guests port), what its host calls do (hostcalls), which skills are active (the skills port).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import lru_cache

import orjson

from palyra.canon import Json, canonical, sha256_hex
from palyra.config.tool_call import WasmRuntimeConfig
from palyra.egress.rules import judge_host
from palyra.engine.guest_http import host_of
from palyra.engine.hostcalls import HostCalls
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, GuestOrder, Trip
from palyra.engine.watch import Watch
from palyra.errors import Reason, Rejected, StateError
from palyra.model.call import Tier
from palyra.model.job import Facts
from palyra.model.net import EgressMode, NetGrant
from palyra.model.outcome import Execution, Status, Usage
from palyra.model.skill import SkillTool
from palyra.model.wasm import CapabilityGrants, GuestKind, WasmLimits, WasmPlan
from palyra.protocol.parse import parse_value
from palyra.protocol.plugin_schema import PluginInput, check_plugin_input
from palyra.protocol.registry import RegisteredTool
from palyra.protocol.schema import CompiledSchema, check_arguments, compile_schema
from palyra.redact.values import redact_json_counted
from palyra.sandbox.planner import check_own_programs
from palyra.sandbox.wasm import narrowed, plan_guest
from palyra.sandbox.wasm_scan import scan

log = logging.getLogger("palyra.engine")

INLINE_TOOL = "inline"
_ENABLE = "An operator enables it: palyra skills enable ID."
_HINTS = {
    Reason.OUT_OF_FUEL: "Raise fuel_budget or component_fuel_budget in [tool_call.wasm_runtime].",
    Reason.MEMORY_LIMIT: "Raise max_memory_bytes in [tool_call.wasm_runtime].",
    Reason.TIMEOUT: "Raise execution_timeout_ms in [tool_call].",
    Reason.BAD_ARGUMENTS: "docs/spec/wasm.md has the two surfaces a guest may be built to.",
}


def prepare_plugin(trip: Trip, ports: Ports) -> None:
    """2 look, 3 guard — which module, as it is now, and what it may use."""
    assert trip.call is not None
    runtime = ports.config.tool_call.wasm_runtime
    if not runtime.enabled:
        raise Rejected(
            Reason.CAPABILITY_DENIED, "Plugins are switched off.", "Set enabled = true in [tool_call.wasm_runtime]."
        )
    given = _given(trip)
    if given.tool_id or given.skill_id:
        tool = ports.skills.find(given.skill_id, version=given.version, tool_id=given.tool_id)
        check_arguments(_schema(canonical(tool.input_schema)), given.input)
        trip.guest = _of_skill(trip, given, tool, ports)
        _take_on(trip, tool)
    else:
        trip.guest = _inline(trip, given, runtime)
    skill = trip.guest.skill
    trip.facts = Facts(
        tier=Tier.A.value,
        inline_code=skill is None,
        network=skill is not None and bool(skill.grants.http),
        granted_egress=skill is not None and _hosts_granted(trip, skill),
    )


def _given(trip: Trip) -> PluginInput:
    """What palyra.plugin.run was sent; a call of a skill's tool by its own name is the same, with that tool's input."""
    assert trip.call is not None
    assert trip.tool is not None
    if trip.tool.spec.provenance == "builtin":
        return check_plugin_input(trip.call.input)
    return PluginInput(skill_id="", tool_id=trip.tool.spec.name, version="", module=b"", input=trip.call.input)


def _hosts_granted(trip: Trip, tool: SkillTool) -> bool:
    """Whether the operator's own flags for this call name every host the skill reaches."""
    flags = NetGrant(EgressMode.STRICT, trip.run.grant.hosts)
    return bool(tool.grants.http) and all(judge_host(flags, *host_of(host)).allowed for host in tool.grants.http)


def _take_on(trip: Trip, tool: SkillTool) -> None:
    """What the skill can do counts as what the tool can do: lists, policies and labels judge by it."""
    assert trip.tool is not None
    spec = trip.tool.spec
    if spec.provenance not in ("builtin", tool.payload_sha256):
        raise Rejected(Reason.SKILL_NOT_ACTIVE, f"{tool.skill_id} was changed while the call was being prepared.")
    sensitive = spec.sensitive or tool.sensitive
    if sensitive != spec.sensitive or not tool.capabilities <= spec.capabilities:
        both = spec.capabilities | tool.capabilities
        trip.tool = RegisteredTool(replace(spec, capabilities=both, sensitive=sensitive))


@lru_cache(maxsize=256)
def _schema(text: bytes) -> CompiledSchema:
    """A skill's schema, compiled once however often its tool is called."""
    return compile_schema(orjson.loads(text))


def _fuel(guest: GuestKind, runtime: WasmRuntimeConfig) -> int:
    return runtime.component_fuel_budget if guest is GuestKind.COMPONENT else runtime.fuel_budget


def _of_skill(trip: Trip, given: PluginInput, tool: SkillTool, ports: Ports) -> GuestOrder:
    return GuestOrder(
        module=ports.skills.module(tool),
        module_sha256=tool.module_sha256,
        guest=tool.guest,
        memories=tool.memories,
        input=canonical(given.input),
        limits=trip.run.limits,
        fuel=_fuel(tool.guest, ports.config.tool_call.wasm_runtime),
        skill=tool,
    )


def _inline(trip: Trip, given: PluginInput, runtime: WasmRuntimeConfig) -> GuestOrder:
    if not runtime.allow_inline_modules:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            "Modules in a call's input are switched off.",
            "Install it as a skill, or set allow_inline_modules = true in [tool_call.wasm_runtime].",
        )
    facts = scan(given.module)
    return GuestOrder(
        module=given.module,
        module_sha256=sha256_hex(given.module),
        guest=facts.kind,
        memories=facts.memories,
        input=canonical(given.input),
        limits=trip.run.limits,
        fuel=_fuel(facts.kind, runtime),
    )


def make_guest_plan(trip: Trip, ports: Ports) -> WasmPlan:
    """6 — limits narrowed to the configuration's and the run's; an inline module is granted nothing."""
    assert trip.guest is not None
    check_own_programs(ports.host)
    order, runtime = trip.guest, ports.config.tool_call.wasm_runtime
    most = WasmLimits(
        fuel=order.fuel,
        memory_bytes=runtime.max_memory_bytes,
        table_elements=runtime.max_table_elements,
        wall_ms=order.limits.wall_ms,
        output_bytes=order.limits.output_bytes,
    )
    skill = order.skill
    return plan_guest(
        module_sha256=order.module_sha256,
        guest=order.guest,
        memories=order.memories,
        skill_id=skill.skill_id if skill else "",
        tool_id=skill.tool_id if skill else INLINE_TOOL,
        input=order.input,
        wasm=narrowed(skill.limits, most) if skill else most,
        grants=skill.grants if skill else CapabilityGrants(),
        limits=order.limits,
        in_process=skill is not None and skill.publisher in runtime.in_process_publishers,
    )


async def run_plugin(trip: Trip, plan: WasmPlan, ports: Ports) -> Ending:
    """9, 10 — run the guest, then judge and redact what it gave."""
    assert trip.guest is not None
    calls = HostCalls(trip, plan, ports)
    try:
        execution, output = await _run_while_active(trip.guest, plan, calls, ports)
    except asyncio.CancelledError:
        wall = ports.clock.monotonic_us() - trip.started_us
        usage = Usage(wall_us=wall, cpu_us=None, max_rss_bytes=None)
        execution, output = Execution(status=Status.CANCELLED, reason=Reason.CANCELLED, usage=usage), None
        execution = replace(execution, message="The call was cancelled.")
    except Rejected as refused:  # before any code of the guest's ran: it cannot be compiled, or not be jailed here
        if trip.guest.skill is not None and refused.reason is Reason.BAD_ARGUMENTS:
            ports.skills.fail(trip.guest.skill, refused.detail)
        usage = Usage(wall_us=ports.clock.monotonic_us() - trip.started_us)
        return Ending(
            status=Status.REFUSED,
            reason=refused.reason,
            message=refused.detail,
            hint=refused.hint,
            execution=Execution(status=Status.REFUSED, usage=usage),
            by_engine=True,
        )
    execution = replace(execution, connections=calls.connections())
    ending = _ending(trip, execution, output)
    if ending.output:
        ending = replace(ending, output={**ending.output, "host_calls": calls.record()})
    secrets = ports.secrets.known_values(trip.run.run_id)
    clean, trip.redactions = redact_json_counted(dict(ending.output), secrets)
    await _keep_channels(trip, calls, ports)
    assert isinstance(clean, dict)
    return replace(ending, output=clean)


async def _run_while_active(
    order: GuestOrder, plan: WasmPlan, calls: HostCalls, ports: Ports
) -> tuple[Execution, bytes | None]:
    """The guest's run, which ends when its skill is no longer enabled, whoever took it back and in which process."""
    skill = order.skill
    if skill is None:
        return await ports.guests.run(plan, order.module, calls.answer)
    if not ports.skills.is_active(skill):
        raise Rejected(Reason.SKILL_NOT_ACTIVE, f"{skill.skill_id} {skill.version} is no longer enabled.", _ENABLE)
    began = ports.clock.monotonic_us()
    bound = asyncio.timeout(None)
    watch = Watch(bound, lambda: ports.skills.is_active(skill))
    try:
        async with bound:
            return await ports.guests.run(plan, order.module, calls.answer)
    except TimeoutError:
        if not bound.expired():
            raise
        usage = Usage(wall_us=ports.clock.monotonic_us() - began, cpu_us=None, max_rss_bytes=None)
        message = f"{skill.skill_id} was taken out of use while it was running, so it was stopped."
        return Execution(status=Status.CANCELLED, reason=Reason.CANCELLED, message=message, usage=usage), None
    finally:
        watch.stop()


def _ending(trip: Trip, execution: Execution, output: bytes | None) -> Ending:
    if execution.status is not Status.COMPLETED:
        return Ending(
            status=execution.status,
            reason=execution.reason,
            message=execution.message,
            hint=_HINTS.get(execution.reason) if execution.reason else None,
            execution=execution,
            by_engine=execution.status is Status.REFUSED,
        )
    try:
        result = _result(output, trip.guest.skill if trip.guest else None)
    except Rejected as refused:
        execution = replace(execution, status=Status.TRAPPED, reason=Reason.TRAPPED, message=refused.detail)
        return Ending(status=Status.TRAPPED, reason=Reason.TRAPPED, message=refused.detail, execution=execution)
    return Ending(
        status=Status.COMPLETED,
        success=execution.exit_code == 0,
        message=execution.message,
        execution=execution,
        output={"result": result, "exit_code": execution.exit_code},
    )


def _result(output: bytes | None, skill: SkillTool | None) -> Json:
    """Raises Rejected for output that is no JSON or not what the tool's schema says. No output at all is null."""
    try:
        result: Json = None if output is None else parse_value(output)
    except Rejected:
        raise Rejected(Reason.TRAPPED, "The guest's output is not JSON that could be returned.") from None
    if skill is not None and output is not None:
        try:
            check_arguments(_schema(canonical(skill.output_schema)), result)
        except Rejected as refused:
            raise Rejected(
                Reason.TRAPPED, f"The guest's output does not fit its tool's output schema: {refused.detail}"
            ) from None
    return result


async def _keep_channels(trip: Trip, calls: HostCalls, ports: Ports) -> None:
    """What the guest sent, redacted, one artifact a channel."""
    for name, data in calls.sent(ports.secrets.known_values(trip.run.run_id)):
        try:
            trip.artifacts += (await ports.artifacts.put(trip.run.run_id, f"channel-{name}", data),)
        except (Rejected, StateError) as error:
            log.warning("call %s: channel %s could not be kept: %s", trip.call_id, name, error)
