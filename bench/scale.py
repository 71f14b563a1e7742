"""`python -m bench.scale`: what a call costs in a cluster, part by part, and what many machines would make of it.

Measured here, on one machine: durable commits on PostgreSQL, a tier C call here and through a Ray node, workspaces by
digest, calls a second with one, two and three nodes. Then the model (bench/scale_model) is asked about 10, 100 and 1000
nodes. Writes bench/results/scale.json and docs/bench/scale.svg. Needs what `make test-cluster` installs.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.cluster.ray_settings import RAY_SETTINGS

os.environ |= RAY_SETTINGS  # Ray reads them when it is imported, below

from bench.machine import read_machine
from bench.scale_model import Costs, Shape, Simulation
from bench.scale_page import put_tables
from bench.scale_plot import draw_scale
from palyra.budget.store import BudgetStore
from palyra.cluster import trees
from palyra.cluster.blobs import BlobFolder
from palyra.cluster.dispatching import ClusterExecutor
from palyra.cluster.opening import open_writer
from palyra.cluster.placing import Placement
from palyra.cluster.ray_link import Offer, RayLink
from palyra.config.cluster import BlobsConfig
from palyra.journal.store import JournalStore
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.signing import NoteVerifier
from tests import postgres
from tests.cluster.machines import CLUSTER_KEY, Alive, plan_of
from tests.cluster.ray_machines import ray_cluster
from tests.conformance.arena import Kept, host
from tests.folders import open_folder
from tests.journaling import closing, opening, run_spec, ulid

PROJECT = Path(__file__).parents[1]
RECORD = PROJECT / "bench/results/scale.json"
SLOTS = 2
ROUNDS = int(os.environ.get("PALYRA_SCALE_ROUNDS", "60"))
ENGINE_MS = 1.0
"""Deciding, planning, attesting and closing: what a call costs the engine itself (bench rows cedar and tier_c)."""
PAUSE_S = 0.02
SHAPES = ((1, 100.0), (3, 100.0), (3, 1000.0), (3, 10_000.0), (10, 100.0))
"""(daemons, how long a program runs): most tools wait for a disk or a compiler about 100 ms, a build a while."""
SIMULATED_S = 120


def main() -> int:
    if sys.argv[1:] == ["--redraw"]:  # the model, the picture and the page anew, from what was measured last
        return publish(json.loads(RECORD.read_text()))
    postgres.SETTINGS |= {"fsync": "on", "full_page_writes": "on"}
    with open_folder() as base:
        record: dict[str, Any] = {"machine": read_machine(base)}
        record |= measure_commits(base)
        record |= measure_trees(base)
        record |= measure_calls(base)
    return publish(record)


def publish(record: dict[str, Any]) -> int:
    record["model"] = model(record)
    page = PROJECT / "docs/scale.md"
    page.write_text(put_tables(page.read_text(), record))
    RECORD.write_text(json.dumps(record, indent=2) + "\n")
    (PROJECT / "docs/bench/scale.svg").write_text(draw_scale(record))
    print(json.dumps(record, indent=2))
    return 0


def measure_commits(base: Path) -> dict[str, float]:
    """One caller's append, and 64 callers': what a batch costs, and what each entry adds."""
    root = base / "home"
    writer = open_writer(postgres.url_of(root), root)
    store = JournalStore(writer, BudgetStore())
    run = run_spec(ulid(), calls_max=1 << 30, attempts_max=1 << 30)

    async def one() -> None:
        call_id = ulid()
        await store.open_call(opening(call_id, run))
        await store.close_call(closing(call_id, run))

    async def many(callers: int, each: int) -> float:
        """Milliseconds an entry."""

        async def caller() -> None:
            for _ in range(each):
                await one()

        began = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(callers)))
        return (time.perf_counter() - began) * 1000 / (2 * callers * each)

    # The least of several: what the machine's other work takes is not this one's cost.
    alone_ms = min(asyncio.run(many(1, 1)) for _ in range(ROUNDS))
    shared_ms = min(asyncio.run(many(64, 2)) for _ in range(max(3, ROUNDS // 8)))
    writer.close()
    return {"commit_alone_ms": round(alone_ms, 3), "entry_of_64_ms": round(shared_ms, 3)}


def measure_trees(base: Path) -> dict[str, float]:
    """A workspace of a thousand small files: looked at again, and laid out elsewhere."""
    blobs, folder = BlobFolder(base / "tree-blobs"), base / "tree"
    for number in range(1000):
        place = folder / f"d{number % 20}" / f"f{number}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"x" * 1000 + str(number).encode())
    known: dict[str, Any] = {}
    tree = trees.take(folder, blobs, known)
    began = time.perf_counter()
    trees.take(folder, blobs, known)
    again = time.perf_counter()
    (base / "copy").mkdir()
    trees.write(tree, base / "copy", blobs)
    done = time.perf_counter()
    return {
        "look_again_1000_files_ms": round((again - began) * 1000, 2),
        "lay_out_1000_files_ms": round((done - again) * 1000, 2),
    }


def measure_calls(base: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"throughput": []}
    with ray_cluster() as machines, open_folder() as workspace:
        for nodes in (1, 2, 3):
            machines.add(SLOTS)
            found |= asyncio.run(_with_nodes(base, workspace, nodes, found))
    return found


async def _with_nodes(base: Path, workspace: Path, nodes: int, found: dict[str, Any]) -> dict[str, Any]:
    placement = Placement()
    vkey = NoteVerifier("palyra.cluster/bench", CLUSTER_KEY.public).vkey
    offer = Offer(vkey=vkey, blobs=BlobsConfig(folder=str(base / "blobs")), folder=str(base / "nodes"), warm=SLOTS)
    link = RayLink(offer, placement, key=CLUSTER_KEY)
    while await link.find_nodes() < nodes:  # noqa: ASYNC110 - Ray tells nobody when a node is there
        await asyncio.sleep(0.2)
    here = ProcessExecutor(host(), warm=PoolSize(per_template=SLOTS, total=4 * SLOTS))
    there = _executor(base, here, link, placement)
    if nodes == 1:
        by_ray = RayLink(replace(offer, lines=False), only_ray := Placement(), key=CLUSTER_KEY)
        await by_ray.find_nodes()
        slow = _executor(base, here, by_ray, only_ray)
        found |= await _beside({"here": here.run, "there": there.run, "by_ray": slow.run}, link.busy, workspace)
    for name, script in (("waiting", "sleep 0.1"), ("busy", "true")):
        rate, cpu_ms = await _rate(there.run, workspace, script, callers=4 * nodes * SLOTS)
        row = {"nodes": nodes, "program": name, "calls_per_s": round(rate, 2), "daemon_cpu_ms": round(cpu_ms, 2)}
        found["throughput"].append(row)
    link.close()
    await here.close()
    return found


def _executor(base: Path, here: ProcessExecutor, link: RayLink, placement: Placement) -> ClusterExecutor:
    return ClusterExecutor(
        link=link,
        placement=placement,
        blobs=BlobFolder(base / "blobs"),
        here=here,
        key=CLUSTER_KEY,
        new_id=ulid,
        now_unix_ms=lambda: time.time_ns() // 1_000_000,
        policy_number=lambda: 0,
        tenure=Alive(),
    )


Run = Callable[..., Awaitable[Any]]


async def _beside(ways: dict[str, Run], ask: Run, workspace: Path) -> dict[str, float]:
    """The same call here, on the node by its line and by Ray, and a question to the node that it answers at once, in
    turns: each after a pause, in which the sandboxes that were used up are made anew."""
    took: dict[str, list[float]] = {name: [] for name in (*ways, "asked")}
    plan = plan_of(workspace, "true")
    for number in range(ROUNDS + 5):
        for name, run in (*ways.items(), ("asked", ask)):
            await asyncio.sleep(PAUSE_S)
            began = time.perf_counter()
            execution = await (run() if run is ask else run(plan, Kept()))
            assert run is ask or execution.exit_code == 0, execution
            if number >= 5:
                took[name].append((time.perf_counter() - began) * 1000)
    medians = {f"call_{name}_p50_ms": round(statistics.median(times), 2) for name, times in took.items()}
    medians |= {f"call_{name}_least_ms": round(min(times), 2) for name, times in took.items()}
    added = [there - here for here, there in zip(took["here"], took["there"], strict=True)]
    return medians | {"added_p50_ms": round(statistics.median(added), 2)}


async def _rate(run: Run, workspace: Path, script: str, *, callers: int) -> tuple[float, float]:
    """Calls a second, and the daemon's own processor time for each."""
    plan, cpu = plan_of(workspace, script), time.process_time()
    ended, until = 0, time.perf_counter() + 5

    async def caller() -> None:
        nonlocal ended
        while time.perf_counter() < until:
            execution = await run(plan, Kept())
            ended += execution.exit_code == 0

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return ended / (time.perf_counter() - began), (time.process_time() - cpu) * 1000 / max(1, ended)


def model(record: dict[str, Any]) -> list[dict[str, Any]]:
    costs = Costs(
        daemon_ms=min(row["daemon_cpu_ms"] for row in record["throughput"]) + ENGINE_MS,
        commit_ms=max(0.1, record["commit_alone_ms"] - record["entry_of_64_ms"]),
        entry_ms=record["entry_of_64_ms"],
        node_ms=record["call_there_least_ms"],
        program_ms=0.0,
    )
    rows = []
    for nodes in (1, 10, 100, 1000):
        for daemons, program_ms in SHAPES:
            shape = Shape(nodes=nodes, slots=16, daemons=daemons)
            figures = Simulation(shape, replace(costs, program_ms=program_ms)).run(SIMULATED_S)
            rows.append(
                {
                    "nodes": nodes,
                    "daemons": daemons,
                    "program_ms": program_ms,
                    "calls_per_s": round(figures.calls_per_s, 1),
                    "daemons_busy": round(figures.daemons_busy, 2),
                    "sequencer_busy": round(figures.sequencer_busy, 2),
                    "slots_busy": round(figures.slots_busy, 2),
                    "limit": figures.limit,
                }
            )
    return rows


if __name__ == "__main__":
    sys.exit(main())
