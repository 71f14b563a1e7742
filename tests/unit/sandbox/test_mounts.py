from __future__ import annotations

import pytest

from palyra.model.sights import WorkspaceSight
from palyra.sandbox.bwrap import BubblewrapBackend
from palyra.sandbox.mounts import (
    Expected,
    expected_mounts,
    first_difference,
    first_stranger,
    first_unsealed,
    follows_host,
    is_finished,
    workspace_of,
)
from tests.promises import promise
from tests.unit.sandbox.jobs import make_host, make_job

WS = "/home/alice/my project"
PLAN = BubblewrapBackend().plan(
    make_job(
        workspace=WorkspaceSight(
            path=WS,
            owner_uid=1001,
            owner_gid=1001,
            protected=(f"{WS}/.git/hooks",),
            masked=(f"{WS}/.env", f"{WS}/.palyra/"),
        )
    ),
    make_host(),
)
LAUNCHER, CLOSED = PLAN.launcher, PLAN.closed
P = WS.replace(" ", "\\040")
TABLE = [
    "66 42 0:41 /newroot / ro,nosuid - tmpfs tmpfs rw",
    "68 66 0:42 / /proc rw - proc proc rw",
    f"90 66 254:0 /@home{P[5:]} {P} rw,nosuid - btrfs /dev/vda rw",
    f"91 90 254:0 /@home{P[5:]}/.git {P}/.git rw,nosuid - btrfs /dev/vda rw",
    f"92 91 254:0 /@home{P[5:]}/.git/hooks {P}/.git/hooks ro,nosuid - btrfs /dev/vda rw",
    f"93 90 0:50 /bindfileXY {P}/.env ro,nosuid - tmpfs tmpfs rw",
    f"94 90 0:51 / {P}/.palyra ro,nosuid - tmpfs tmpfs rw",
]


def changed(ident: str, old: str, new: str) -> str:
    lines = [line.replace(old, new) if line.startswith(ident) else line for line in TABLE]
    assert lines != TABLE
    return "\n".join(lines)


def test_the_plans_own_words_say_what_to_expect() -> None:
    assert workspace_of(LAUNCHER) == WS
    read_only = BubblewrapBackend().plan(
        make_job(workspace=WorkspaceSight(path=WS, owner_uid=1001), read_roots=("/opt",), workspace_writable=False),
        make_host(),
    )
    assert workspace_of(read_only.launcher) == WS
    assert expected_mounts(CLOSED) == (
        Expected(f"{WS}/.git", shows_itself=True, read_only=False),
        Expected(f"{WS}/.git/hooks", shows_itself=True, read_only=True),
        Expected(f"{WS}/.env", shows_itself=False, read_only=True),
        Expected(f"{WS}/.palyra", shows_itself=False, read_only=True),
    )


def test_a_table_as_planned_passes_also_on_a_subvolume() -> None:
    assert first_difference(CLOSED, "\n".join(TABLE)) == ""


@promise("fs-isolated.swapped-mount")
def test_a_folder_swapped_for_a_link_to_a_secret_is_seen() -> None:
    table = changed("91", f"/@home{P[5:]}/.git ", "/@home/alice/.ssh ")
    assert first_difference(CLOSED, table) == f"{WS}/.git shows /@home/alice/.ssh of another place"


@promise("fs-isolated.swapped-mount")
def test_a_folder_swapped_for_one_on_another_device_is_seen() -> None:
    table = changed("91", "254:0", "254:1")
    assert "another place" in first_difference(CLOSED, table)


@promise("fs-isolated.swapped-mount")
@pytest.mark.parametrize("ident", ["91", "92", "93", "94"])
def test_a_mount_that_landed_elsewhere_is_seen(ident: str) -> None:
    table = "\n".join(line for line in TABLE if not line.startswith(ident))
    assert first_difference(CLOSED, table).endswith("is not covered as planned")


@promise("fs-isolated.swapped-mount")
def test_a_writable_mount_where_a_read_only_one_was_planned_is_seen() -> None:
    assert first_difference(CLOSED, changed("92", "ro,", "rw,")) == f"{WS}/.git/hooks is not read-only"


def test_what_was_to_become_read_only_and_did_not_is_seen() -> None:
    points = ("/proc", f"{WS}/.git/hooks")
    assert first_unsealed(points, changed("68", "/proc rw", "/proc ro,nosuid")) == ""
    assert first_unsealed(points, "\n".join(TABLE)) == "/proc is not read-only"
    assert first_unsealed(("/dev/null",), "\n".join(TABLE)) == "/dev/null is not read-only"
    assert first_unsealed((), "") == ""


def test_a_hidden_file_that_still_shows_the_disk_is_seen() -> None:
    assert first_difference(CLOSED, changed("93", "tmpfs tmpfs", "btrfs /dev/vda")) == f"{WS}/.env is not hidden"


def test_a_copy_is_the_sandboxs_own_or_the_file_itself_and_read_only_either_way() -> None:
    """Where the kernel mounts no link, the file is closed like any other."""
    closed = (("parent", f"{WS}/.git"), ("copied", f"{WS}/.git/hooks"), ("copied", f"{WS}/.env"))
    assert first_difference(closed, "\n".join(TABLE)) == ""
    assert first_difference(closed, changed("92", "ro,", "rw,")) == f"{WS}/.git/hooks is not read-only"
    assert first_difference(closed, changed("93", "tmpfs tmpfs", "btrfs /dev/vda")) == f"{WS}/.env is not hidden"


def test_a_link_is_itself_and_read_only_or_no_mount_at_all() -> None:
    """Not every kernel mounts something over a link."""
    closed = (("link", f"{WS}/.git/hooks"),)
    assert first_difference(closed, "\n".join(TABLE)) == ""
    assert first_difference((("link", f"{WS}/link"),), "\n".join(TABLE)) == ""
    without = "\n".join(line for line in TABLE if not line.startswith("92"))
    assert first_difference(closed, without) == ""
    assert first_difference(closed, without, "\n".join(TABLE)) == f"{WS}/.git/hooks is not covered as planned"
    assert first_difference(closed, changed("92", "ro,", "rw,")) == f"{WS}/.git/hooks is not read-only"
    assert first_difference(closed, changed("92", f"/@home{P[5:]}/.git/hooks", "/@home/other")) != ""


def test_a_folder_that_was_a_mount_of_its_own_on_the_host_is_still_itself() -> None:
    own = [line for line in TABLE if not line.startswith("91")]
    own += [
        f"80 90 254:9 /volume {P}/.git rw - ext4 /dev/vdb rw",
        f"91 80 254:9 /volume {P}/.git rw - ext4 /dev/vdb rw",
    ]
    own[3] = f"92 91 254:9 /volume/hooks {P}/.git/hooks ro - ext4 /dev/vdb rw"
    assert first_difference(CLOSED, "\n".join(own)) == ""


def test_a_folder_deleted_meanwhile_is_seen() -> None:
    table = changed("91", "/.git ", "/.git//deleted ")
    assert first_difference(CLOSED, table) != ""


BASE = [line for line in TABLE if line.startswith(("66", "68", "90"))]
HOST = f"1 0 254:0 / / rw - btrfs /dev/vda rw\n2 1 254:3 / {P}/data rw - ext4 /dev/vdb rw\n"


def test_a_launcher_is_finished_when_it_has_left_its_old_root() -> None:
    assert is_finished("\n".join(TABLE))
    assert not is_finished("\n".join([*TABLE, "99 66 0:9 / /oldroot rw - ext4 x rw"]))
    assert not is_finished("\n".join(line.replace(" / ro,", " / rw,") for line in TABLE))


def test_a_launcher_whose_old_root_still_lies_over_the_new_one_is_not_finished() -> None:
    """Whoever entered it then would stand in an empty folder, and find nothing of the workspace to close."""
    assert not is_finished("\n".join([*TABLE, "45 66 0:53 / / rw,nosuid,nodev,relatime - tmpfs tmpfs rw"]))


def test_only_planned_mounts_and_what_comes_along_from_the_host_are_there() -> None:
    along = f"95 90 254:3 / {P}/data rw - ext4 /dev/vdb rw"
    own = "96 66 0:5 /null /dev/null rw - devtmpfs dev rw"
    assert first_stranger(LAUNCHER, "\n".join([*BASE, along, own]), HOST) == ""


@promise("fs-isolated.swapped-mount")
@pytest.mark.parametrize("point", ["/usr/bin", "/usr", "/bin", f"{P}/a", "/etc/ld.so.cache", "/dev/payload"])
def test_a_mount_too_many_is_seen(point: str) -> None:
    """Somebody else's folder over /usr/bin would be where the shell comes from."""
    planned = "97 66 254:0 /usr /usr ro - ext4 /dev/vda rw"
    stranger = f"98 66 254:0 /payload {point} rw - ext4 /dev/vda rw"
    assert "mounted over" in first_stranger(LAUNCHER, "\n".join([*BASE, planned, stranger]), HOST) or point in (
        "/etc/ld.so.cache",
    )


def test_what_was_closed_is_no_stranger_once_and_is_one_twice() -> None:
    closing = [line for line in TABLE if line.startswith(("91", "92", "93"))]
    assert first_stranger(LAUNCHER, "\n".join([*BASE, *closing]), HOST, CLOSED) == ""
    assert "mounted over" in first_stranger(LAUNCHER, "\n".join([*BASE, *closing]), HOST)
    assert "mounted over" in first_stranger(LAUNCHER, "\n".join([*BASE, *closing, closing[0]]), HOST, CLOSED)


def test_a_mount_that_follows_the_hosts_is_seen_and_its_name_does_not_pass_for_one() -> None:
    assert follows_host(f"90 66 254:0 /p {P} rw master:1 - ext4 /dev/vda rw")
    assert not follows_host(f"90 66 254:0 /p {P}/a\\040master:1 rw - ext4 /dev/vda rw")


def test_names_with_line_separators_do_not_tear_the_table() -> None:
    table = "\n".join([*BASE, f"95 90 0:50 /x {P}/.env\x0c\u2028 ro - tmpfs tmpfs rw"])
    assert "mounted over" in first_stranger(LAUNCHER, table, HOST)
