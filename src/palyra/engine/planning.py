"""Step 6 of the walk: from a job to a plan and its canonical bytes, or a refusal.

Rules: a plan follows from the job, the host and how long it may live, and from nothing else, so one that was made
before is taken again; what may be large is not kept. A background process outlives this one, and so gets no TLS that
ends here.

Not here: which backend it is and what it plans (sandbox/planner), what a guest may do (engine/plugin).
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from palyra.canon import canonical
from palyra.egress.face import face_of
from palyra.egress.watch import watching_face
from palyra.engine.ports import Ports
from palyra.engine.roads import make_guest_plan
from palyra.engine.trip import Trip
from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts
from palyra.model.job import Job
from palyra.model.plan import BuiltinPlan, FetchPlan, Plan, ProcessPlan
from palyra.model.process import Lifetime
from palyra.sandbox.planner import plan_job


def make_plan(trip: Trip, ports: Ports) -> None:
    """6 — the first backend that guarantees enough on this host; none, and it is refused."""
    shape = trip.shape if trip.shape is not None and trip.job is trip.shape.job else None
    if shape is not None and shape.plan is not None:
        trip.plan, trip.plan_bytes = shape.plan, shape.plan_bytes
        return
    trip.plan, trip.plan_bytes = _plan(trip, ports)
    if shape is not None:
        shape.plan, shape.plan_bytes = trip.plan, trip.plan_bytes


def _plan(trip: Trip, ports: Ports) -> tuple[Plan, bytes]:
    assert trip.tool is not None
    plan: Plan
    if trip.guest is not None:
        plan = make_guest_plan(trip, ports)
    elif trip.job is None:
        plan = BuiltinPlan(tool=trip.tool.spec.name, limits=trip.run.limits)
    else:
        plan, plan_bytes = _plan_process(trip, trip.job, ports)
        if trip.fetch is None:
            return plan, plan_bytes
        plan = FetchPlan(order=trip.fetch, parser=plan)
    return plan, canonical(plan.as_json())


def _plan_process(trip: Trip, job: Job, ports: Ports) -> tuple[ProcessPlan, bytes]:
    lifetime = trip.process.lifetime if trip.process is not None else None
    plan = _plan_job.__wrapped__ if job.stdin else _plan_job  # what may be large is not kept
    job = _with_face(job, ports)
    if trip.request.learn and trip.process is not None:
        from palyra.engine.learn import learning_job

        job = learning_job(trip, job, ports)
    return plan(job, ports.host, lifetime)


def _with_face(job: Job, ports: Ports) -> Job:
    if job.tier is not Tier.C:
        return job
    face = face_of(job.net)
    if face is None:
        return replace(job, face=watching_face(job.net, job.argv[0], job.argv[1:], names=bool(job.hosts_named)))
    return replace(job, face=face, trust=ports.intercepts.trust_for(job.net) if ports.intercepts else None)


@lru_cache(maxsize=128)
def _plan_job(job: Job, host: HostFacts, lifetime: Lifetime | None) -> tuple[ProcessPlan, bytes]:
    """The plan and its canonical bytes. Remembered: agents run the same few commands over and over."""
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
    return plan, bytes(memoryview(canonical(plan.as_json())))  # kept, and orjson's own hold on to ten times as much
