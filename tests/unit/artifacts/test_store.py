"""Artifacts: whole, private to their run, and never something else than was stored."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from palyra.artifacts.names import artifact_path_parts
from palyra.artifacts.store import ArtifactStore
from palyra.budget.store import BudgetStore
from palyra.canon import sha256_hex
from palyra.errors import Reason, Rejected, StateError
from palyra.journal.store import JournalStore
from palyra.model.outcome import ArtifactRef
from palyra.state.writer import Writer
from tests.journaling import NOW, audit_home, closing, opening, run_spec, ulid, walk_call
from tests.promises import promise
from tests.stores import open_writer, tampering

MINE, THEIRS = ulid(), ulid()


@pytest.fixture
def artifacts(home: Path) -> Iterator[ArtifactStore]:
    writer = Writer.open(home)
    for run_id in (MINE, THEIRS):
        writer.commit_now(lambda tx, run_id=run_id: BudgetStore().ensure_run(tx, run_spec(run_id)))  # type: ignore[misc]
    yield ArtifactStore(writer, new_id=ulid, now_unix_ms=lambda: NOW, quota_bytes=1000)
    writer.close()


def put(artifacts: ArtifactStore, data: bytes, run_id: str = MINE, name: str = "stdout") -> ArtifactRef:
    return asyncio.run(artifacts.put(run_id, name, data))


def file_of(home: Path, ref: ArtifactRef) -> Path:
    return home.joinpath("artifacts", *artifact_path_parts(ref.sha256))


def test_what_was_put_is_read(artifacts: ArtifactStore) -> None:
    ref = put(artifacts, b"data")
    assert (ref.sha256, ref.size_bytes, ref.name) == (sha256_hex(b"data"), 4, "stdout")
    assert asyncio.run(artifacts.read(MINE, ref.artifact_id)) == (ref, b"data")
    empty = put(artifacts, b"")
    assert asyncio.run(artifacts.read(MINE, empty.artifact_id)) == (empty, b"")


def test_files_and_folders_are_closed_to_everyone_else(artifacts: ArtifactStore, home: Path) -> None:
    path = file_of(home, put(artifacts, b"data"))
    modes = [
        stat.S_IMODE(place.stat().st_mode) for place in (path, path.parent, path.parent.parent, home / "artifacts")
    ]
    assert modes == [0o600, 0o700, 0o700, 0o700]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@promise("calls.run-owner")
@pytest.mark.parametrize("artifact_id", ["", "nothing", "../../state/installation.key"])
def test_another_runs_artifact_is_as_unknown_as_none(artifacts: ArtifactStore, artifact_id: str) -> None:
    theirs = put(artifacts, b"secret", run_id=THEIRS)
    messages = []
    for wanted in (artifact_id, theirs.artifact_id):
        with pytest.raises(Rejected) as refused:
            asyncio.run(artifacts.read(MINE, wanted))
        assert refused.value.reason is Reason.BAD_ARGUMENTS
        messages.append(refused.value.detail.replace(repr(wanted), "ID"))
    assert messages[0] == messages[1]


def test_the_same_content_is_one_file_and_two_artifacts(artifacts: ArtifactStore, home: Path) -> None:
    one, two = put(artifacts, b"same"), put(artifacts, b"same", run_id=THEIRS)
    assert one.artifact_id != two.artifact_id
    assert len([path for path in (home / "artifacts").rglob("*") if path.is_file()]) == 1


def test_a_changed_file_is_never_handed_out_and_healed_by_the_next_put(artifacts: ArtifactStore, home: Path) -> None:
    ref = put(artifacts, b"data")
    file_of(home, ref).write_bytes(b"atad")
    with pytest.raises(StateError, match="not what was stored"):
        asyncio.run(artifacts.read(MINE, ref.artifact_id))
    put(artifacts, b"data")
    assert asyncio.run(artifacts.read(MINE, ref.artifact_id))[1] == b"data"


def test_a_file_that_became_a_link_or_vanished_is_refused(artifacts: ArtifactStore, home: Path) -> None:
    ref = put(artifacts, b"data")
    path = file_of(home, ref)
    path.rename(home / "moved")
    with pytest.raises(StateError):
        asyncio.run(artifacts.read(MINE, ref.artifact_id))
    path.symlink_to(home / "moved")
    with pytest.raises(StateError):
        asyncio.run(artifacts.read(MINE, ref.artifact_id))


def test_a_runs_quota_is_exact_for_many_at_once(artifacts: ArtifactStore) -> None:
    async def scenario() -> list[Any]:
        many = (artifacts.put(MINE, "x", b"%0100d" % number) for number in range(16))
        return await asyncio.gather(*many, return_exceptions=True)

    answers = asyncio.run(scenario())
    refused = [answer for answer in answers if isinstance(answer, Rejected)]
    assert (len(answers) - len(refused), {refusal.reason for refusal in refused}) == (10, {Reason.QUOTA_EXCEEDED})
    assert put(artifacts, b"x" * 1000, run_id=THEIRS).size_bytes == 1000


def test_a_name_is_only_shown_and_never_a_path(artifacts: ArtifactStore, home: Path) -> None:
    ref = put(artifacts, b"data", name="../../etc/" + "x" * 500)
    assert (len(ref.name), file_of(home, ref).is_file()) == (256, True)


def test_a_disk_that_refuses_is_a_state_error(artifacts: ArtifactStore, home: Path) -> None:
    (home / "artifacts").write_text("a file in the way")
    with pytest.raises(StateError, match="could not be written"):
        put(artifacts, b"data")


# ── what somebody does to the rows ──

EDITS = {
    "given to another run": ("UPDATE artifacts SET run_id = ?", THEIRS),
    "another file": ("UPDATE artifacts SET sha256 = ?", sha256_hex(b"other")),
    "another name": ("UPDATE artifacts SET name = ?", "checkpoint"),
    "another size": ("UPDATE artifacts SET size_bytes = ?", 0),
}


def called(artifacts: ArtifactStore, writer: Writer) -> str:
    """A call with an artifact; its id."""
    store, run, call_id = JournalStore(writer, BudgetStore()), run_spec(MINE), ulid()

    async def call() -> str:
        await store.open_call(opening(call_id, run))
        ref = await artifacts.put(MINE, "stdout", b"data")
        outcome = orjson.dumps({"output": {}, "artifacts": [ref.as_json()]})
        await store.close_call(closing(call_id, run, outcome=outcome))
        return ref.artifact_id

    return asyncio.run(call())


@promise("journal.artifact-rows")
@pytest.mark.parametrize("edit", EDITS)
def test_an_artifact_that_somebody_changed_in_its_row_is_found(home: Path, edit: str) -> None:
    """Which run reads it, and which file it gets, its row says; so did the outcome that named it."""
    writer = open_writer(home)
    artifact_id = called(ArtifactStore(writer, new_id=ulid, now_unix_ms=lambda: NOW), writer)
    asyncio.run(walk_call(JournalStore(writer, BudgetStore()), run_spec(THEIRS), ulid()))
    assert audit_home(writer.home).findings == ()
    with tampering(writer.home) as other:
        other.execute(EDITS[edit][0], EDITS[edit][1:])
    (finding,) = audit_home(writer.home).findings
    assert (finding.code, finding.index) == ("KEPT", 1)
    assert finding.detail == f"The row of artifact {artifact_id} differs from the outcome of entry 1."
    writer.commit_now(lambda tx: ArtifactStore.forget(tx, NOW + 1))
    assert audit_home(writer.home).findings == (), "they have a time of their own"
    writer.close()
