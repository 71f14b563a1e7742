from __future__ import annotations

from dataclasses import replace

import pytest

from palyra.model.host import HostFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.bwrap import BubblewrapBackend
from palyra.sandbox.proof import Proof, fingerprint_of, proven_by
from palyra.sandbox.rlimit import RlimitBackend
from tests.promises import promise
from tests.unit.sandbox.jobs import make_host, make_job

PROOF = Proof(proof_id="01P", made_unix_ms=1, fingerprint="f", results={})


def id_for(job: Job, host: HostFacts | None = None) -> str | None:
    host = host or make_host()
    return proven_by(PROOF, host).id_for(BubblewrapBackend().plan(job, host))


def test_a_call_in_the_profile_that_was_attacked_refers_to_the_proof() -> None:
    assert id_for(make_job()) == "01P"


def test_where_the_workspace_is_and_how_much_may_be_put_into_tmp_is_no_part_of_a_profile() -> None:
    place = WorkspaceSight(path="/home/user/other", owner_uid=1001, owner_gid=1001)
    assert id_for(make_job(workspace=place, cwd=place.path, limits=Limits(wall_ms=9, scratch_bytes=1 << 20))) == "01P"


@promise("sandbox.profile-proof")
@pytest.mark.parametrize(
    "more",
    [
        {"net": NetGrant(mode=EgressMode.NONE)},
        {"net": NetGrant(mode=EgressMode.PREFLIGHT)},
        {"read_roots": ("/opt/secrets",)},
        {"program": "/opt/toolchain/bin/tool", "program_file": ""},
        {"own_files": (("/etc/.palyra-inside/x.py", b"x"),)},
    ],
)
def test_a_call_behind_other_walls_does_not_refer_to_a_proof_of_these(more: dict[str, object]) -> None:
    """A shared network, further folders, another filter: nobody has attacked that."""
    assert id_for(replace(make_job(), **more)) is None


@promise("sandbox.profile-proof")
def test_a_call_that_root_runs_as_somebody_else_does_not_refer_to_a_proof_of_roots_own_sandboxes() -> None:
    host = make_host(uid=0, gid=0, setpriv="/usr/bin/setpriv", pid_max_per_namespace=True)
    assert id_for(make_job(), host) is None
    own = WorkspaceSight(path="/srv/project", owner_uid=0, owner_gid=0)
    assert id_for(make_job(workspace=own), host) == "01P"


@promise("sandbox.profile-proof")
def test_a_plain_child_refers_to_no_proof_of_tier_c() -> None:
    host = make_host(landlock_abi=7)
    assert proven_by(PROOF, host).id_for(RlimitBackend().plan(make_job(), host)) is None


@promise("sandbox.profile-proof")
def test_a_proof_is_good_for_one_machine_and_one_boot() -> None:
    """A home that was baked into an image, or copied to a machine of the same kernel, brings no proof along."""
    here, elsewhere = (fingerprint_of(make_host(), version="1", seen=[boot, "1"]) for boot in ("a", "b"))
    assert here != elsewhere
