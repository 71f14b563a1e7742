"""Where attacks are run: real plans of real backends in the real executor, on whatever host this is.

An attack is a Python program that prints one JSON value; it is run by the system's own interpreter inside. Each
test is run once for every way this host can own a workspace: as whoever runs the tests and, where that is root,
as another user as well.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import shutil
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from palyra.egress.asked import in_order
from palyra.egress.dial import Dialer
from palyra.egress.face import face_of
from palyra.egress.hosts import parse_grant
from palyra.egress.limits import EgressLimits
from palyra.egress.server.serving import EgressServer
from palyra.launch.held import template_of
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant
from palyra.model.outcome import Connection, Execution, Status, StreamName
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import BACKENDS, needs_for, plan_job
from palyra.sandbox.probe import probe

PYTHON = "/usr/bin/python3"
OTHER_USER = 65534
OPEN = NetGrant(EgressMode.NONE)
OWNERS = [os.getuid()] if os.getuid() else [0, OTHER_USER]


@functools.cache
def host() -> HostFacts:
    state = tempfile.mkdtemp(prefix="palyra-arena-state-")
    atexit.register(shutil.rmtree, state, ignore_errors=True)
    return probe(home="/nonexistent", state_home=state, search_path=())


NAMES = {name: (ip_address("127.0.0.1"),) for name in ("granted.test", "other.test", "a.sub.test", "b.sub.test")}
"""Names that lead to the test's own servers, for whoever is granted them and that address."""


def egress(**bounds: Any) -> EgressServer:
    return EgressServer(Dialer(NAMES), EgressLimits(**bounds))


def grant(*patterns: str) -> NetGrant:
    return NetGrant(EgressMode.STRICT, in_order(parse_grant(text) for text in patterns))


@dataclass
class Kept:
    """A sink that keeps everything."""

    parts: dict[StreamName, bytearray] = field(default_factory=lambda: {name: bytearray() for name in StreamName})
    connections: tuple[Connection, ...] = ()

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        assert len(chunk) <= 4096
        self.parts[stream] += chunk

    def reached(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)

    @property
    def stdout(self) -> str:
        return self.parts[StreamName.STDOUT].decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.parts[StreamName.STDERR].decode("utf-8", "replace")


@dataclass
class Result:
    execution: Execution
    plan: ProcessPlan
    output: Kept

    @property
    def json(self) -> Any:
        assert self.execution.status is Status.COMPLETED, (self.execution, self.output.stderr)
        assert self.output.stdout, (self.execution, self.output.stderr)
        return json.loads(self.output.stdout)


@dataclass
class Arena:
    """A workspace, a folder beside it that must stay out of reach, and one tier."""

    tier: Tier
    folder: Path
    owner: int
    warm: bool = False
    """Attack a sandbox that was started ahead, as a pool does, instead of one made for the attack."""

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    @property
    def secret(self) -> Path:
        return self.outside / "secret"

    def give(self, *paths: Path) -> None:
        """To whoever owns the workspace."""
        for path in paths:
            os.chown(path, self.owner, self.owner, follow_symlinks=False)

    def job(self, *argv: str, **changes: Any) -> Job:
        net = changes.pop("net", NO_NETWORK if self.tier is Tier.C else OPEN)
        needs, wants = needs_for(self.tier, net)
        closed = {name: changes.pop(name, ()) for name in ("protected", "masked", "copied")}
        facts: dict[str, Any] = {
            "program": argv[0],
            "program_sha256": "",
            "argv": argv,
            "env": (("PATH", "/usr/bin:/bin"), ("HOME", "/tmp")),
            "cwd": str(self.workspace),
            "workspace": WorkspaceSight(path=str(self.workspace), owner_uid=self.owner, owner_gid=self.owner, **closed),
            "read_roots": (),
            "limits": Limits(wall_ms=30_000),
            "net": net,
            "tier": self.tier,
            "needs": needs,
            "wants": wants,
            "allow_root": True,  # attacks by uid 0 are the harder ones; as nobody: test_plain_root
        }
        if self.tier is Tier.C:
            facts["face"] = face_of(net)
        return Job(**(facts | changes))

    def run(self, *argv: str, **changes: Any) -> Result:
        return asyncio.run(self.start(*argv, **changes))

    async def start(self, *argv: str, source: Any = None, **changes: Any) -> Result:
        plan, output = plan_job(self.job(*argv, **changes), host()), Kept()
        size = PoolSize(per_template=1, total=1, refill_after_s=0) if self.warm else None
        executor = ProcessExecutor(host(), egress=egress(), warm=size)
        try:
            if executor.pool is None:
                return Result(await executor.run(plan, output, source), plan, output)
            executor.etc.make(template_of(plan))  # as all but the first of a process have it
            executor.pool.wish(template_of(plan))
            await executor.pool.settled()
            ready = executor.pool.idle  # none where the start itself is what must fail
            execution = await executor.run(plan, output, source)
            counts = executor.pool.counts  # discarded: where the workspace changes meanwhile, it must not be used
            assert counts.hits == ready or counts.discarded, "the attack was not run in the sandbox started ahead"
        finally:
            await executor.close()
        return Result(execution, plan, output)

    def attack(self, program: str, *arguments: str, **changes: Any) -> Result:
        """`report(value)` prints the one JSON value; `tried(function)` is its result or the name of what it raised."""
        text = PRELUDE + textwrap.dedent(program)
        return self.run(PYTHON, "-I", "-S", "-c", text, *arguments, **changes)


PRELUDE = """
import errno, json, os, sys, time
def report(value):
    print(json.dumps(value), flush=True)
def tried(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    except Exception as error:
        return type(error).__name__
def read(path):
    with open(path) as file:
        return file.read()
def write(path, text="written by the program"):
    with open(path, "w") as file:
        file.write(text)
    return "written"
"""


@contextmanager
def arena(tier: Tier, owner: int, *, warm: bool = False) -> Iterator[Arena]:
    """Not below pytest's own folder, which is closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="palyra-arena-")).resolve()
    place = Arena(tier, folder, owner, warm)
    try:
        for path in (folder, place.workspace, place.outside):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
        place.secret.write_text("the secret")
        place.give(place.workspace, place.outside, place.secret)
        yield place
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def require(tier: Tier, *promised: Guarantee) -> None:
    """Skip, saying why, what this host does not promise."""
    if not Path(PYTHON).exists():
        pytest.skip(f"there is no {PYTHON} to attack with")
    offered = frozenset[Guarantee]().union(*(b.guarantees(host()) for b in BACKENDS if b.tier is tier))
    missing = [g.value for g in promised if g not in offered]
    if missing:
        why = "; ".join(blocker.detail for blocker in host().blockers)
        pytest.skip(f"tier {tier.value} does not promise {', '.join(missing)} here. {why}")


def claimed(result: Result, promise: Guarantee) -> None:
    if promise not in result.plan.guarantees:
        pytest.skip(f"{promise.value} is not claimed for this workspace: {', '.join(result.plan.degraded)}")


def overtaken(run: Callable[[Limits], Result], *, after: str) -> Result:
    """What is run until a deadline, one that comes after the program wrote these words: on an emulated machine it may
    come before its first instruction."""
    for wall_ms in (400, 2_000):
        result = run(Limits(wall_ms=wall_ms))
        if result.output.stdout.startswith(after):
            return result
    return run(Limits(wall_ms=10_000))


def walled(plan: ProcessPlan) -> None:
    if plan.tier is Tier.B and plan.landlock is None:
        pytest.skip("without Landlock a plain child sees the host's files, whatever was granted")


def marked_processes(mark: str) -> list[int]:
    """Processes of this machine whose command line holds `mark`, ourselves aside."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    if mark.encode() in file.read():
                        found.append(int(name))
            except OSError:
                continue
    return found
