"""FS_ISOLATED: what a root engine starts runs as another user wherever it can, and never in group 0 of a workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.backend import NOBODY
from tests.conformance.arena import Arena, Result, claimed
from tests.promises import promise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.getuid() != 0, reason="only root's programs change the user")]

ATTACK = """
import signal
shared, engine = sys.argv[1], int(sys.argv[2])
def mode(path):
    os.chmod(path, 0o755)
    return "changed"
report({
    "ids": [*os.getresuid(), *os.getresgid(), *os.getgroups()],
    "write": tried(write, "made"),
    "shared with group 0": tried(read, shared),
    "passwords": tried(read, "/etc/shadow"),
    "mode": tried(mode, "/usr/bin/env"),
    "signal": tried(os.kill, engine, 0),
    "become root": tried(os.setuid, 0),
    "join group 0": tried(os.setgroups, [0]),
})
"""


def run_in(place: Arena, owner: tuple[int, int]) -> tuple[Result, dict[str, object]]:
    """In a workspace of that owner and group; with a granted folder that root shares with group 0 alone."""
    os.chown(place.workspace, *owner)
    shared = place.outside / "shared"
    shared.write_text("for group 0")
    os.chown(shared, 0, 0)
    shared.chmod(0o640)
    sight = WorkspaceSight(path=str(place.workspace), owner_uid=owner[0], owner_gid=owner[1])
    result = place.attack(
        ATTACK, str(shared), str(os.getpid()), workspace=sight, allow_root=False, read_roots=(str(place.outside),)
    )
    return result, result.json


@promise("fs-isolated.tier-b-root")
def test_in_a_workspace_of_roots_a_plain_child_is_nobody_and_claims_the_wall(tier_b: Arena) -> None:
    result, found = run_in(tier_b, (0, 0))
    assert found.pop("ids") == [NOBODY] * 6
    assert set(found.values()) <= {"EACCES", "EPERM"}, found
    assert sorted(Path(tier_b.workspace).iterdir()) == []
    assert any(note.startswith("root_owned_workspace") for note in result.plan.degraded)
    claimed(result, Guarantee.FS_ISOLATED)


@promise("fs-isolated.tier-b-root")
def test_a_workspace_of_group_0_gives_no_program_that_group(any_tier: Arena) -> None:
    """An owner without a group of its own: `nobody:root`, or files that root made for a user with `install -o`."""
    _, found = run_in(any_tier, (NOBODY, 0))
    ids = found.pop("ids")
    assert ids == ([NOBODY] * 6 if any_tier.tier is Tier.B else [1000] * 6)
    assert found.pop("write") == "written"
    assert (any_tier.workspace / "made").stat().st_gid == NOBODY
    assert set(found.values()) <= {"EACCES", "EPERM", "ENOENT", "ESRCH", "EROFS", "EINVAL"}, found
    assert found["shared with group 0"] == "EACCES"


@promise("fs-isolated.tier-b-root")
def test_where_an_operator_allowed_root_uid_0_stays_and_it_is_said(tier_b: Arena) -> None:
    os.chown(tier_b.workspace, 0, 0)
    sight = WorkspaceSight(path=str(tier_b.workspace))
    result = tier_b.attack("report([os.getuid(), tried(write, 'made')])", workspace=sight)
    assert result.json == [0, "written"]
    assert Guarantee.FS_ISOLATED not in result.plan.guarantees
    assert any(note.startswith("root_owned_workspace: uid 0 stays") for note in result.plan.degraded)
