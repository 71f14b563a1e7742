"""A proof that the sandbox holds here: what was tried, which guarantee it stands for, and for which host it counts.

Pure: results in, a value out that is signed and journaled by whoever ran the attempts. A proof counts for the host and
the profile it was made on: another kernel, launcher, Palyra or profile, and attestations no longer refer to it.

Not here: running the attempts (cli/prove), the attempts themselves (inside/escapes).
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json, digest
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import needs_for, plan_job
from palyra.sandbox.proven import WORKSPACE, Proven
from palyra.values import dataclass

PREDICATE_TYPE = "urn:palyra:proof:v1"
HELD = "held"
# attempt -> the guarantee that stands or falls with it; unknown names count for FS_ISOLATED, the strictest
STANDS_FOR: dict[str, Guarantee] = {
    "reach a port of this machine": Guarantee.NET_ISOLATED,
    "reach an abstract socket": Guarantee.NET_ISOLATED,
    "reach an outside address": Guarantee.NET_ISOLATED,
    "see an interface": Guarantee.NET_ISOLATED,
    "change an interface": Guarantee.NET_ISOLATED,
    "open a netlink socket": Guarantee.SYSCALL_FILTER,
    **{f"call {n}": Guarantee.SYSCALL_FILTER for n in ("ptrace", "unshare", "mount", "io_uring", "bpf", "keyctl")},
    "start more processes than allowed": Guarantee.PROCESS_LIMIT,
    "take more memory than allowed": Guarantee.MEMORY_LIMIT,
    "use more CPU time than allowed": Guarantee.CPU_LIMIT,
    "outlive the call": Guarantee.TREE_KILL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    proof_id: str
    made_unix_ms: int
    fingerprint: str
    """Of host and profile: see `fingerprint_of`."""
    results: Mapping[str, str]

    @property
    def holds(self) -> bool:
        return bool(self.results) and all(result == HELD for result in self.results.values())

    def as_json(self) -> dict[str, Json]:
        return {
            "proof_id": self.proof_id,
            "made_unix_ms": self.made_unix_ms,
            "fingerprint": self.fingerprint,
            "holds": self.holds,
            "results": [
                {"attempt": name, "guarantee": guarantee_of(name).value, "result": result}
                for name, result in sorted(self.results.items())
            ],
        }


def guarantee_of(attempt: str) -> Guarantee:
    return STANDS_FOR.get(attempt, Guarantee.FS_ISOLATED)


def parse_proof(value: Json) -> Proof:
    """What `as_json` wrote. ValueError for anything else."""
    try:
        results = {row["attempt"]: row["result"] for row in value["results"]}
        proof = Proof(
            proof_id=value["proof_id"],
            made_unix_ms=value["made_unix_ms"],
            fingerprint=value["fingerprint"],
            results=results,
        )
        same = proof.as_json() == value
    except (KeyError, TypeError) as error:
        raise ValueError("this is not a proof") from error
    if not same:
        raise ValueError("this is not a proof")
    return proof


def proven_by(proof: Proof, host: HostFacts) -> Proven:
    """The plans of this host that a proof speaks for."""
    plan = plan_job(profile_job(WORKSPACE, host), host)
    assert isinstance(plan, ProcessPlan)
    return Proven(proof_id=proof.proof_id, backend=plan.backend, launcher=plan.launcher, data=plan.data)


def fingerprint_of(host: HostFacts, *, version: str, seen: Json) -> str:
    """What a proof is good for: this Palyra, this kernel and launcher, this user, this profile. `seen`: what else tells
    this machine, as it was started, from any other that a home may be copied to."""
    plan = plan_job(profile_job(WORKSPACE, host), host)
    launcher = host.bubblewrap
    return digest(
        {
            "palyra": version,
            "kernel": host.kernel,
            "machine": host.machine,
            "uid": host.uid,
            "launcher": [launcher.path, launcher.version] if launcher else [],
            "profile": plan.as_json()["launcher"],
            "filter": plan.as_json()["data"],
            "seen": seen,
        }
    )


def profile_job(workspace: str, host: HostFacts, *, limits: Limits | None = None, argv: tuple[str, ...] = ()) -> Job:
    """A job in the profile a plain call gets: tier C, strict egress, no hosts."""
    needs, wants = needs_for(Tier.C, NO_NETWORK)
    git = f"{workspace}/.git"
    return Job(
        program=argv[0] if argv else "/usr/bin/true",
        program_sha256="",
        argv=argv or ("true",),
        env=(("HOME", "/home/agent"), ("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin")),
        cwd=workspace,
        workspace=WorkspaceSight(
            path=workspace,
            owner_uid=host.uid,
            owner_gid=host.gid,
            protected=(f"{git}/config", f"{git}/hooks"),
        ),
        read_roots=(),
        limits=limits or Limits(wall_ms=60_000),
        net=NO_NETWORK,
        tier=Tier.C,
        needs=needs,
        wants=wants,
    )
