"""Steps 1 to 3 of the walk: from what was asked to facts for policy and a job for the planner, or a refusal.

1 validate · 2 look · 3 guard. Each function fills in the trip or raises `Rejected`; nothing runs, nothing is written.
`palyra sandbox explain` and `policy explain` walk exactly these steps and the three after them, so what they show is
what would happen.

Not here: the order itself (engine/walk), what each room thinks (its own module), 4 authorise (decision), 5 budget
(budget), 6 plan (planning).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import orjson

from palyra.budget.ledger import Ledger, check_attempts
from palyra.canon import Json, canonical, sha256_hex
from palyra.config.tool_call import ProcessRunnerConfig
from palyra.egress.asked import narrow
from palyra.egress.preflight import denied, hosts_named
from palyra.egress.watch import NO_RETRIES, goes_out
from palyra.engine.background import background_limits, check_background
from palyra.engine.created import created_before
from palyra.engine.network import granted_network
from palyra.engine.ports import Ports, Standing
from palyra.engine.roads import prepare_inside, prepare_plugin
from palyra.engine.runs import RunScope
from palyra.engine.shapes import Shape, answered_shape, process_shape
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected
from palyra.guard.command import classify
from palyra.guard.environ import build_environment
from palyra.guard.facts import guard_process
from palyra.guard.paths import candidates
from palyra.guard.programs import normalise
from palyra.guard.texts import code_arguments
from palyra.model.call import CallId, Door, RunId, Tier, TierChoice, ToolCall
from palyra.model.job import Facts, Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK, EgressMode, NamedHost, NetGrant
from palyra.model.sights import LookRequest, WorkspaceSight
from palyra.model.tool import ToolKind
from palyra.protocol.parse import check_input, parse_input
from palyra.protocol.process_input import ProcessInput, check_process_input
from palyra.protocol.registry import Registry
from palyra.protocol.schema import check_arguments
from palyra.sandbox.planner import choose_tier, needs_for, walls_off_files
from palyra.sandbox.view import AGENT_HOME

MAX_INPUT_BYTES = 448 << 10
"""Of a tool that cannot say so itself."""
NO_HOME = "/nonexistent"
_OF_NOTHING = sha256_hex(b"")


def receive(trip: Trip) -> None:
    """What came, before anyone looked at it: even input that never parses has its digest in the record."""
    given = trip.request.input
    trip.input_bytes, trip.input_sha256 = (given, sha256_hex(given)) if isinstance(given, bytes) else (b"", _OF_NOTHING)


async def read_standing(trip: Trip, ports: Ports) -> Standing:
    """What the run has left and has done, and which policies are in use."""
    if ports.standings is not None:
        return ports.standings.read(
            trip.run.owner, ends_with_call=trip.run.scope is RunScope.CALL, is_new=trip.request.fresh_run
        )
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
        if refused.reason is not Reason.UNKNOWN_TOOL:
            with suppress(Rejected):  # of a skill that is out of use: a retry must still be the same call
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
    trip.process = shape.process
    created = created_before(trip, ports, shape.process)
    trip.look = replace(shape.look, created=created) if created != shape.look.created else shape.look
    trip.sights = ports.look.look(trip.look)
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
        candidates=candidates(
            process.args, program=process.command, code_too=not _is_walled(trip, ports, process, runner)
        ),
        args=process.args,
        created=created_before(trip, ports, process),
    )
    trip.sights = ports.look.look(trip.look)
    _guard(trip, ports, process, runner)


def _is_walled(trip: Trip, ports: Ports, process: ProcessInput, runner: ProcessRunnerConfig) -> bool:
    """Whether the kernel holds a program to the files it is shown. Behind a hook nothing does, and a plain process
    (tier B) opens what its user may where the host has no Landlock."""
    if trip.run.context.door is Door.HOOK:
        return False
    may_be_plain = trip.run.tier is TierChoice.B or runner.fallback_tier == "b"
    if not may_be_plain or walls_off_files(Tier.B, ports.host):
        return True
    net, _ = network_of(trip, process, runner)
    return choose_tier(trip.run.tier, ports.host, net, fallback=runner.fallback_tier) is not Tier.B


def _guard(trip: Trip, ports: Ports, process: ProcessInput, runner: ProcessRunnerConfig) -> None:
    assert trip.call is not None
    assert trip.sights is not None
    sights, grant = trip.sights, trip.call.grant
    classification = classify(process.command, process.args, sights.executable.shebang)
    net, named = network_of(trip, process, runner)
    refused_hosts = _refused_hosts(trip, process, net, named)
    tier = choose_tier(trip.run.tier, ports.host, net, fallback=runner.fallback_tier)
    facts = guard_process(
        command=process.command,
        args=process.args,
        classification=classification,
        sights=sights,
        allowed_executables=runner.allowed_executables,
        allow_interpreters=runner.allow_interpreters,
        own_list=runner.has_own_list,
        read_roots=(*runner.read_roots, *grant.read_roots),
        grant=grant,
        tier=tier.value,
        egress=net.mode.value,
        hosts_named=named,
        hosts_denied=refused_hosts,
    )
    reaches_out = net.mode is not EgressMode.STRICT or bool(net.hosts)
    is_raw = any(host.raw for host in net.hosts)
    trip.facts = replace(facts, background=process.lifetime is not None, network=reaches_out, egress_raw=is_raw)
    trip.job = make_job(trip, process, runner, net=net, named=named, tier=tier)
    trip.shape = process_shape(trip, process)


def _refused_hosts(
    trip: Trip, process: ProcessInput, net: NetGrant, named: tuple[NamedHost, ...]
) -> tuple[NamedHost, ...]:
    """Code for an interpreter may write a host's name into a file, or ask a server that it started itself: where the
    kernel is the wall it says what can be reached. Behind a hook there is no wall."""
    if net.mode is EgressMode.NONE:
        return ()
    refused = denied(net, named)
    if not refused or net.mode is not EgressMode.STRICT or trip.run.context.door is Door.HOOK:
        return refused
    code = {process.args[at] for at in code_arguments(process.command, process.args)}
    return tuple(host for host in refused if host.argument not in code)


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
    roots = tuple(dict.fromkeys((*runner.read_roots, *grant.read_roots)))
    return Job(
        program=executable.found_at or executable.path,
        program_file=executable.path if executable.found_at else "",
        program_sha256=executable.sha256,
        argv=(process.command, *process.args),
        env=build_environment(
            search_path=runner.path,
            home=_home(trip, tier),
            caller=dict(process.env),
            settable=runner.settable_env,
            operator=grant.env,
            also=(
                *_git_environment(trip, process, net=net, tier=tier),
                *_package_environment(trip, process, net=net, tier=tier),
            ),
        ),
        cwd=trip.sights.cwd.resolved,
        workspace=_workspace(trip, process),
        read_roots=roots,
        granted_roots=roots,
        limits=_limits(trip, process, runner),
        net=net,
        tier=tier,
        needs=needs,
        wants=wants,
        background=process.lifetime is not None,
        allow_root=runner.allow_root_tier_b or grant.root_tier_b,
        stdin=process.stdin,
        stdin_streamed=trip.request.source is not None and process.lifetime is None,
        hosts_named=named,
    )


def _workspace(trip: Trip, process: ProcessInput) -> WorkspaceSight:
    assert trip.sights is not None
    sight = trip.sights.workspace
    if opened := _steps_gone_on_with(trip, process):
        return replace(sight, protected=tuple(path for path in sight.protected if path not in opened))
    if not any("submodule" in word for word in process.args) or not sight.protected:
        return sight
    from palyra.guard.gitmodules import copied_settings

    return replace(sight, copied=copied_settings(process.command, process.args, sight))


def _steps_gone_on_with(trip: Trip, process: ProcessInput) -> tuple[str, ...]:
    """What this git may write because git alone runs: not where a setting, say, made the call one that runs code."""
    assert trip.sights is not None
    assert trip.facts is not None
    if not trip.sights.resumable or trip.facts.runs_code or trip.facts.interpreter:
        return ()
    from palyra.guard.gitsteps import opened_steps

    return opened_steps(process.command, process.args, trip.sights.workspace.path, trip.sights.resumable)


def _home(trip: Trip, tier: Tier) -> str:
    """In tier B the workspace is the only folder that can be a home, and what lies there is the agent's: gpg, which
    `git commit -S` starts, runs the program that ~/.gnupg/gpg.conf names. So a call that runs no code has none."""
    assert trip.sights is not None
    if tier is Tier.C:
        return AGENT_HOME
    return trip.sights.workspace.path if _may_run_code(trip) else NO_HOME


def _may_run_code(trip: Trip) -> bool:
    """Judged to, or granted."""
    assert trip.facts is not None
    return trip.facts.runs_code or trip.facts.interpreter or trip.facts.granted_interpreters


def _package_environment(
    trip: Trip, process: ProcessInput, *, net: NetGrant, tier: Tier
) -> tuple[tuple[str, str], ...]:
    """For package managers where no host can be reached: they do not try again, which took pip and npm up to 74 s."""
    if tier is not Tier.C or net.mode is not EgressMode.STRICT or net.hosts:
        return ()
    assert trip.facts is not None
    runs_code = trip.facts.runs_code or trip.facts.interpreter
    return NO_RETRIES if runs_code or goes_out(process.command, process.args) else ()


def _git_environment(trip: Trip, process: ProcessInput, *, net: NetGrant, tier: Tier) -> tuple[tuple[str, str], ...]:
    """For git, alone or behind a wrapper, in a call that was judged to run no code and was not granted any; and in one
    that writes what the operator's git obeys, granted or not."""
    assert trip.sights is not None
    names = (trip.sights.executable, *trip.sights.also)
    if not any(normalise(sight.name) == "git" for sight in names):
        return ()
    if _may_run_code(trip) and not _steps_gone_on_with(trip, process):
        return ()
    from palyra.guard.gitenv import git_environment
    from palyra.guard.gitpush import push_words

    workspace = trip.sights.workspace
    return git_environment(
        pushes=push_words(process.command, process.args) is not None,
        alone=net == NO_NETWORK,
        closed=tier is Tier.C and f"{workspace.path}/.git/config" in workspace.protected,
    )


def _limits(trip: Trip, process: ProcessInput, runner: ProcessRunnerConfig) -> Limits:
    if process.lifetime is not None:
        return background_limits(trip.run.limits, runner)
    limits = trip.run.limits
    if process.timeout_ms is None:
        return limits
    if process.timeout_ms > limits.wall_ms:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"timeout_ms is {process.timeout_ms}; a call here ends after {limits.wall_ms} ms at the latest.",
            f"Give timeout_ms at most {limits.wall_ms}, or leave it out; what takes longer runs in the background. "
            "An operator can raise execution_timeout_ms in [tool_call].",
            fields=(("timeout_ms", f"more than {limits.wall_ms}"),),
        )
    return replace(limits, wall_ms=process.timeout_ms)
