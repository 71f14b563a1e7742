"""Which flags and settings would let a refused call through: each is given to the call, and the call assessed again.

Rules: nothing is advised that was not tried. A flag or setting is only tried where the call's facts say that it could
help; smaller sets come first, and what contains a set that helped already is no smaller one. Steps 1 to 6 of the walk
decide, so that the disk, the lists and the host are asked as for the call itself; nothing runs, nothing is written.

Not here: approvals, postures and policy texts, which are tried on the request alone (policy/explain).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import PurePosixPath

from palyra.config.schema import Config
from palyra.config.tool_call import ProcessRunnerConfig, ToolCallConfig
from palyra.egress.hosts import parse_pattern
from palyra.egress.preflight import denied
from palyra.engine.runs import Run
from palyra.engine.trip import CallRequest, Trip
from palyra.engine.walk import Engine
from palyra.errors import Rejected
from palyra.guard.paths import judge_paths
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.grant import Allow
from palyra.model.net import EgressMode
from palyra.model.tool import ToolSpec
from palyra.policy.explain import Change, ChangeKind
from palyra.values import dataclass

MAX_TOGETHER = 3
MAX_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Step:
    """One flag or setting: how it reads, and what it makes of a run or of the configuration."""

    kind: ChangeKind
    text: str
    of_run: Callable[[Run], Run] | None = None
    of_config: Callable[[Config], Config] | None = None


async def advise(engine: Engine, request: CallRequest, trip: Trip, refusal: Rejected | None) -> tuple[Change, ...]:
    """What was tried and helped, smallest first; `trip` and `refusal` are what `Engine.assess` said of the request."""
    config = engine.ports.config
    found: list[Change] = []
    for steps in (_sandbox_steps(request.run), _flag_steps(trip), _setting_steps(trip, refusal, config)):
        found += await _try_sets(engine, request, tuple(steps))
    return tuple(found)


async def _try_sets(engine: Engine, request: CallRequest, steps: tuple[_Step, ...]) -> list[Change]:
    found: list[Change] = []
    helped: list[frozenset[_Step]] = []
    for size in range(1, min(len(steps), MAX_TOGETHER) + 1):
        for chosen in combinations(steps, size):
            if not any(less <= frozenset(chosen) for less in helped) and await _helps(engine, request, chosen):
                helped.append(frozenset(chosen))
                found.append(Change(kind=chosen[0].kind, text=_joined(chosen), effect="allow"))
    return found


async def _helps(engine: Engine, request: CallRequest, steps: tuple[_Step, ...]) -> bool:
    config, run = engine.ports.config, request.run
    for step in steps:
        run = step.of_run(run) if step.of_run is not None else run
        config = step.of_config(config) if step.of_config is not None else config
    trial = Engine(replace(engine.ports, config=config), engine.registry)
    trip, refusal = await trial.assess(replace(request, run=run))
    return refusal is None and isinstance(trip.decision, Allow)


def _joined(steps: tuple[_Step, ...]) -> str:
    return (" " if steps[0].kind == "flag" else ", ").join(step.text for step in steps)


# ── what could help ──


def _sandbox_steps(run: Run) -> Iterator[_Step]:
    """A stronger sandbox, which the caller can have for the asking."""
    if run.tier is TierChoice.B:
        text = 'tier C (leave out --tier, or set tier = "auto")'
        yield _Step(
            kind="tier",
            text=text,
            of_run=lambda run: replace(run, tier=TierChoice.C, grant=replace(run.grant, tier=None)),
        )
    if run.egress is not EgressMode.STRICT:
        yield _Step(
            kind="egress",
            text="strict egress (--egress strict)",
            of_run=lambda run: replace(run, egress=EgressMode.STRICT, grant=replace(run.grant, egress=None)),
        )


def _flag(text: str, give: Callable[[OperatorGrant], OperatorGrant]) -> _Step:
    def of_run(run: Run) -> Run:
        grant = give(run.grant)
        return replace(run, grant=grant, egress=grant.egress or run.egress, tier=grant.tier or run.tier)

    return _Step(kind="flag", text=text, of_run=of_run)


def _each(flag: str, values: tuple[str, ...]) -> str:
    return " ".join(f"{flag} {shlex.quote(value)}" for value in values)


def _flag_steps(trip: Trip) -> Iterator[_Step]:
    facts, run = trip.facts, trip.run
    if facts is None or not facts.tier:
        return
    names, hosts, folders = _programs(trip), _hosts(trip), _folders(trip)
    if names and not facts.listed:
        yield _flag(_each("--allow", names), lambda grant: replace(grant, executables=(*grant.executables, *names)))
    if _runs_code(trip):
        yield _flag("--allow-interpreters", lambda grant: replace(grant, interpreters=True))
    if hosts:
        patterns = tuple(parse_pattern(host) for host in hosts)
        yield _flag(_each("--allow-host", hosts), lambda grant: replace(grant, hosts=(*grant.hosts, *patterns)))
    if folders:
        yield _flag(_each("--read", folders), lambda grant: replace(grant, read_roots=(*grant.read_roots, *folders)))
    if run.egress is not EgressMode.STRICT and run.grant.egress is None:
        yield _flag(f"--egress {run.egress.value}", lambda grant: replace(grant, egress=run.egress))
    if run.tier is TierChoice.B and run.grant.tier is None:
        yield _flag("--tier b", lambda grant: replace(grant, tier=TierChoice.B))


def _runner(text: str, change: Callable[[ProcessRunnerConfig], ProcessRunnerConfig]) -> _Step:
    def of_config(config: Config) -> Config:
        calls = config.tool_call
        return replace(config, tool_call=replace(calls, process_runner=change(calls.process_runner)))

    return _Step(kind="setting", text=f"{text} in [tool_call.process_runner]", of_config=of_config)


def _lists(text: str, change: Callable[[ToolCallConfig], ToolCallConfig]) -> _Step:
    return _Step(
        kind="setting",
        text=f"{text} in [tool_call]",
        of_config=lambda config: replace(config, tool_call=change(config.tool_call)),
    )


def _setting_steps(trip: Trip, refusal: Rejected | None, config: Config) -> Iterator[_Step]:
    runner, facts = config.tool_call.process_runner, trip.facts
    if trip.tool is not None and refusal is not None and trip.cedar is None:
        yield from _list_steps(trip.tool.spec, config)
    if facts is None or not facts.tier:
        return
    names, hosts, folders = _programs(trip), _hosts(trip), _folders(trip)
    if names and not facts.listed:
        yield _runner(
            f"add {_list(names)} to allowed_executables",
            lambda runner: replace(runner, allowed_executables=(*runner.allowed_executables, *names)),
        )
    if _runs_code(trip) and not runner.allow_interpreters:
        yield _runner("allow_interpreters = true", lambda runner: replace(runner, allow_interpreters=True))
    if hosts:
        yield _runner(
            f"add {_list(hosts)} to allowed_egress_hosts",
            lambda runner: replace(runner, allowed_egress_hosts=(*runner.allowed_egress_hosts, *hosts)),
        )
    if folders:
        yield _runner(
            f"add {_list(folders)} to read_roots",
            lambda runner: replace(runner, read_roots=(*runner.read_roots, *folders)),
        )


def _list_steps(spec: ToolSpec, config: Config) -> Iterator[_Step]:
    """What the configuration's own lists leave out."""
    calls = config.tool_call
    yield _lists(
        f"add {_list((spec.name,))} to allowed_tools",
        lambda calls: replace(calls, allowed_tools=(*calls.allowed_tools, spec.name)),
    )
    missing = tuple(sorted(c.value for c in spec.capabilities if c.value not in calls.allowed_capabilities))
    if missing:
        yield _lists(
            f"add {_list(missing)} to allowed_capabilities",
            lambda calls: replace(calls, allowed_capabilities=(*calls.allowed_capabilities, *missing)),
        )
    if not calls.process_runner.enabled:
        yield _runner("enabled = true", lambda runner: replace(runner, enabled=True))


def _runs_code(trip: Trip) -> bool:
    facts = trip.facts
    return facts is not None and (facts.interpreter or facts.runs_code or facts.inline_code)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _programs(trip: Trip) -> tuple[str, ...]:
    """What would be started, as the flag has to name it."""
    if trip.sights is None:
        return ()
    return tuple(dict.fromkeys(sight.name for sight in (trip.sights.executable, *trip.sights.also)))[:MAX_NAMED]


def _hosts(trip: Trip) -> tuple[str, ...]:
    if trip.job is None or trip.facts is None or not trip.facts.hosts_denied:
        return ()
    refused = denied(trip.job.net, trip.job.hosts_named)
    named = (host.host if host.port is None else f"{host.host}:{host.port}" for host in refused)
    return tuple(dict.fromkeys(named))[:MAX_NAMED]


def _folders(trip: Trip) -> tuple[str, ...]:
    """The folders of what lies outside; never the root, which would be everything."""
    if trip.sights is None or trip.facts is None or not trip.facts.outside_workspace:
        return ()
    outside = (str(PurePosixPath(resolved).parent) for _, _, resolved in judge_paths(trip.sights, ()))
    folders = tuple(dict.fromkeys(outside))[:MAX_NAMED]
    return () if "/" in folders else folders
