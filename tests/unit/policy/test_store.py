"""The bundle in use is only ever replaced by a good one, and what the folder holds is never half read."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from palyra.model.grant import Allow, Deny
from palyra.policy import store
from palyra.policy.bundle import PolicyBundle, PolicyError
from palyra.policy.decide import decide
from palyra.policy.examples import ordinary_request
from palyra.policy.starter import starter_files
from palyra.policy.store import (
    POSTURES,
    PolicyStore,
    load_posture,
    read_folder,
    read_posture,
    try_in_child,
)
from tests.promises import promise

NO_RM = '@id("local.no-rm") forbid (principal, action, resource) when { context.effective_program == "rm" };\n'
NO_LS = '@id("local.no-ls") forbid (principal, action, resource) when { context.effective_program == "ls" };\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "policies"
    path.mkdir(mode=0o700)
    return path


def test_each_posture_is_in_the_package():
    for posture in POSTURES:
        assert {"shared/walls.cedar", "schema.cedarschema", "examples.toml"} <= read_posture(posture).keys()
        assert load_posture(posture).name == posture
    with pytest.raises(PolicyError, match="There is no posture 'wide-open'"):
        PolicyStore("wide-open").current()


def test_a_bundle_is_loaded_once(folder: Path):
    policies = PolicyStore("standard", folder)
    assert policies.current() is policies.current()
    assert PolicyStore("standard", folder / "missing").current() == load_posture("standard")


def test_a_folders_policies_stand_beside_the_posture(folder: Path):
    (folder / "mine.cedar").write_text(NO_RM)
    bundle = PolicyStore("standard", folder).current()
    assert isinstance(decide(bundle, ordinary_request(program="rm")), Deny)
    assert isinstance(decide(bundle, ordinary_request(program="ls")), Allow)


def test_a_new_homes_folder_changes_nothing(folder: Path):
    for name, text in starter_files().items():
        (folder / name).write_text(text)
    assert PolicyStore("standard", folder).current() == load_posture("standard")


def test_the_comments_of_a_new_homes_folder_are_policies_that_work(folder: Path):
    for name, text in starter_files().items():
        lines = [line.removeprefix("// ").removeprefix("# ") for line in text.splitlines() if line[:1] in "/#"]
        start = next(at for at, line in enumerate(lines) if line.startswith(("@id", "[[example")))
        code = "\n".join(line for line in lines[start:] if line not in ("//", "#"))
        (folder / name).write_text(code)
    bundle = PolicyStore("standard", folder).current()
    assert {"local.no-rm-for-agents", "local.ask-before-moving", "local.demo-lists-files"} <= bundle.index.keys()


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def looked_at_again(policies: PolicyStore, clock: Hand) -> PolicyBundle:
    clock.now += store.LOOK_AGAIN_SECONDS
    return policies.current()


def test_a_changed_folder_comes_into_use_within_a_second(folder: Path):
    clock = Hand()
    policies = PolicyStore("standard", folder, monotonic=clock)
    before = policies.current()
    (folder / "mine.cedar").write_text(NO_LS)
    assert policies.current() is before, "it was looked at a moment ago"
    assert "local.no-ls" in looked_at_again(policies, clock).index


def test_a_folder_that_becomes_bad_leaves_the_last_good_bundle_and_one_that_vanishes_none(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    clock = Hand()
    (folder / "mine.cedar").write_text(NO_LS)
    policies = PolicyStore("standard", folder, monotonic=clock)
    good = policies.current()
    (folder / "mine.cedar").write_text("permit (;")
    tried = []
    monkeypatch.setattr(store, "try_in_child", lambda *given: tried.append(given))
    for _ in range(3):
        clock.now += store.LOOK_AGAIN_SECONDS
        assert policies.current() == good
        assert "does not end with" in policies.current().stale
    assert len(tried) == 1, "what was refused is not tried at every call"
    assert "cannot be used" in caplog.text
    (folder / "mine.cedar").unlink()
    folder.rmdir()
    for _ in range(3):
        clock.now += store.LOOK_AGAIN_SECONDS
        with pytest.raises(PolicyError, match="The folder is gone"):
            policies.current()


def test_a_changed_folder_swaps_the_bundle_whole(folder: Path):
    clock = Hand()
    policies = PolicyStore("standard", folder, monotonic=clock)
    before = policies.current()
    (folder / "mine.cedar").write_text(NO_LS)
    after = looked_at_again(policies, clock)
    assert policies.current() is after
    assert isinstance(decide(before, ordinary_request()), Allow)
    assert isinstance(decide(after, ordinary_request()), Deny)
    (folder / "mine.cedar").write_text("")
    assert looked_at_again(policies, clock) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("permit (principal, action, resource);", r"local/mine\.cedar:1: The policy has no @id"),
        (
            '@id("x") permit (principal, action, resource) when { context.nope };',
            r"local/mine\.cedar:1: policy 'x': attri",
        ),
        ('@id("x") permit (principal, action, resource) when { ' + "(" * 1000, "nested deeper than 32"),
    ],
)
def test_a_bad_bundle_never_replaces_a_good_one(
    folder: Path, text: str, message: str, caplog: pytest.LogCaptureFixture
):
    clock = Hand()
    (folder / "mine.cedar").write_text(NO_RM)
    policies = PolicyStore("standard", folder, monotonic=clock)
    good = policies.current()
    (folder / "mine.cedar").write_text(text)
    assert looked_at_again(policies, clock) == good
    assert re.search(message, policies.current().stale)
    assert re.search(message, caplog.text)


def test_a_bad_folder_at_the_start_lets_nothing_run(folder: Path):
    (folder / "mine.cedar").write_text("permit")
    with pytest.raises(PolicyError, match="does not end with `;`") as told:
        PolicyStore("standard", folder).current()
    assert str(folder) in str(told.value.hint), "and says where to mend it"


def test_text_that_ends_the_parser_ends_only_the_child(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_CHILD", "import os; os.abort()")
    with pytest.raises(PolicyError, match="crashed the process that tried it"):
        try_in_child("standard", {"mine.cedar": NO_RM})


def test_text_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(store, "_CHILD", "while True: pass")
    monkeypatch.setattr(store, "_CHILD_SECONDS", 0.2)
    with pytest.raises(PolicyError, match="TimeoutExpired"):
        try_in_child("standard", {"mine.cedar": NO_RM})


def test_without_an_interpreter_nothing_is_replaced(
    monkeypatch: pytest.MonkeyPatch, folder: Path, caplog: pytest.LogCaptureFixture
):
    clock = Hand()
    policies = PolicyStore("standard", folder, monotonic=clock)
    good = policies.current()
    (folder / "mine.cedar").write_text(NO_RM)
    monkeypatch.setattr(sys, "executable", str(folder / "gone"))
    assert looked_at_again(policies, clock) == good
    assert "could not be tried out" in caplog.text


def test_a_misnamed_file_is_an_error_but_notes_and_backups_are_not(folder: Path):
    for name in ("README.md", ".hidden", "mine.cedar~"):
        (folder / name).write_text("anything")
    assert read_folder(folder) == {}
    (folder / "mine.cedar.txt").write_text(NO_RM)
    with pytest.raises(PolicyError, match=r"mine\.cedar\.txt"):
        PolicyStore("standard", folder).current()


def test_a_folder_in_the_folder_is_an_error(folder: Path):
    (folder / "more").mkdir()
    with pytest.raises(PolicyError, match="Only files belong here"):
        read_folder(folder)


def test_ten_mebibytes_are_refused_without_being_read_whole(folder: Path):
    (folder / "a.cedar").write_bytes(b"// x\n" * (2 << 20))
    with pytest.raises(PolicyError, match="at most 1048576 bytes"):
        read_folder(folder)


def test_bytes_that_are_no_text_are_refused(folder: Path):
    (folder / "a.cedar").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="not UTF-8"):
        read_folder(folder)


@promise("state.owner-only")
@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "who"), [(0o666, 0o777, "Everyone on this machine"), (0o660, 0o770, "Its group")]
)
def test_what_others_can_write_is_refused(folder: Path, file_mode: int, folder_mode: int, who: str):
    (folder / "a.cedar").write_text(NO_RM)
    (folder / "a.cedar").chmod(file_mode)
    with pytest.raises(PolicyError, match=rf"a\.cedar: {who} can write here"):
        read_folder(folder)
    (folder / "a.cedar").chmod(0o600)
    folder.chmod(folder_mode)
    with pytest.raises(PolicyError, match=f"{who} can write here"):
        read_folder(folder)


@pytest.mark.parametrize("kind", ["dangling link", "file", "fifo"])
def test_what_stands_in_the_folders_place_never_means_that_there_are_no_forbids(tmp_path: Path, kind: str):
    place = tmp_path / "policies"
    match kind:
        case "dangling link":
            place.symlink_to("nowhere")
        case "file":
            place.write_text("")
        case "fifo":
            os.mkfifo(place)
    with pytest.raises(PolicyError, match="policies"):
        read_folder(place)


@pytest.mark.parametrize("kind", ["dangling link", "fifo"])
def test_what_stands_in_a_files_place_is_an_error_and_never_hangs(folder: Path, kind: str):
    if kind == "fifo":
        os.mkfifo(folder / "a.cedar")
    else:
        (folder / "a.cedar").symlink_to("nowhere")
    with pytest.raises(PolicyError, match=r"a\.cedar"):
        read_folder(folder)


def test_a_folder_linked_into_one_that_everyone_can_write_is_refused(tmp_path: Path):
    common = tmp_path / "common"
    (common / "mine").mkdir(parents=True, mode=0o700)
    common.chmod(0o777)
    (tmp_path / "policies").symlink_to(common / "mine")
    with pytest.raises(PolicyError, match="common: Everyone on this machine can write here"):
        read_folder(tmp_path / "policies")


def test_a_file_linked_into_a_folder_that_everyone_can_write_is_refused(folder: Path, tmp_path: Path):
    common = tmp_path / "common"
    common.mkdir()
    (common / "a.cedar").write_text(NO_RM)
    common.chmod(0o777)
    (folder / "a.cedar").symlink_to(common / "a.cedar")
    with pytest.raises(PolicyError, match="common: Everyone on this machine can write here"):
        read_folder(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_owns_is_refused(folder: Path):
    (folder / "a.cedar").write_text(NO_RM)
    os.chown(folder / "a.cedar", 54321, -1)
    with pytest.raises(PolicyError, match=r"a\.cedar: Another user \(uid 54321\) can write here"):
        read_folder(folder)


def test_the_child_that_tries_policies_takes_our_package_before_any_other():
    assert 'sys.path.insert(0, given["package"])' in store._CHILD


def test_with_strict_a_bad_file_refuses_until_it_is_mended(folder: Path):
    clock = Hand()
    (folder / "mine.cedar").write_text(NO_LS)
    policies = PolicyStore("standard", folder, strict=True, monotonic=clock)
    good = policies.current()
    (folder / "mine.cedar").write_text(NO_LS + NO_LS)
    for _ in range(2):
        with pytest.raises(PolicyError, match="already used"):
            looked_at_again(policies, clock)
    (folder / "mine.cedar").write_text(NO_LS)
    assert looked_at_again(policies, clock) == good


@pytest.mark.parametrize("how", ["writable by others", "a dangling link", "no text"])
def test_a_file_that_cannot_be_read_refuses_in_a_process_that_runs_too(folder: Path, how: str):
    clock = Hand()
    (folder / "mine.cedar").write_text(NO_LS)
    policies = PolicyStore("standard", folder, monotonic=clock)
    good = policies.current()
    match how:
        case "writable by others":
            (folder / "mine.cedar").chmod(0o666)
        case "a dangling link":
            (folder / "mine.cedar").rename(folder / ".away")
            (folder / "mine.cedar").symlink_to("nowhere")
        case _:
            (folder / "mine.cedar").write_bytes(b"\xff")
    for _ in range(2):
        with pytest.raises(PolicyError):
            looked_at_again(policies, clock)
    (folder / "mine.cedar").unlink()
    (folder / "mine.cedar").write_text(NO_LS)
    assert looked_at_again(policies, clock) == good


def test_a_folder_that_comes_back_as_it_was_is_in_force_again(folder: Path):
    clock = Hand()
    (folder / "mine.cedar").write_text(NO_LS)
    policies = PolicyStore("standard", folder, monotonic=clock)
    good = policies.current()
    folder.rename(folder.with_name("away"))
    with pytest.raises(PolicyError, match="gone"):
        looked_at_again(policies, clock)
    folder.with_name("away").rename(folder)
    assert looked_at_again(policies, clock) == good
