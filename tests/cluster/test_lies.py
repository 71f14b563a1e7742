"""A node that lies: about its output, its usage, what it changed, whose call it answers. It signs with its own key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from palyra.canon import canonical, sha256_hex
from palyra.cluster import trees
from palyra.cluster.blobs import BlobFolder
from palyra.cluster.moving import check_changes
from palyra.cluster.node import END, STDOUT
from palyra.cluster.parcels import open_parcel, pack_parcel
from palyra.cluster.token import Statement, open_token, sign_statement
from palyra.errors import StateError, TrustError
from palyra.launch.removing import remove_tree
from palyra.model.outcome import Status
from tests.cluster.machines import CLUSTER_KEY, Machines, plan_of
from tests.conformance.arena import Kept
from tests.promises import promise

HONEST: dict[str, Any] = {
    "status": "completed",
    "reason": None,
    "message": None,
    "hint": None,
    "exit_code": 0,
    "signal": None,
    "stdout_bytes": 0,
    "stderr_bytes": 0,
    "truncated": False,
    "stdin_bytes": 0,
    "stdin_sha256": None,
    "usage": {"wall_us": 1, "cpu_us": 1, "max_rss_bytes": 1, "output_bytes": 0, "fuel": None},
    "connections": [],
    "degraded": [],
    "compiled_sha256": None,
    "ran": None,
}
EMPTY = sha256_hex(b"")


@pytest.fixture
def machines(machines: Machines) -> Machines:
    machines.add("one")
    return machines


class Liar:
    """In the node's place, with the node's key."""

    def __init__(self, machines: Machines, **lies: Any) -> None:
        self.machines, self.lies = machines, lies
        self.cancelled: list[str] = []

    async def send(self, node_id: str, order: bytes) -> AsyncGenerator[bytes, None]:
        node = self.machines.nodes[node_id]
        token = open_token(
            open_parcel(order)[0], CLUSTER_KEY.public, node_id=node_id, node_start=node.start, now_unix_ms=0
        )
        for chunk in self.lies.get("chunks", ()):
            yield STDOUT + chunk
        execution = {**HONEST, **self.lies.get("execution", {})}
        statement = Statement(
            dispatch_id=token.dispatch_id,
            epoch=token.epoch,
            node_id=token.node_id,
            plan_sha256=token.plan_sha256,
            workspace_sha256=token.workspace_sha256,
            execution_sha256=sha256_hex(canonical(execution)),
            changes_sha256=self.lies.get("changes", trees.NOTHING),
            stdout_sha256=sha256_hex(b"".join(self.lies.get("chunks", ()))),
            stderr_sha256=EMPTY,
        )
        statement = replace(statement, **self.lies.get("statement", {}))
        told = {**execution, **self.lies.get("told", {})}
        yield END + pack_parcel(sign_statement(statement, self.lies.get("key", node.key)), canonical(told))

    def cancel(self, node_id: str, dispatch_id: str) -> None:
        self.cancelled.append(node_id)


def answer(machines: Machines, workspace: Path, **lies: Any) -> tuple[Any, Kept]:
    executor, output = machines.executor(), Kept()
    executor._link = Liar(machines, **lies)
    execution = asyncio.run(executor.run(plan_of(workspace, "true", output_bytes=1000), output))
    return execution, output


def test_an_honest_answer_is_taken(machines, workspace):
    execution, output = answer(machines, workspace, chunks=(b"hi",))
    assert (execution.status, output.stdout) == (Status.COMPLETED, "hi")


@pytest.mark.parametrize(
    "lies",
    [
        {"told": {"exit_code": 1}},
        {"statement": {"stdout_sha256": sha256_hex(b"other")}},
        {"statement": {"dispatch_id": "another call's"}},
        {"statement": {"epoch": 7}},
        {"statement": {"node_id": "two"}},
        {"statement": {"plan_sha256": "0" * 64}},
        {"statement": {"workspace_sha256": "0" * 64}},
        {"key": CLUSTER_KEY},
        {"execution": {"usage": {**HONEST["usage"], "wall_us": 1 << 52}}},
        {"execution": {"usage": {**HONEST["usage"], "cpu_us": -1}}},
        {"execution": {"stdout_bytes": 1 << 52}},
        {"execution": {"exit_code": 4711}},
        {"execution": {"ran": {"node_id": "two", "key_id": "x", "envelope": "{}"}}},
        {"execution": {"compiled_sha256": "0" * 64}},
        {"execution": {"status": "magnificent"}},
        {"chunks": (b"x" * 1001,)},
        {"changes": "0" * 64},
    ],
)  # fmt: skip
def test_a_lie_that_can_be_told_from_the_truth_changes_nothing(machines, workspace, lies):
    execution, _ = answer(machines, workspace, **lies)
    assert execution.status is Status.FAILED
    assert execution.ran is None
    assert list(workspace.iterdir()) == []


def changes(machines: Machines, made: dict[str, list[Any]]) -> str:
    return trees.keep(made, BlobFolder(machines.folder / "blobs"))


def test_changes_outside_of_what_the_program_could_write_are_refused(machines, workspace):
    blobs = BlobFolder(machines.folder / "blobs")
    file = ["f", 0o644, blobs.put(b"owned")]
    for made in ({"../evil": file}, {"a/../../evil": file}, {"/etc/evil": file}):
        execution, _ = answer(machines, workspace, changes=changes(machines, made))
        assert execution.status is Status.FAILED
    assert list(workspace.iterdir()) == []
    execution, _ = answer(machines, workspace, changes=changes(machines, {"fine": file}))
    assert (execution.status, (workspace / "fine").read_bytes()) == (Status.COMPLETED, b"owned")


def test_changes_of_what_is_bound_read_only_are_refused(workspace):
    plan = plan_of(workspace, "true")
    check_changes(plan, str(workspace), ["a", ".git/config"])
    protected = str(workspace / ".git")
    shielded = replace(plan, launcher=(*plan.launcher, "--ro-bind", protected, protected))
    check_changes(shielded, str(workspace), ["a", ".gitignore"])
    for name in (".git", ".git/config"):
        with pytest.raises(TrustError, match="could not"):
            check_changes(shielded, str(workspace), [name])
    closed = replace(plan, closed=(("parent", str(workspace / ".git")), ("protected", str(workspace / ".git/hooks"))))
    check_changes(closed, str(workspace), [".git/index"])
    with pytest.raises(TrustError, match="could not"):
        check_changes(closed, str(workspace), [".git/hooks/pre-commit"])
    words = tuple("--ro-bind" if word == "--bind" else word for word in plan.launcher)
    with pytest.raises(TrustError, match="could not"):
        check_changes(replace(plan, launcher=words), str(workspace), ["a"])


def test_changes_that_would_fill_the_disk_are_refused(tmp_path, monkeypatch):
    blobs, folder = BlobFolder(tmp_path / "b"), tmp_path / "w"
    folder.mkdir()
    monkeypatch.setattr(trees, "MAX_BYTES", 1000)
    big = ["f", 0o644, blobs.put(b"x" * 400)]
    with pytest.raises(Exception, match="does not match its digest"):
        trees.write(dict.fromkeys("abc", big), folder, blobs)
    assert len(list(folder.iterdir())) == 2


def test_a_file_that_changes_within_one_tick_of_the_clock_is_read_again(tmp_path):
    """Times alone would call it the same, and the next call would get what was there before."""
    blobs, folder, known = BlobFolder(tmp_path / "b"), tmp_path / "w", {}
    folder.mkdir()
    (folder / "a").touch()
    for number in range(200):
        with (folder / "a").open("r+b") as file:
            file.write(b"%04d" % number)
        taken = trees.take(folder, blobs, known)
        assert blobs.get(taken["a"][2], most_bytes=4) == b"%04d" % number
        with (folder / "a").open("r+b") as file:
            file.write(b"%04d" % (number + 5000))
        assert not trees.is_same(folder, taken, known, most=64)


@promise("cluster.swapped-folder")
def test_a_folder_swapped_for_a_link_while_it_is_read_shows_nothing_of_where_it_leads(tmp_path):
    """A process in the background writes the same workspace; what lies outside must not be sent to a node with it."""
    blobs, folder, outside = BlobFolder(tmp_path / "b"), tmp_path / "w", tmp_path / "outside"
    (folder / "a").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret").write_text("not the agent's")

    def read_and_swap() -> None:
        for one in trees._entries(folder):
            found.append(one.name)
            (folder / "a").rename(folder / "b")
            (folder / "a").symlink_to(outside)

    found: list[str] = []
    with pytest.raises(StateError, match="changed while it was read"):
        read_and_swap()
    assert found == ["a"]
    assert set(trees.take(folder, blobs)) == {"a", "b"}


def test_folders_a_thousand_deep_take_neither_the_descriptors_nor_the_stack(tmp_path):
    """A program leaves them behind: whoever reads what it changed says so, and goes on."""
    top, blobs = tmp_path / "workspace", BlobFolder(tmp_path / "blobs")
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        inner = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(StateError, match="folders more than 256 deep"):
        trees.take(top, blobs)
    assert len(os.listdir("/proc/self/fd")) == before
    assert remove_tree(str(top)), "pytest's own way of removing would not get so deep"


def test_small_folders_are_told_apart_without_reading_them(tmp_path):
    import os
    import time

    blobs, folder, known = BlobFolder(tmp_path / "b"), tmp_path / "w", {}
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "f").write_text("1")
    (folder / "l").symlink_to("x")
    time.sleep(0.02)
    tree = trees.take(folder, blobs, known)

    def same() -> bool:
        return trees.is_same(folder, tree, known, most=64)

    assert same()
    assert not trees.is_same(folder, tree, known, most=2)
    undo: list[tuple[Callable[[], object], Callable[[], object]]] = [
        ((folder / "new").touch, (folder / "new").unlink),
        (lambda: (folder / "d").chmod(0o700), lambda: (folder / "d").chmod(tree["d"][1])),
        (lambda: os.mkfifo(folder / "p"), (folder / "p").unlink),
    ]
    for change, back in undo:
        change()
        assert not same()
        back()
        assert same()
    (folder / "l").unlink()
    (folder / "l").symlink_to("y")
    assert not same()
