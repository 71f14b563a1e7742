"""Policies as versions: what is used is journaled with the pointer, can be gone back to, and is swapped in whole."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.errors import StateError
from palyra.journal.entry import parse_entry
from palyra.journal.store import JournalRows
from palyra.model.grant import Allow, Deny
from palyra.policy.bundle import PolicyBundle
from palyra.policy.decide import decide
from palyra.policy.examples import ordinary_request
from palyra.policy.scan import PolicyError
from palyra.policy.store import PolicyStore, load_posture
from palyra.state.writer import Writer
from palyra.testing import FakeClock
from palyra.wiring.versions import PolicyVersions, VersionRows, version_of
from tests.journaling import audit_home
from tests.promises import promise
from tests.stores import open_writer, snapshot, tampering


def forbid(program: str) -> dict[str, str]:
    text = (
        f'@id("local.no-{program}") forbid (principal, action, resource) when {{ context.program == "{program}" }};\n'
    )
    return {"mine.cedar": text}


NO_RM, NO_LS = forbid("rm"), forbid("ls")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = open_writer(tmp_path / "home")
    yield writer
    writer.close()


@pytest.fixture
def versions(writer: Writer) -> PolicyVersions:
    return PolicyVersions(writer, FakeClock())


def install(versions: PolicyVersions, files: dict[str, str]) -> str:
    async def work() -> str:
        sha256 = load_posture("standard", files).digest
        return (await versions.install(files, policy_sha256=sha256, by="user:op"))[0]

    return asyncio.run(work())


def roll_back(versions: PolicyVersions) -> None:
    async def work() -> None:
        await versions.roll_back(versions.use(), policy_sha256="0" * 64, by="user:op")

    asyncio.run(work())


def edit(writer: Writer, sql: str, *parameters: str) -> None:
    """Behind everybody's back."""
    with tampering(writer.home) as other:
        other.execute(sql, parameters)


def acts(writer: Writer) -> list[dict[str, Any]]:
    with snapshot(writer.home) as connection:
        views = [parse_entry(entry.body) for entry in JournalRows(connection).entries()]
    return [{"subject": view.subject, **view.predicate} for view in views if "act" in view.predicate]


def allows(bundle: PolicyBundle, program: str) -> bool:
    decision = decide(bundle, ordinary_request(program=program))
    assert isinstance(decision, Allow | Deny)
    return isinstance(decision, Allow)


def test_a_use_and_its_entry_are_one_transaction(writer: Writer, versions: PolicyVersions):
    version = install(versions, NO_RM)
    assert versions.pointer() == version == version_of(NO_RM)
    (act,) = acts(writer)
    assert (act["act"], act["actor"], act["subject"]) == ("policy.used", "user:op", f"policy/{version}")
    assert act["details"] == {
        "version": version,
        "before": None,
        "policy_sha256": load_posture("standard", NO_RM).digest,
    }
    assert audit_home(writer.home, every=True).findings == ()


@promise("policy.broken-bundle")
def test_a_use_that_fails_changes_neither_pointer_nor_journal(
    writer: Writer, versions: PolicyVersions, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("palyra.wiring.versions.record_act", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        install(versions, NO_RM)
    assert (versions.pointer(), acts(writer)) == (None, [])


def test_using_the_same_again_is_no_act(writer: Writer, versions: PolicyVersions):
    assert install(versions, NO_RM) == install(versions, NO_RM)
    assert len(acts(writer)) == 1


def test_rolling_back_twice_goes_two_steps_back(writer: Writer, versions: PolicyVersions):
    first, second = install(versions, NO_RM), install(versions, NO_LS)
    assert versions.pointer() == second
    roll_back(versions)
    assert versions.pointer() == first
    roll_back(versions)
    assert versions.pointer() is None
    assert versions.before(versions.use()) is None
    with pytest.raises(StateError):
        roll_back(versions)
    assert [act["act"] for act in acts(writer)] == ["policy.used"] * 2 + ["policy.rolled_back"] * 2
    assert audit_home(writer.home).findings == ()


@promise("journal.policy-pointer")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE policy_pointer SET number = 1",
        "UPDATE policy_pointer SET number = 0",
        "UPDATE policy_uses SET version = (SELECT version FROM policy_uses WHERE number = 1) WHERE number = 2",
        "UPDATE policy_uses SET by = 'user:another'",
        "INSERT INTO policy_uses SELECT -1, version, parent, at_unix_ms, 'user:x' FROM policy_uses WHERE number = 1",
    ],
)
def test_policies_that_somebody_put_in_use_without_a_word_are_found(
    writer: Writer, versions: PolicyVersions, sql: str
) -> None:
    """The pointer is a row: set back, it had calls decided by policies that had been replaced, and all verified."""
    install(versions, NO_RM)
    install(versions, NO_LS)
    assert audit_home(writer.home).findings == ()
    edit(writer, sql)
    assert {one.code for one in audit_home(writer.home).findings} == {"KEPT"}


def use_four_times(versions: PolicyVersions) -> None:
    """The last of them leads back to the third, and from there to the folder."""
    install(versions, NO_RM)
    install(versions, NO_LS)
    roll_back(versions)
    install(versions, NO_LS)


@promise("journal.policy-pointer")
@pytest.mark.parametrize("parent", ["0", "NULL", "2"])
def test_a_step_back_that_somebody_leads_elsewhere_is_found(writer: Writer, versions: PolicyVersions, parent: str):
    """Which policies came before is a number in a row: an operator who rolled back would be led to others."""
    use_four_times(versions)
    assert audit_home(writer.home).findings == ()
    edit(writer, f"UPDATE policy_uses SET parent = {parent} WHERE number = 4")
    assert [one.code for one in audit_home(writer.home).findings] == ["KEPT"]


@promise("journal.policy-pointer")
def test_a_step_back_that_somebody_led_elsewhere_is_found_after_it_was_taken(writer: Writer, versions: PolicyVersions):
    use_four_times(versions)
    edit(writer, "UPDATE policy_uses SET parent = 0 WHERE number = 4")
    roll_back(versions)
    edit(writer, "UPDATE policy_uses SET parent = 3 WHERE number = 4")
    edit(writer, "UPDATE policy_uses SET parent = 0 WHERE number = 5")
    assert [one.code for one in audit_home(writer.home).findings] == ["KEPT"]


def test_a_circle_of_uses_keeps_no_audit_going(writer: Writer, versions: PolicyVersions) -> None:
    install(versions, NO_RM)
    edit(writer, "UPDATE policy_uses SET parent = number")
    assert [one.code for one in audit_home(writer.home).findings] == ["KEPT"]


def test_numbers_of_uses_only_grow_over_a_rollback_too(versions: PolicyVersions):
    """A node remembers the greatest it has seen, and refuses what was decided under a lesser one."""
    first, _ = install(versions, NO_RM), install(versions, NO_LS)
    before = versions.use()
    roll_back(versions)
    assert versions.use().number > before.number
    assert versions.uses()[0][:2] == (versions.use().number, first)


def test_a_rollback_that_another_one_overtook_changes_nothing(versions: PolicyVersions):
    install(versions, NO_RM)
    install(versions, NO_LS)
    seen = versions.use()
    roll_back(versions)
    with pytest.raises(StateError, match="changed in the meantime"):
        asyncio.run(versions.roll_back(seen, policy_sha256="0" * 64, by="user:op"))
    assert versions.pointer() == version_of(NO_RM)


@promise("policy.broken-bundle")
def test_a_version_that_is_no_longer_what_was_installed_is_never_used(writer: Writer, versions: PolicyVersions):
    version = install(versions, NO_RM)
    edit(writer, "UPDATE policy_texts SET files = x'7b7d' WHERE sha256 = ?", version)
    with pytest.raises(PolicyError, match="not what was installed"):
        PolicyStore("standard", versions=versions).current()


def test_a_use_is_seen_at_the_next_decision_by_every_store(versions: PolicyVersions, tmp_path: Path):
    stores = [PolicyStore("standard", tmp_path / "none", versions=versions) for _ in range(2)]
    assert all(allows(store.current(), "rm") for store in stores)
    install(versions, NO_RM)
    assert not any(allows(store.current(), "rm") for store in stores)
    roll_back(versions)
    assert all(allows(store.current(), "rm") for store in stores)


@promise("policy.broken-bundle")
def test_a_version_in_the_database_that_is_bad_never_replaces_a_good_one(versions: PolicyVersions):
    store = PolicyStore("standard", versions=versions)
    good = store.current()
    asyncio.run(versions.install({"bad.cedar": "permit (;"}, policy_sha256="0" * 64, by="user:op"))
    for each in (store, store, PolicyStore("standard", versions=versions)):
        assert each.current() == good
        assert "does not end with" in each.current().stale
    with pytest.raises(PolicyError):
        PolicyStore("standard", versions=versions, strict=True).current()


def test_every_bundle_that_decides_is_kept_and_can_be_asked_again(writer: Writer, versions: PolicyVersions):
    install(versions, NO_RM)
    bundle = PolicyStore("standard", versions=versions).current()
    kept = VersionRows(writer.rows).bundle(bundle.digest)
    assert kept is not None
    assert kept.digest == bundle.digest
    assert not allows(kept, "rm")
    assert VersionRows(writer.rows).bundle("0" * 64) is None


def test_a_kept_bundle_that_was_edited_is_not_the_one_that_decided(writer: Writer, versions: PolicyVersions):
    bundle = PolicyStore("standard", versions=versions).current()
    sql = "UPDATE policy_texts SET files = CAST(replace(files, 'forbid', 'permit') AS BLOB) WHERE sha256 = ?"
    edit(writer, sql, bundle.digest)
    assert versions.bundle(bundle.digest) is None


def test_a_version_is_found_by_the_beginning_of_its_name(versions: PolicyVersions):
    version = install(versions, NO_RM)
    install(versions, NO_LS)
    assert versions.find(version[:12]) == version
    for beginning in ("", version[:4], "%%%%%%%%", "zzzzzzzz", "00000000"):
        assert versions.find(beginning) is None


def test_a_draft_in_the_folder_is_not_in_force_and_not_so_quietly(
    versions: PolicyVersions, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    folder = tmp_path / "policies"
    folder.mkdir(mode=0o700)
    (folder / "mine.cedar").write_text(NO_LS["mine.cedar"])
    (folder / "mine.cedar").chmod(0o600)
    install(versions, NO_RM)
    store = PolicyStore("standard", folder, versions=versions)
    assert (allows(store.current(), "ls"), allows(store.current(), "rm")) == (True, False)
    assert "is not in force" in caplog.text
