"""`palyra doctor --prove`: the escape attempts, run for real in the exact profile calls get; a signed, journaled proof.

The attempts run against things made for them in a temporary folder beside the workspace. What each limit must stop has
a run of its own. The proof is kept in the home; attestations of calls in that profile refer to it by id until the next
boot.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path

from palyra.errors import Reason
from palyra.inside import escapes
from palyra.journal.acts import Act, ActKind
from palyra.launch.process import ProcessExecutor
from palyra.model.limits import MIB, Limits
from palyra.model.outcome import Connection, Execution, Status, StreamName
from palyra.sandbox.planner import plan_job
from palyra.sandbox.proof import HELD, Proof, fingerprint_of, profile_job
from palyra.signing import dsse_sign
from palyra.state.person import owner_principal
from palyra.values import dataclass
from palyra.version import __version__
from palyra.wiring.embedded import Installation
from palyra.wiring.proofs import PAYLOAD_TYPE, seen_of, write_proof

PYTHON = "/usr/bin/python3"
FORK = """
import os, time
started = 0
try:
    while started < 4000:
        if not os.fork():
            time.sleep(20)
            os._exit(0)
        started += 1
except OSError:
    print("stopped")
"""
SURVIVE = "import os, sys, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(300)\n"
FILL = "data = []\nwhile True: data.append(bytearray(16 << 20))\n"
BURN = "while True: pass\n"


@dataclass
class Kept:
    """A sink that keeps what came, bounded by the plan's own quota."""

    parts: dict[StreamName, bytearray] = field(default_factory=lambda: {name: bytearray() for name in StreamName})

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self.parts[stream] += chunk

    def reached(self, connections: Sequence[Connection]) -> None:
        """The proof grants no host."""

    @property
    def text(self) -> str:
        return self.parts[StreamName.STDOUT].decode("utf-8", "replace")


class Arena:
    def __init__(self, installation: Installation, workspace: Path, mark: str) -> None:
        self._installation = installation
        self._workspace = str(workspace)
        self.mark = mark
        """An argument by which processes of this proof are known on the host."""

    async def run(self, program: str, argument: str = "", limits: Limits | None = None) -> tuple[Execution, str]:
        host = self._installation.host
        argv = (PYTHON, "-I", "-S", "-c", program, argument or self.mark)
        plan = plan_job(profile_job(self._workspace, host, limits=limits, argv=argv), host)
        kept, executor = Kept(), ProcessExecutor(host)
        try:
            return await executor.run(plan, kept), kept.text
        finally:
            await executor.close()


async def prove(installation: Installation) -> Proof:
    ports = installation.ports
    proof_id = ports.ids.ulid()
    with _places() as (workspace, secret), _doors(proof_id) as port:
        arena = Arena(installation, workspace, f"palyra-proof-{proof_id}")
        given = {
            "secret": str(secret),
            "state_home": str(installation.home.root),
            "home": installation.host.home,
            "port": port,
            "abstract": proof_id,
        }
        results = await _escapes(arena, json.dumps(given))
        results |= {name: await attempt(arena) for name, attempt in LIMITS.items()}
    proof = Proof(
        proof_id=proof_id,
        made_unix_ms=ports.clock.now_unix_ms(),
        fingerprint=fingerprint_of(installation.host, version=__version__, seen=seen_of(installation.host)),
        results=results,
    )
    await _record(installation, proof)
    return proof


async def _escapes(arena: Arena, given: str) -> dict[str, str]:
    execution, text = await arena.run(inspect.getsource(escapes), given)
    try:
        found = json.loads(text)
    except ValueError:
        return {"run the attempts": f"they could not be run: {execution.message or execution.status}"}
    return {str(name): str(result) for name, result in found.items()}


async def _stop_forks(arena: Arena) -> str:
    _, text = await arena.run(FORK, limits=Limits(wall_ms=30_000, processes=64))
    return HELD if "stopped" in text else "possible: 4000 processes"


async def _stop_memory(arena: Arena) -> str:
    execution, _ = await arena.run(FILL, limits=Limits(wall_ms=30_000, memory_bytes=128 * MIB))
    ended = execution.status is Status.COMPLETED and (execution.exit_code or execution.signal)
    return HELD if ended else f"possible: {execution.status}"


async def _stop_burning(arena: Arena) -> str:
    """Where a shell waits on an older kernel, the signal that ended it is seen in the launcher's exit code alone."""
    execution, _ = await arena.run(BURN, limits=Limits(wall_ms=30_000, cpu_ms=1000))
    ended = execution.reason is Reason.CPU_LIMIT or execution.exit_code == 128 + signal.SIGXCPU
    return HELD if ended else f"possible: {execution.status}"


async def _stop_survivors(arena: Arena) -> str:
    await arena.run(SURVIVE, limits=Limits(wall_ms=30_000))
    left = [entry for entry in os.scandir("/proc") if entry.name.isdigit() and _is_marked(entry.name, arena.mark)]
    return HELD if not left else f"possible: {len(left)} processes outlived the call"


LIMITS = {
    "start more processes than allowed": _stop_forks,
    "take more memory than allowed": _stop_memory,
    "use more CPU time than allowed": _stop_burning,
    "outlive the call": _stop_survivors,
}


def _is_marked(pid: str, mark: str) -> bool:
    try:
        return mark.encode() in Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def _places() -> Iterator[tuple[Path, Path]]:
    with tempfile.TemporaryDirectory(prefix="palyra-proof-") as base:
        workspace, outside = Path(base, "workspace"), Path(base, "outside")
        (workspace / ".git" / "hooks").mkdir(parents=True)
        (workspace / ".git" / "config").write_text("")
        outside.mkdir()
        secret = outside / "secret"
        secret.write_text("not to be read")
        yield workspace, secret


@contextmanager
def _doors(name: str) -> Iterator[int]:
    """Doors of this machine that are open, so that a closed one means something."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        yield server.getsockname()[1]


async def _record(installation: Installation, proof: Proof) -> None:
    """Journaled whether it holds or not; kept for attestations only when it holds."""
    ports = installation.ports
    failed = sorted(name for name, result in proof.results.items() if result != HELD)
    act = Act(
        kind=ActKind.SANDBOX_PROVED if proof.holds else ActKind.SANDBOX_NOT_PROVED,
        actor=owner_principal(),
        subject=f"proof/{proof.proof_id}",
        details={"fingerprint": proof.fingerprint, "attempts": len(proof.results), "failed": failed},
    )
    await installation.journal.record_act(act, at_unix_ms=proof.made_unix_ms)
    if proof.holds:
        payload = json.dumps(proof.as_json(), sort_keys=True).encode()
        envelope = dsse_sign(ports.key, PAYLOAD_TYPE, payload)
        await asyncio.to_thread(write_proof, installation.home.root, envelope)
