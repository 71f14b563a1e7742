"""Steps 1 to 6 of the walk: from what was asked to a plan, or a refusal. Nothing runs, nothing is written.

1 validate · 2 look · 3 guard · 4 authorise · 5 budget · 6 plan. Each function fills in the trip or raises `Rejected`.
`palyra sandbox explain` and `policy explain` walk exactly these steps, so what they show is what would happen.

Not here: the order itself (engine/walk), what each room thinks (its own module).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import orjson

from palyra.budget.ledger import Ledger, check_attempts
from palyra.canon import Json, canonical, sha256_hex
from palyra.config.schema import Config, ProcessRunnerConfig
from palyra.egress.asked import narrow
from palyra.egress.face import face_of
from palyra.egress.preflight import denied, hosts_named
from palyra.egress.watch import watching_face
from palyra.engine.background import background_limits, check_background
from palyra.engine.listing import is_named
from palyra.engine.narrowing import check_narrowing
from palyra.engine.network import granted_network
from palyra.engine.ports import Ports, Standing
from palyra.engine.roads import make_guest_plan, prepare_inside, prepare_plugin
from palyra.engine.runs import RunScope
from palyra.engine.shadow import compare_candidate
from palyra.engine.shapes import Asked, Shape, answered_shape, process_shape
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected, Unenforceable
from palyra.guard.command import classify
from palyra.guard.environ import build_environment
from palyra.guard.facts import guard_process
from palyra.guard.gitenv import git_environment
from palyra.guard.paths import candidates
from palyra.guard.programs import normalise
from palyra.model.call import CallId, RunId, Tier, ToolCall
from palyra.model.grant import Decision, Deny
from palyra.model.host import Guarantee, HostFacts
from palyra.model.job import Facts, Job
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NamedHost, NetGrant
from palyra.model.outcome import BudgetView
from palyra.model.plan import BuiltinPlan, FetchPlan, ProcessPlan
from palyra.model.process import Lifetime
from palyra.model.run_facts import NO_FACTS
from palyra.model.sights import LookRequest
from palyra.model.tool import ToolKind
from palyra.policy.bundle import PolicyBundle
from palyra.policy.decide import decide
from palyra.policy.request import ask_again, build_request
from palyra.protocol.parse import check_input, parse_input
from palyra.protocol.process_input import ProcessInput, check_process_input
from palyra.protocol.registry import Registry
from palyra.protocol.schema import check_arguments
from palyra.sandbox.planner import choose_tier, needs_for, plan_job

MAX_INPUT_BYTES = 448 << 10
"""Of a tool that cannot say so itself."""
AGENT_HOME = "/home/agent"
_OF_NOTHING = sha256_hex(b"")


def receive(trip: Trip) -> None:
    """What came, before anyone looked at it: even input that never parses has its digest in the record."""
    given = trip.request.input
    trip.input_bytes, trip.input_sha256 = (given, sha256_hex(given)) if isinstance(given, bytes) else (b"", _OF_NOTHING)


async def read_standing(trip: Trip, ports: Ports) -> Standing:
    """What the run has left and has done, and which policies are in use."""
    if ports.standings is not None:
        return ports.standings.read(trip.run.owner)
    return Standing(budget=await ports.journal.budget(trip.run.run_id))


def check_attempts_left(budget: Ledger | None) -> None:
    """A run that has used up its refused attempts gets no more answers out of policy or schemas."""
    if budget is not None:
        check_attempts(budget)


def validate(trip: Trip, registry: Registry) -> None:
    """1 — bytes → a known tool and an input its schema accepts; what was sent is kept as it was sent."""
    receive(trip)
    try:
        trip.tool = tool = registry.get(trip.request.tool)
    except Rejected as refused:
        if (
            refused.reason is not Reason.UNKNOWN_TOOL
        ):  # a skill's that is out of use: a retry must still be the same call
            with suppress(Rejected):
                _read(trip, MAX_INPUT_BYTES)
        raise
    value = _read(trip, tool.spec.max_input_bytes)
    check_arguments(tool.input_schema, value)
    trip.call = _call(trip, tool.spec.name, value)


def _read(trip: Trip, cap: int) -> Mapping[str, Json]:
    given = trip.request.input
    value = parse_input(given, max_bytes=cap) if isinstance(given, bytes) else check_input(given, max_bytes=cap)
    trip.input_bytes = canonical(value)
    trip.input_sha256 = sha256_hex(trip.input_bytes)
    trip.parsed = True
    return value


def _call(trip: Trip, tool: str, value: Mapping[str, Json]) -> ToolCall:
    run = trip.run
    return ToolCall(
        call_id=CallId(trip.call_id),
        run_id=RunId(run.run_id),
        tool=tool,
        input=value,
        input_sha256=trip.input_sha256,
        context=run.context,
        workspace=run.workspace,
        received_unix_ms=trip.received_unix_ms,
        limits=run.limits,
        grant=run.grant,
    )


def recall(trip: Trip, ports: Ports, shape: Shape) -> None:
    """1 to 3 of a call that was asked before: the disk is looked at again, and judged if it changed."""
    trip.tool, trip.input_bytes, trip.input_sha256 = shape.tool, shape.input_bytes, shape.input_sha256
    trip.parsed = True
    if shape.process is None or shape.look is None:
        # Read anew: what the engine answers may be the input itself, and then its caller's to change.
        trip.call = _call(trip, shape.tool.spec.name, orjson.loads(shape.input_bytes))
        trip.facts, trip.shape = shape.facts, shape
        return
    trip.call = _call(trip, shape.tool.spec.name, shape.input)
    trip.process, trip.look = shape.process, shape.look
    trip.sights = ports.look.look(shape.look)
    if trip.sights == shape.sights:
        trip.sights, trip.facts, trip.job, trip.shape = shape.sights, shape.facts, shape.job, shape
    else:
        _guard(trip, ports, shape.process, ports.config.tool_call.process_runner)


def prepare(trip: Trip, ports: Ports) -> None:
    """2 look, 3 guard — what the call would really do, as facts for policy and a job for the planner."""
    assert trip.tool is not None
    assert trip.call is not None
    if trip.tool.spec.kind is ToolKind.BUILTIN:
        trip.facts = Facts()
        trip.shape = answered_shape(trip)
        return
    if trip.tool.spec.kind is ToolKind.INSIDE:
        prepare_inside(trip, ports)
        return
    if trip.tool.spec.kind is ToolKind.PLUGIN:
        prepare_plugin(trip, ports)
        return
    runner = ports.config.tool_call.process_runner
    if not runner.enabled:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            "Running processes is switched off.",
            "Set enabled = true in [tool_call.process_runner].",
        )
    trip.process = process = check_process_input(trip.call.input)
    check_background(trip, process, runner)
    first = classify(process.command, process.args)
    trip.look = LookRequest(
        workspace=trip.call.workspace,
        cwd=process.cwd,
        command=process.command,
        also=first.also,
        search_path=runner.path,
        candidates=candidates(process.args, program=process.command),
    )
    trip.sights = ports.look.look(trip.look)
    _guard(trip, ports, process, runner)


def _guard(trip: Trip, ports: Ports, process: ProcessInput, runner: ProcessRunnerConfig) -> None:
    assert trip.call is not None
    assert trip.sights is not None
    sights, grant = trip.sights, trip.call.grant
    classification = classify(process.command, process.args, sights.executable.shebang)
    net, named = network_of(trip, process, runner)
    refused_hosts = () if net.mode is EgressMode.NONE else denied(net, named)
    tier = choose_tier(trip.run.tier, ports.host, net, fallback=runner.fallback_tier)
    facts = guard_process(
        command=process.command,
        args=process.args,
        classification=classification,
        sights=sights,
        allowed_executables=runner.allowed_executables,
        allow_interpreters=runner.allow_interpreters,
        read_roots=(*runner.read_roots, *grant.read_roots),
        grant=grant,
        tier=tier.value,
        egress=net.mode.value,
        hosts_named=named,
        hosts_denied=refused_hosts,
    )
    reaches_out = net.mode is not EgressMode.STRICT or bool(net.hosts)
    trip.facts = replace(facts, background=process.lifetime is not None, network=reaches_out)
    trip.job = make_job(trip, process, runner, net=net, named=named, tier=tier)
    trip.shape = process_shape(trip, process)


def network_of(
    trip: Trip, process: ProcessInput, runner: ProcessRunnerConfig
) -> tuple[NetGrant, tuple[NamedHost, ...]]:
    net = narrow(granted_network(trip.run, runner), process.requested_egress_hosts)
    return net, hosts_named(process.command, process.args, process.requested_egress_hosts)


def make_job(
    trip: Trip,
    process: ProcessInput,
    runner: ProcessRunnerConfig,
    *,
    net: NetGrant,
    named: tuple[NamedHost, ...],
    tier: Tier,
) -> Job:
    assert trip.sights is not None
    needs, wants = needs_for(tier, net)
    executable, grant = trip.sights.executable, trip.run.grant
    return Job(
        program=executable.found_at or executable.path,
        program_file=executable.path if executable.found_at else "",
        program_sha256=executable.sha256,
        argv=(process.command, *process.args),
        env=build_environment(
            search_path=runner.path,
            home=AGENT_HOME if tier is Tier.C else trip.sights.workspace.path,
            caller=dict(process.env),
            settable=runner.settable_env,
            operator=grant.env,
            also=git_environment() if _is_harmless_git(trip) else (),
        ),
        cwd=trip.sights.cwd.resolved,
        workspace=trip.sights.workspace,
        read_roots=tuple(dict.fromkeys((*runner.read_roots, *grant.read_roots))),
        limits=_limits(trip, process, runner),
        net=net,
        tier=tier,
        needs=needs,
        wants=wants,
        stdin=process.stdin,
        stdin_streamed=trip.request.source is not None and process.lifetime is None,
        hosts_named=named,
    )


def _is_harmless_git(trip: Trip) -> bool:
    """git, alone or behind a wrapper, in a call that was judged to run no code and was not granted any."""
    assert trip.sights is not None
    assert trip.facts is not None
    names = (trip.sights.executable, *trip.sights.also)
    runs_code = trip.facts.runs_code or trip.facts.interpreter or trip.facts.granted_interpreters
    return not runs_code and any(normalise(sight.name) == "git" for sight in names)


def _limits(trip: Trip, process: ProcessInput, runner: ProcessRunnerConfig) -> Limits:
    if process.lifetime is not None:
        return background_limits(trip.run.limits, runner)
    return _within(trip.run.limits, process.timeout_ms)


def _within(limits: Limits, timeout_ms: int | None) -> Limits:
    return limits if timeout_ms is None else limits.narrow(_with_wall(limits, timeout_ms))


def _with_wall(limits: Limits, wall_ms: int) -> Limits:
    return Limits(**{**limits.as_json(), "wall_ms": min(wall_ms, limits.wall_ms)})


def authorise(trip: Trip, ports: Ports, standing: Standing) -> None:
    """4 — the configuration's own lists, then Cedar. A denial is raised with the policy's code."""
    assert trip.tool is not None
    assert trip.call is not None
    assert trip.facts is not None
    bundle = ports.policies.at(standing.policy) if standing.policy_is_read else ports.policies.current()
    budget = standing.budget
    trip.policy_sha256 = bundle.digest
    trip.run_looks_new = budget is None
    # A run that ends with its one call is never marked, and one that nobody knows has made no calls.
    fresh = budget is None and trip.run.scope is RunScope.CALL
    trip.run_facts = NO_FACTS if fresh else standing.facts or ports.run_facts.read(trip.run.owner)
    used, maximum = (budget.calls_used, budget.calls_max) if budget else (0, trip.run.calls_max)
    before = trip.shape.asked if trip.shape is not None else None
    if before is None:
        _check_lists(ports.config, trip)
        check_narrowing(trip)
        trip.cedar = build_request(
            trip.call,
            trip.tool.spec,
            trip.facts,
            budget=BudgetView(calls_used=used, calls_max=maximum),
            approved=False,
            hour=trip.received_unix_ms // 3_600_000 % 24,
            run=trip.run_facts,
            roles=ports.config.principals.roles_of(str(trip.call.context.principal)),
        )
    else:
        hour = trip.received_unix_ms // 3_600_000 % 24
        trip.cedar = ask_again(before.cedar, calls_used=used, calls_max=maximum, hour=hour, run=trip.run_facts)
    trip.decision = decision = _decide(trip, bundle, before)
    if ports.candidate is not None:
        trip.shadow = compare_candidate(ports.candidate, trip.cedar, decision)
    if isinstance(decision, Deny):
        raise Rejected(decision.reason, decision.message, decision.hint)


def _decide(trip: Trip, bundle: PolicyBundle, before: Asked | None) -> Decision:
    """The same answer while no policy can see a difference."""
    assert trip.cedar is not None
    assert trip.facts is not None
    seen = bundle.cedar.pick(trip.cedar.context)
    if before is not None and before.bundle is bundle and before.seen == seen:
        return before.decision
    decision = decide(bundle, trip.cedar, details=trip.facts.details)
    if trip.shape is not None:
        trip.shape.asked = Asked(cedar=trip.cedar, bundle=bundle, seen=seen, decision=decision)
    return decision


def _check_lists(config: Config, trip: Trip) -> None:
    assert trip.tool is not None
    spec, lists = trip.tool.spec, config.tool_call
    if not is_named(spec, lists.allowed_tools):
        raise Rejected(
            Reason.POLICY_DENIED, f"{spec.name} is not in allowed_tools.", "Add it to allowed_tools in [tool_call]."
        )
    missing = sorted(c.value for c in spec.capabilities if c.value not in lists.allowed_capabilities)
    if missing:
        raise Rejected(
            Reason.CAPABILITY_DENIED,
            f"{spec.name} needs the capability {missing[0]}, which is not allowed here.",
            "Add it to allowed_capabilities in [tool_call].",
        )


def _with_face(job: Job, ports: Ports) -> Job:
    if job.tier is not Tier.C:
        return job
    face = face_of(job.net)
    if face is None:
        return replace(job, face=watching_face(job.net, job.argv[0], job.argv[1:]))
    return replace(job, face=face, trust=ports.intercepts.trust_for(job.net) if ports.intercepts else None)


def make_plan(trip: Trip, ports: Ports) -> None:
    """6 — the first backend that guarantees enough on this host; none, and it is refused."""
    assert trip.tool is not None
    if trip.guest is not None:
        trip.plan = make_guest_plan(trip, ports)
        trip.plan_bytes = canonical(trip.plan.as_json())
    elif trip.shape is not None and trip.shape.plan is not None and trip.job is trip.shape.job:
        trip.plan, trip.plan_bytes = trip.shape.plan, trip.shape.plan_bytes
    elif trip.job is None:
        trip.plan = BuiltinPlan(tool=trip.tool.spec.name, limits=trip.run.limits)
        trip.plan_bytes = canonical(trip.plan.as_json())
        if trip.shape is not None:
            trip.shape.plan, trip.shape.plan_bytes = trip.plan, trip.plan_bytes
    else:
        lifetime = trip.process.lifetime if trip.process is not None else None
        plan = _plan.__wrapped__ if trip.job.stdin else _plan  # what may be large is not kept
        job = _with_face(trip.job, ports)
        if trip.request.learn and trip.process is not None:
            from palyra.engine.learn import learning_job

            job = learning_job(trip, job, ports)
        trip.plan, trip.plan_bytes = plan(job, ports.host, lifetime)
        if trip.shape is not None and trip.job is trip.shape.job:
            trip.shape.plan, trip.shape.plan_bytes = trip.plan, trip.plan_bytes
        if trip.fetch is not None:
            trip.plan = FetchPlan(order=trip.fetch, parser=trip.plan)
            trip.plan_bytes = canonical(trip.plan.as_json())


@lru_cache(maxsize=128)
def _plan(job: Job, host: HostFacts, lifetime: Lifetime | None) -> tuple[ProcessPlan, bytes]:
    """The plan and its canonical bytes. Remembered: a plan follows from these values and nothing else, and agents run
    the same few commands over and over."""
    plan = plan_job(job, host)
    if lifetime is not None and plan.intercepted:
        raise Unenforceable(
            (Guarantee.HOST_ALLOWLIST.value,),
            f"TLS of {plan.intercepted[0]} is ended by this process, which a background process outlives.",
            "Run it in the foreground, or leave the host out of intercept in [egress].",
        )
    if lifetime is not None:  # where its keeper crashes, a group is what can still be found and ended
        group = plan.cgroup_parent or ("" if plan.pid_namespace else host.cgroup_kill)
        plan = replace(plan, lifetime=lifetime.value, cgroup_parent=group)
    return plan, canonical(plan.as_json())
