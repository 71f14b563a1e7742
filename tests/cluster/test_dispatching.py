"""A dispatch is run by one node, once, until its end; what comes late, or from elsewhere, is refused."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import orjson
import pytest

from palyra.canon import canonical, sha256_hex
from palyra.cluster import moving, trees
from palyra.cluster.blobs import BlobFolder
from palyra.cluster.copies import Copies
from palyra.cluster.dispatching import NodeLost
from palyra.cluster.node import END, REFUSED
from palyra.cluster.parcels import open_parcel, pack_parcel
from palyra.cluster.token import Dispatch, Statement, open_statement, open_token, sign_statement, sign_token
from palyra.errors import Reason, Rejected, TrustError
from palyra.launch.values import to_json
from palyra.model.outcome import Status
from palyra.signing import SigningKey
from tests.cluster.machines import CLUSTER_KEY, Machines, frames_of, plan_of, run
from tests.conformance.arena import Kept

DISPATCH = Dispatch(
    dispatch_id="d1",
    epoch=2,
    node_id="one",
    node_start="first",
    plan_sha256="0" * 64,
    workspace_sha256="1" * 64,
    policy_number=3,
    expires_unix_ms=2000,
)
STATEMENT = Statement(
    dispatch_id="d1",
    epoch=2,
    node_id="one",
    plan_sha256="0" * 64,
    workspace_sha256="1" * 64,
    execution_sha256="2" * 64,
    changes_sha256="3" * 64,
    stdout_sha256="4" * 64,
    stderr_sha256="5" * 64,
)
NODE_KEY = SigningKey(bytes(32))


# ── tokens ───────────────────────────────────────────────────────────────────


def test_a_token_says_what_it_was_signed_for_until_its_end():
    envelope = sign_token(DISPATCH, CLUSTER_KEY)
    right: dict[str, Any] = {"node_id": "one", "node_start": "first", "now_unix_ms": 1999}
    assert open_token(envelope, CLUSTER_KEY.public, **right) == DISPATCH
    for wrong in ({"node_id": "two"}, {"node_start": "second"}, {"now_unix_ms": 2000}):
        with pytest.raises(TrustError):
            open_token(envelope, CLUSTER_KEY.public, **{**right, **wrong})
    with pytest.raises(TrustError):
        open_token(envelope, NODE_KEY.public, **right)


def test_a_statement_is_no_token_and_a_token_no_statement():
    with pytest.raises(TrustError):
        open_token(
            sign_statement(STATEMENT, CLUSTER_KEY), CLUSTER_KEY.public, node_id="one", node_start="first", now_unix_ms=0
        )
    with pytest.raises(TrustError):
        open_statement(sign_token(DISPATCH, NODE_KEY), NODE_KEY.public, of=DISPATCH)


@pytest.mark.parametrize(
    "other",
    [{"epoch": 1}, {"epoch": 3}, {"dispatch_id": "d2"}, {"node_id": "two"}, {"plan_sha256": "9" * 64},
     {"workspace_sha256": "9" * 64}],
)  # fmt: skip
def test_a_partitioned_nodes_late_answer_is_refused(other):
    assert open_statement(sign_statement(STATEMENT, NODE_KEY), NODE_KEY.public, of=DISPATCH) == STATEMENT
    late = sign_statement(replace(STATEMENT, **other), NODE_KEY)
    with pytest.raises(TrustError):
        open_statement(late, NODE_KEY.public, of=DISPATCH)


# ── trees ────────────────────────────────────────────────────────────────────


def test_a_workspace_arrives_as_it_was_and_comes_back_as_it_is(tmp_path):
    blobs, one, two = BlobFolder(tmp_path / "b"), tmp_path / "one", tmp_path / "two"
    for folder in (one / "sub" / "deep", two):
        folder.mkdir(parents=True)
    (one / "a").write_text("a")
    (one / "sub" / "deep" / "ünïcode").write_bytes(b"\0\1")
    (one / "a").chmod(0o755)
    (one / "link").symlink_to("/etc/passwd")
    (one / "old").mkdir()
    (one / "old" / "gone").write_text("x")
    before = trees.take(one, blobs)
    trees.write(trees.read(trees.keep(before, blobs), blobs), two, blobs)
    assert trees.take(two, blobs) == before
    assert (two / "link").is_symlink()
    shutil.rmtree(two / "old")
    (two / "a").unlink()
    (two / "a").mkdir()
    (two / "a" / "b").write_text("new")
    shutil.rmtree(two / "sub")
    (two / "sub").write_text("a full folder became a file")
    after = trees.take(two, blobs)
    trees.write(trees.changes(before, after), one, blobs)
    assert trees.take(one, blobs) == after


def test_a_tree_that_names_a_place_outside_is_refused(tmp_path):
    blobs = BlobFolder(tmp_path / "b")
    for name in ("../x", "/x", "a/../../x", "", "a//b", "."):
        with pytest.raises(Exception, match="not a path inside"):
            trees.read(blobs.put(canonical({name: ["f", 420, "0" * 64]})), blobs)


def test_changes_are_never_written_through_a_link(tmp_path):
    """A call leaves a link to a folder outside; a node claims to have written below it."""
    blobs, folder, outside = BlobFolder(tmp_path / "b"), tmp_path / "w", tmp_path / "outside"
    for one in (folder, outside):
        one.mkdir()
    (folder / "sub").symlink_to(outside)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        trees.write({"sub/x": ["f", 420, blobs.put(b"!")]}, folder, blobs)
    assert list(outside.iterdir()) == []


def test_a_blob_that_is_not_what_its_name_says_is_refused(tmp_path):
    blobs = BlobFolder(tmp_path)
    name = blobs.put(b"right")
    (tmp_path / name[:2] / name).write_bytes(b"wrong")
    with pytest.raises(Exception, match="does not match its digest"):
        blobs.get(name, most_bytes=100)


# ── nodes ────────────────────────────────────────────────────────────────────


def test_a_call_runs_on_a_node_and_its_changes_come_home(machines, workspace):
    machines.add("one")
    (workspace / "in").write_text("given")
    execution, output = run(machines, workspace, "cat in; echo err >&2; pwd > where; mkdir d; echo x > d/y; rm in")
    assert (execution.status, execution.exit_code) == (Status.COMPLETED, 0)
    assert (output.stdout, output.stderr) == ("given", "err\n")
    assert (workspace / "where").read_text() == f"{workspace}\n"  # inside everything is where it was
    assert (workspace / "d" / "y").read_text() == "x\n"
    assert not (workspace / "in").exists()
    assert execution.ran.node_id == "one"
    node = machines.nodes["one"]
    (_, order), envelope = machines.orders[0], orjson.loads(execution.ran.envelope)
    token = open_token(open_parcel(order)[0], CLUSTER_KEY.public, node_id="one", node_start=node.start, now_unix_ms=0)
    assert open_statement(envelope, node.key.public, of=token).stdout_sha256 == sha256_hex(b"given")


def test_a_copy_is_used_again_and_holds_what_the_next_call_was_given(machines, workspace):
    """Nothing of an earlier call shows that the workspace does not hold: no file, no mode, no link."""
    machines.add("one")
    (workspace / "a").write_text("1")
    run(machines, workspace, "echo 2 > b; chmod 700 b; ln -s /etc link; mkdir -p deep/er; chmod 700 deep; rm a")
    folders = list((machines.folder / "one").iterdir())
    shutil.rmtree(workspace / "deep")
    (workspace / "link").unlink()
    (workspace / "link").write_text("a file now")
    (workspace / "b").chmod(0o644)
    (workspace / "a").write_text("3")
    _, output = run(machines, workspace, "find . | sort; cat a b link; stat -c %a b")
    assert output.stdout == ".\n./a\n./b\n./link\n32\na file now644\n"
    assert list((machines.folder / "one").iterdir()) == folders
    run(machines, workspace, "mkfifo pipe")  # no tree can carry it: the copy goes
    _, output = run(machines, workspace, "ls")
    assert output.stdout == "a\nb\nlink\n"


def test_a_copy_serves_one_call_at_a_time_and_one_workspace(tmp_path):
    blobs = BlobFolder(tmp_path / "b")
    (tmp_path / "copies").mkdir()
    copies = Copies(tmp_path / "copies", blobs, most_idle=2)
    first, second = (copies.lay_out("/w", None, {}) for _ in range(2))
    assert first.folder != second.folder
    for copy in (first, second):
        copies.keep(copy)
    assert copies.lay_out("/other", None, {}).folder not in (first.folder, second.folder)
    assert {copies.lay_out("/w", None, {}).folder for _ in range(2)} == {first.folder, second.folder}
    for copy in (first, second, copies.lay_out("/third", None, {})):
        copies.keep(copy)
    assert not first.folder.exists()  # the longest idle


def test_a_failing_program_a_deadline_and_a_flood_end_as_they_do_here(machines, workspace):
    machines.add("one")
    assert run(machines, workspace, "exit 7")[0].exit_code == 7
    assert run(machines, workspace, "sleep 60", wall_ms=300)[0].status is Status.TIMEOUT
    flooded, output = run(machines, workspace, "yes", output_bytes=100_000)
    assert flooded.status is Status.QUOTA_EXCEEDED
    assert len(output.stdout) == 100_000


def test_a_token_is_taken_once_by_its_node_alone_and_with_its_own_plan(machines, workspace):
    node = machines.add("one")
    machines.add("two")
    run(machines, workspace, "true")
    (name, order) = machines.orders[0]
    token, _ = open_parcel(order)

    async def frames(to: str, order: bytes) -> list[bytes]:
        return [frame async for frame in frames_of(machines.nodes[to], order)]

    other = {"one": "two", "two": "one"}[name]
    assert asyncio.run(frames(name, order)) == [REFUSED + b"This dispatch was already taken."]
    assert asyncio.run(frames(other, order)) == [REFUSED + b"The dispatch is for another node."]
    swapped = pack_parcel(token, canonical(to_json(plan_of(workspace, "echo other"))))
    assert asyncio.run(frames(name, swapped)) == [REFUSED + b"The plan is not the one that was signed."]
    machines.now += 10**9
    assert asyncio.run(frames(name, order)) == [REFUSED + b"The dispatch has expired."]
    assert asyncio.run(frames(name, b"garbage"))[0].startswith(REFUSED)
    assert node.busy == 0


def test_a_node_that_has_seen_newer_policies_refuses_older_dispatches(machines, workspace):
    machines.add("one")
    machines.policy = 5
    assert run(machines, workspace, "true")[0].exit_code == 0
    machines.policy = 4
    execution, _ = run(machines, workspace, "echo never > there")
    assert (execution.status, execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "no longer in use" in execution.message
    assert not (workspace / "there").exists()


def test_a_call_decided_under_policies_no_longer_in_use_is_not_sent(machines, workspace):
    """Its number is the decision's own: read anew it would have hidden a revocation between decision and dispatch."""
    machines.add("one")
    machines.policy = 5
    plan = plan_of(workspace, "echo never > there")
    with pytest.raises(Rejected) as refused:
        asyncio.run(machines.executor().run(plan, Kept(), policy_number=4))
    assert refused.value.reason is Reason.POLICY_DENIED
    assert (machines.orders, (workspace / "there").exists()) == ([], False)
    assert asyncio.run(machines.executor().run(plan, Kept(), policy_number=5)).exit_code == 0


def test_policies_that_change_while_a_call_waits_for_a_slot_stop_it(machines, workspace):
    node = machines.add("one", slots=1)
    executor = machines.executor()

    async def scenario() -> Any:
        first = asyncio.ensure_future(executor.run(plan_of(workspace, "sleep 1"), Kept()))
        while not node.busy:
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(executor.run(plan_of(workspace, "echo never > there"), Kept()))
        await asyncio.sleep(0.2)
        machines.policy = 1
        await first
        return await second

    with pytest.raises(Rejected) as refused:
        asyncio.run(scenario())
    assert refused.value.reason is Reason.POLICY_DENIED
    assert not (workspace / "there").exists()


def test_a_cancelled_call_is_killed_on_its_node_and_changes_nothing(machines, workspace):
    node = machines.add("one")

    async def scenario() -> None:
        task = asyncio.ensure_future(machines.executor().run(plan_of(workspace, "echo x > begun; sleep 60"), Kept()))
        while not node.busy:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while node.busy:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert list(workspace.iterdir()) == []


def test_a_call_sent_anew_to_a_node_that_still_runs_it_ends_the_first_and_can_be_cancelled_itself(machines, workspace):
    """A daemon that lost sight of a node sends its call there again: the first run, ending, took the second's place."""
    node = machines.add("one")
    body = canonical(to_json(plan_of(workspace, "sleep 60")))
    told = Dispatch(
        dispatch_id="again",
        epoch=1,
        node_id="one",
        node_start=node.start,
        plan_sha256=sha256_hex(body),
        workspace_sha256=machines.executor()._look(workspace),
        policy_number=0,
        expires_unix_ms=machines.now + 60_000,
    )

    async def serve(epoch: int) -> list[bytes]:
        order = pack_parcel(sign_token(replace(told, epoch=epoch), machines.key), body)
        return [frame async for frame in frames_of(node, order)]

    async def scenario() -> tuple[list[bytes], bool, list[bytes]]:
        first = asyncio.ensure_future(serve(1))
        while not node.busy:
            await asyncio.sleep(0.01)
        second = asyncio.ensure_future(serve(2))
        ended = await first
        assert node.busy == 1
        return ended, node.cancel("again"), await second

    cancelled = [REFUSED + b"The execution was cancelled."]
    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == (cancelled, True, cancelled)
    assert node.busy == 0


class Losing(Machines):
    """The first node that is sent something is lost after so many frames."""

    frames: int = 0

    async def send(self, node_id, order):
        first = not self.orders
        count = 0
        async with aclosing(super().send(node_id, order)) as frames:
            async for frame in frames:
                if first and count >= self.frames:
                    raise NodeLost
                count += 1
                yield frame


@pytest.mark.parametrize("frames", [0, 1])
def test_a_call_whose_node_is_lost_is_run_elsewhere_and_counts_once(machines, workspace, frames):
    losing = Losing(machines.folder)
    losing.frames = frames
    for name in ("one", "two"):
        losing.add(name)
    (workspace / "log").write_text("")
    execution, output = run(losing, workspace, "echo hello; echo once >> log")
    assert (execution.exit_code, output.stdout) == (0, "hello\n")
    assert (workspace / "log").read_text() == "once\n"
    (first, _), (second, _) = losing.orders
    assert first != second == execution.ran.node_id


def test_a_program_that_says_something_else_when_run_anew_has_no_second_telling(machines, workspace):
    losing = Losing(machines.folder)
    losing.frames = 1
    for name in ("one", "two"):
        losing.add(name)
    execution, output = run(losing, workspace, "cat /proc/sys/kernel/random/uuid; echo x > there")
    assert (execution.status, execution.reason) == (Status.FAILED, Reason.INTERRUPTED)
    assert len(output.stdout) == 37
    assert not (workspace / "there").exists()


def test_a_forged_answer_counts_for_nothing(machines, workspace):
    class Forging(Machines):
        async def send(self, node_id, order):
            async for frame in super().send(node_id, order):
                if frame[:1] != END:
                    yield frame
                    continue
                statement, ended = open_parcel(frame[1:])
                yield END + pack_parcel(statement, canonical({**orjson.loads(ended), "exit_code": 0}))

    forging = Forging(machines.folder)
    forging.add("one")
    execution, _ = run(forging, workspace, "echo x > there; exit 3")
    assert (execution.status, execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert not (workspace / "there").exists()


def test_slots_bound_what_a_node_runs_whoever_sends(machines, workspace):
    node = machines.add("one", slots=2)
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, node.busy)
            await asyncio.sleep(0.005)

    async def scenario() -> list[Any]:
        watching = asyncio.ensure_future(watch())
        daemons = [machines.executor(), machines.executor()]
        machines.placement.places["one"].slots = 4  # each daemon thinks so; the node knows better
        many = [
            one.run(plan_of(workspace, f"echo {n} > f{n}"), Kept()) for n in range(6) for one in daemons[n % 2 :][:1]
        ]
        ended = await asyncio.gather(*many)
        watching.cancel()
        return list(ended)

    assert [execution.exit_code for execution in asyncio.run(scenario())] == [0] * 6
    assert most == 2
    assert sorted(path.name for path in workspace.iterdir()) == [f"f{n}" for n in range(6)]


def test_a_draining_node_takes_nothing_more(machines, workspace):
    node = machines.add("one")
    machines.add("two")
    node.draining = True

    async def frames(order: bytes) -> list[bytes]:
        return [frame async for frame in frames_of(node, order)]

    for n in range(4):
        execution, _ = run(machines, workspace, f"echo {n}")
        assert execution.ran.node_id == "two"
    refused = [order for name, order in machines.orders if name == "one"]
    assert not refused or asyncio.run(frames(refused[0])) == [REFUSED + b"This dispatch was already taken."]


def test_a_workspace_goes_to_the_node_that_had_it_last(machines, workspace):
    for name in ("one", "two", "three"):
        machines.add(name)
    nodes = {run(machines, workspace, "true")[0].ran.node_id for _ in range(5)}
    assert len(nodes) == 1


def test_what_cannot_move_runs_where_the_daemon_is(machines, workspace):
    machines.add("one")
    plan = replace(plan_of(workspace, "echo here"), caches=(str(workspace),))
    output = Kept()
    execution = asyncio.run(machines.executor().run(plan, output))
    assert (execution.exit_code, execution.ran, output.stdout) == (0, None, "here\n")
    assert machines.orders == []


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"backend": "rlimit"}, "bubblewrap"),
        ({"stdin_streamed": True}, "stdin"),
        ({"lifetime": "run_owned"}, "outlives"),
        ({"caches": ("/x",)}, "caches"),
    ],
)
def test_what_stays_where_the_daemon_is_says_why(workspace, other, why):
    plan = plan_of(workspace, "true")
    assert moving.why_here(plan) == ""
    assert why in moving.why_here(replace(plan, **other))
    assert moving.workspace_of(replace(plan, **other)) is None
