"""Policies that cannot be used leave the last good ones in force, found by their digest, also in a fresh process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.journal.entry import parse_entry
from palyra.journal.store import JournalRows
from palyra.model.grant import Allow
from palyra.policy import store
from palyra.policy.bundle import PolicyBundle
from palyra.policy.decide import decide
from palyra.policy.examples import ordinary_request
from palyra.policy.exceptions import write_exception
from palyra.policy.scan import PolicyError
from palyra.policy.store import PolicyStore, load_posture
from palyra.state.writer import Writer
from palyra.testing import FakeClock
from palyra.wiring.versions import PolicyVersions
from tests.stores import open_writer, snapshot, tampering

NAME = "allow.01ARZ3NDEKTSV4RRFFQ69G5FAV"
WGET = ordinary_request(program="wget", listed=False, programs="[]", input_sha256="a" * 64)


def forbid(program: str) -> str:
    return (
        f'@id("local.no-{program}") forbid (principal, action, resource) when {{ context.program == "{program}" }};\n'
    )


BROKEN = {
    "no Cedar": "permit (;",
    "an id twice": forbid("ls") + forbid("ls"),
    "a wrong type": forbid("ls")[:-3] + "+1};",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "policies"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    writer = open_writer(tmp_path / "home")
    yield writer
    writer.close()


def fresh(writer: Writer, folder: Path, *, strict: bool = False, posture: str = "standard") -> PolicyStore:
    """As another process opens it."""
    return PolicyStore(posture, folder, versions=PolicyVersions(writer, FakeClock()), strict=strict)


def write(folder: Path, text: str, name: str = "mine.cedar") -> None:
    """In one step, as an editor that renames."""
    draft = folder / f".{name}"
    draft.write_text(text)
    draft.rename(folder / name)


def allows(bundle: PolicyBundle, program: str) -> bool:
    return isinstance(decide(bundle, ordinary_request(program=program)), Allow)


def acts(writer: Writer) -> list[str]:
    with snapshot(writer.home) as connection:
        views = [parse_entry(entry.body) for entry in JournalRows(connection).entries()]
    return [view.act for view in views if view.act]


@pytest.mark.parametrize("kind", BROKEN)
def test_a_fresh_process_goes_on_with_the_last_good_policies_and_says_so(writer: Writer, folder: Path, kind: str):
    write(folder, forbid("rm"))
    good = fresh(writer, folder).current()
    assert good.stale == ""
    write(folder, BROKEN[kind])
    stale = fresh(writer, folder).current()
    assert (stale.digest, allows(stale, "rm"), allows(stale, "ls")) == (good.digest, False, True)
    assert "mine.cedar" in stale.stale
    with pytest.raises(PolicyError):
        fresh(writer, folder, strict=True).current()
    write(folder, forbid("ls"))
    mended = fresh(writer, folder).current()
    assert (mended.stale, allows(mended, "rm"), allows(mended, "ls")) == ("", True, False)


def test_a_home_that_never_had_good_policies_runs_nothing(writer: Writer, folder: Path):
    write(folder, "permit (;")
    with pytest.raises(PolicyError, match="does not end with"):
        fresh(writer, folder).current()


def test_that_there_were_no_policies_is_a_last_good_one_too(writer: Writer, folder: Path):
    plain = fresh(writer, folder).current()
    write(folder, "permit (;")
    assert fresh(writer, folder).current() == plain


def test_what_is_no_longer_what_its_digest_says_is_not_used(writer: Writer, folder: Path):
    write(folder, forbid("rm"))
    fresh(writer, folder).current()
    with tampering(writer.home) as connection:
        connection.execute("UPDATE policy_texts SET files = x'7b7d' WHERE kind = 'local'")
    write(folder, "permit (;")
    with pytest.raises(PolicyError, match="does not end with"):
        fresh(writer, folder).current()


@pytest.mark.parametrize("how", ["writable by others", "a dangling link"])
def test_a_file_that_cannot_be_read_still_refuses(writer: Writer, folder: Path, how: str):
    write(folder, forbid("rm"))
    fresh(writer, folder).current()
    if how == "writable by others":
        (folder / "mine.cedar").chmod(0o666)
    else:
        (folder / "mine.cedar").unlink()
        (folder / "mine.cedar").symlink_to("nowhere")
    with pytest.raises(PolicyError):
        fresh(writer, folder).current()


def test_the_last_good_policies_go_into_no_other_posture(writer: Writer, folder: Path):
    """The posture is the configuration's of now: a home that was made stricter stays so."""
    write(folder, forbid("rm"))
    fresh(writer, folder).current()
    write(folder, "permit (;")
    assert not allows(fresh(writer, folder, posture="locked").current(), "ls")


def test_a_process_that_remembers_older_policies_takes_the_newest_good_ones(writer: Writer, folder: Path):
    """It held the first, another process found the second good, and the third is broken."""
    write(folder, forbid("rm"))
    old = fresh(writer, folder)
    old.current()
    write(folder, forbid("ls"))
    newer = fresh(writer, folder).current()
    write(folder, "permit (;")
    assert old.look_again() == newer


def test_a_process_that_was_slow_to_load_does_not_bring_older_policies_back(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """It read the first, and noted it only after another process had noted the second."""
    write(folder, forbid("rm"))
    slow, load, newer = fresh(writer, folder), store.load_posture, []

    def while_another_loads(posture, local=None, *, typed=True):
        bundle = load(posture, local, typed=typed)
        monkeypatch.setattr(store, "load_posture", load)
        write(folder, forbid("ls"))
        newer.append(fresh(writer, folder).current())
        return bundle

    monkeypatch.setattr(store, "load_posture", while_another_loads)
    assert not allows(slow.current(), "rm")
    write(folder, "permit (;")
    assert fresh(writer, folder).current() == newer[0]


def test_a_process_that_was_slow_to_load_a_version_does_not_bring_it_back_after_another(
    writer: Writer, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    versions = PolicyVersions(writer, FakeClock())

    def install(program: str) -> None:
        work = versions.install({"mine.cedar": forbid(program)}, policy_sha256="0" * 64, by="user:op")
        asyncio.run(work)

    install("rm")
    slow, load = fresh(writer, folder), store.load_posture

    def while_another_is_used(posture, local=None, *, typed=True):
        bundle = load(posture, local, typed=typed)
        monkeypatch.setattr(store, "load_posture", load)
        install("ls")
        fresh(writer, folder).current()
        return bundle

    monkeypatch.setattr(store, "load_posture", while_another_is_used)
    slow.current()
    assert versions.last_good(str(folder)) == {"mine.cedar": forbid("ls")}


def test_the_journal_tells_once_of_policies_that_need_repair_and_once_of_their_repair(writer: Writer, folder: Path):
    fresh(writer, folder).current()
    write(folder, "permit (;")
    for _ in range(3):
        fresh(writer, folder).current()
    assert acts(writer) == ["policy.stale"]
    write(folder, forbid("rm"))
    for _ in range(2):
        fresh(writer, folder).current()
    assert acts(writer) == ["policy.stale", "policy.repaired"]


# ── with exceptions ──


def exception(name: str = NAME) -> str:
    return write_exception(load_posture("standard"), WGET, "call", name=name).text


def test_an_exception_can_be_made_and_taken_back_while_the_policies_need_repair(writer: Writer, folder: Path):
    fresh(writer, folder).current()
    write(folder, "permit (;")
    write(folder, exception(), f"{NAME}.cedar")
    policies = fresh(writer, folder)
    assert isinstance(decide(policies.current(), WGET), Allow)
    assert policies.current().stale
    (folder / f"{NAME}.cedar").unlink()
    assert not isinstance(decide(policies.look_again(), WGET), Allow)
    assert not isinstance(decide(fresh(writer, folder).current(), WGET), Allow)


def test_a_broken_exception_is_left_out_and_takes_no_policy_with_it(writer: Writer, folder: Path):
    other = NAME[:-1] + "W"
    write(folder, forbid("rm"))
    write(folder, exception(), f"{NAME}.cedar")
    write(folder, exception(other) + forbid("ls"), f"{other}.cedar")
    bundle = fresh(writer, folder).current()
    assert f"{other}.cedar" in bundle.stale
    assert isinstance(decide(bundle, WGET), Allow)
    assert (allows(bundle, "rm"), NAME in bundle.index, other in bundle.index) == (False, True, False)


def test_exceptions_are_the_homes_whichever_version_is_in_use(writer: Writer, folder: Path):
    write(folder, exception(), f"{NAME}.cedar")
    versions = PolicyVersions(writer, FakeClock())
    policies = PolicyStore("standard", folder, versions=versions)
    assert isinstance(decide(policies.current(), WGET), Allow)
    asyncio.run(versions.install({"mine.cedar": forbid("rm")}, policy_sha256="0" * 64, by="user:op"))
    assert isinstance(decide(policies.current(), WGET), Allow)
    assert not allows(policies.current(), "rm")
    (folder / f"{NAME}.cedar").unlink()
    assert not isinstance(decide(policies.look_again(), WGET), Allow)
