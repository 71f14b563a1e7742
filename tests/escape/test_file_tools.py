"""Stories of palyra.fs.* through the real engine and the real sandbox: nothing outside is read, nothing is planted."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome
from palyra.errors import Reason
from palyra.model.outcome import Status
from palyra.sandbox.view import HIDDEN_TEXT
from tests.promises import promise

TIER_C = "sandbox_tier_c_linux_bubblewrap"
OWNERS = [os.getuid()] if os.getuid() else [0, 65534]


class Desk:
    def __init__(self, palyra: Palyra, workspace: Path) -> None:
        self.workspace = workspace
        self._run = palyra.run("agent:probe", workspace)

    def call(self, tool: str, **given: object) -> Outcome:
        return self._run.call(f"palyra.fs.{tool}", given)


@pytest.fixture(params=OWNERS, ids=lambda uid: f"uid{uid}")
def desk(request: pytest.FixtureRequest, home: Path, workspace: Path) -> Iterator[Desk]:
    """Once for each way this host can own a workspace."""
    os.chown(workspace, request.param, request.param)
    with Palyra.open(str(home)) as palyra:
        yield Desk(palyra, workspace)


def code(outcome: Outcome) -> str:
    return str(outcome.output["error"]["code"])


def test_files_are_written_patched_read_found_and_undone(desk: Desk) -> None:
    assert desk.call("write", path="src/a.py", text="one\ntwo\n", create_dirs=True).success
    patched = desk.call("apply_patch", patch="--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n")
    assert (patched.success, patched.attestation["executor"]) == (True, TIER_C)
    assert desk.call("read", path="src/a.py").output["text"] == "one\n2\n"
    assert [m["line"] for m in desk.call("search", pattern="2").output["matches"]] == [2]
    assert [e["path"] for e in desk.call("list", recursive=True).output["entries"]] == ["src", "src/a.py"]
    assert desk.call("apply_patch", undo=patched.output["checkpoint"]).success
    assert (desk.workspace / "src/a.py").read_text() == "one\ntwo\n"
    owner = (desk.workspace / "src/a.py").stat().st_uid
    assert owner == desk.workspace.stat().st_uid


def test_a_file_as_large_as_a_patch_may_be_is_written_in_one_call(desk: Desk) -> None:
    """A quarter of that was too much, and the hint was to put it into a file."""
    text = "x" * 79 + "\n"
    assert desk.call("write", path="a.lock", text=text * 3000).success
    assert (desk.workspace / "a.lock").read_text() == text * 3000
    assert desk.call("write", path="a.lock", text=text * 4000).reason is Reason.TOO_LARGE


@promise("workspace.file-tools")
def test_a_link_swapped_during_calls_never_shows_what_is_outside(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "x").write_text("outside")
    tmp_path.chmod(0o755)
    room = desk.workspace / "room"
    room.mkdir()
    (room / "x").write_text("inside")
    (desk.workspace / "link").symlink_to(tmp_path)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("room", "link"):
                os.rename(desk.workspace / name, desk.workspace / "door")
                os.rename(desk.workspace / "door", desk.workspace / name)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        outcomes = [desk.call("read", path="door/x") for _ in range(12)]
        outcomes += [desk.call("write", path="door/x", text="written") for _ in range(12)]
    finally:
        stop.set()
        thread.join()
    assert not [o for o in outcomes if o.output.get("text") == "outside"]
    assert (tmp_path / "x").read_text() == "outside"


@promise("workspace.file-tools")
def test_protected_and_hidden_files_stay_so(desk: Desk) -> None:
    hooks = desk.workspace / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (desk.workspace / ".env").write_text("KEY=value")
    assert code(desk.call("read", path=".env")) == "HIDDEN"
    assert code(desk.call("write", path=".env", text="x")) == "PROTECTED"
    assert code(desk.call("write", path=".git/hooks/pre-commit", text="x")) == "PROTECTED"
    assert desk.call("search", pattern="value").output["matches"] == []
    assert os.listdir(hooks) == []
    (desk.workspace / "again").symlink_to(".env")
    assert desk.call("read", path="again").output["text"] == HIDDEN_TEXT.decode(), (
        "the sandbox's own mask stands behind the names"
    )


@promise("workspace.file-tools")
def test_fifos_and_odd_names_hold_nobody_up(desk: Desk) -> None:
    os.mkfifo(desk.workspace / "fifo")
    (desk.workspace / os.fsdecode(b"bad\xffname\n")).write_text("x")
    assert code(desk.call("read", path="fifo")) == "NOT_A_FILE"
    assert desk.call("search", pattern="x").output["files_searched"] == 1
    assert [e["path"] for e in desk.call("list").output["entries"]] == ["bad\ufffdname\n", "fifo"]


@promise("workspace.hostile-content")
def test_a_hostile_pattern_is_ended_by_a_limit(home: Path, workspace: Path) -> None:
    (workspace / "x").write_text("a" * 60 + "\n")
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text("[tool_call.process_runner]\ncpu_time_limit_ms = 1000\n")
    with Palyra.open(str(home)) as palyra:
        outcome = Desk(palyra, workspace).call("search", pattern="(a+)+$b", regex=True)
    assert (outcome.status, outcome.success, outcome.reason) == (Status.COMPLETED, False, Reason.CPU_LIMIT)


@promise("workspace.file-tools")
@pytest.mark.parametrize("name", ["../planted", "/etc/planted", "a/../../planted", "b/c/../../../planted"])
def test_a_patch_plants_nothing_outside(desk: Desk, name: str) -> None:
    outcome = desk.call("apply_patch", patch=f"--- /dev/null\n+++ {name}\n@@ -0,0 +1 @@\n+x\n")
    assert (outcome.success, outcome.reason) == (False, Reason.OUTSIDE_WORKSPACE)
    assert not (desk.workspace.parent / "planted").exists()
