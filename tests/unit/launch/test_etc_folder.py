"""A folder that stands for all of /etc: holds exactly that, is right or is not used, and goes when nobody asks."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.launch import etc_folder as module
from palyra.launch import in_use
from palyra.launch.etc_folder import EtcFolders
from palyra.launch.held import Template
from palyra.launch.host_files import is_unchanged
from palyra.model.plan import Hole, Word
from palyra.sandbox import etc_words
from tests.promises import promise
from tests.unit.sandbox.jobs import make_host

OLD_NS = time.time_ns() - 3600 * 1_000_000_000


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The host's /etc, of which nothing was changed lately."""
    folder = tmp_path / "etc"
    (folder / "certs" / "java").mkdir(parents=True)
    (folder / "certs" / "all.crt").write_text("certificates")
    (folder / "certs" / "one.pem").symlink_to("/usr/share/one.crt")
    (folder / "alternatives").mkdir()
    (folder / "alternatives" / "vi").symlink_to("/usr/bin/vim")
    (folder / "ld.so.cache").write_bytes(b"\0cache")
    for where, name, value in (
        (etc_words, "ETC", str(folder)),
        (etc_words, "_BELOW", f"{folder}/"),
        (module, "ETC", str(folder)),
        (module, "ALWAYS_BOUND", (f"{folder}/hosts",)),
        (module, "SETTLED_NS", 0),
    ):
        monkeypatch.setattr(where, name, value)
    etc_words.etc_of.cache_clear()
    settle()
    return folder


def settle() -> None:
    """Later than the clock's last tick, by which the kernel tells when a file was changed."""
    time.sleep(0.02)


def template(etc: Path, *more: Word, **changes: Any) -> Template:
    shown = [word for name in ("alternatives", "ld.so.cache", "certs", "absent") for word in bind(etc / name)]
    words: tuple[Word, ...] = (
        *("bwrap", "--ro-bind", "/usr", "/usr", "--dir", str(etc), "--symlink", "/usr/zone", f"{etc}/localtime"),
        *(*shown, "--perms", "0555", "--dir", f"{etc}/.empty.d", "--perms", "0444", "--file", Hole(0), f"{etc}/passwd"),
        *(*more, "--bind", "/work", "/work", "--remount-ro", "/", "--seccomp", Hole(1), "--"),
    )
    facts: dict[str, Any] = {
        "launcher": words,
        "data": (b"agent", b"filter"),
        "closed": (),
        "run_as": None,
        "no_new_privileges": True,
        "pid_namespace": True,
        "pid_max": 0,
        "landlock": None,
        "seccomp": b"",
        "group": None,
    }
    return Template(**(facts | changes))


def bind(path: Path) -> tuple[str, str, str]:
    return "--ro-bind-try", str(path), str(path)


def folders(tmp_path: Path) -> EtcFolders:
    (tmp_path / "state").mkdir(exist_ok=True)
    return EtcFolders(make_host(state_home=str(tmp_path / "state")))


def shown_by(short: Template) -> Path:
    return Path(str(short.launcher[5]))


def everything(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        text = os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else None
        found[str(path.relative_to(folder))] = (stat.S_IFMT(mode), text)
    return found


def test_it_holds_what_the_words_would_have_made(etc: Path, tmp_path: Path) -> None:
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    short = made.shortened(plan)
    folder = shown_by(short)
    assert short.launcher == (
        *("bwrap", "--ro-bind", "/usr", "/usr", "--ro-bind", str(folder), str(etc)),
        *("--bind", "/work", "/work", "--remount-ro", "/", "--seccomp", Hole(0), "--"),
    )
    assert short.data == (b"filter",)
    file, link, kind = stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR
    assert everything(folder) == {
        ".empty.d": (kind, None),
        "alternatives": (kind, None),
        "alternatives/vi": (link, "/usr/bin/vim"),
        "certs": (kind, None),
        "certs/all.crt": (file, "certificates"),
        "certs/java": (kind, None),
        "certs/one.pem": (link, "/usr/share/one.crt"),
        "ld.so.cache": (file, "\0cache"),
        "localtime": (link, "/usr/zone"),
        "passwd": (file, "agent"),
    }
    assert stat.S_IMODE((folder / "passwd").stat().st_mode) == 0o444
    assert not folder.stat().st_mode & 0o022
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def replace_by_rename(etc: Path) -> None:
    (etc / "new").write_bytes(b"\0other")
    (etc / "new").rename(etc / "ld.so.cache")


def swap_folder(etc: Path) -> None:
    (etc / "certs").rename(etc / "old")
    (etc / "certs").mkdir()


CHANGES: dict[str, Callable[[Path], object]] = {
    "written in place": lambda etc: (etc / "certs" / "all.crt").write_text("Certificates"),
    "replaced by a rename": replace_by_rename,
    "a link that leads elsewhere": lambda etc: (
        (etc / "alternatives" / "vi").unlink(),
        (etc / "alternatives" / "vi").symlink_to("/usr/bin/vi"),
    ),
    "a new entry": lambda etc: (etc / "certs" / "java" / "store").write_text("x"),
    "an entry less": lambda etc: (etc / "certs" / "one.pem").unlink(),
    "another folder": swap_folder,
    "what was not there": lambda etc: (etc / "absent").mkdir(),
    "what is not there any more": lambda etc: (etc / "ld.so.cache").unlink(),
    "another mode": lambda etc: (etc / "ld.so.cache").chmod(0o755),
    "the same size and time": lambda etc: (
        (etc / "ld.so.cache").write_bytes(b"\0CACHE"),
        os.utime(etc / "ld.so.cache", ns=(OLD_NS, OLD_NS)),
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_change_on_the_host_is_seen_by_the_next_sandbox(
    change: Callable[[Path], object], etc: Path, tmp_path: Path
) -> None:
    os.utime(etc / "ld.so.cache", ns=(OLD_NS, OLD_NS))
    settle()
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    before = made.shortened(plan)
    assert before is not plan
    made.is_seen_to_work = True
    assert not made.is_to_blame(plan)
    change(etc)
    assert not is_unchanged(before.host_files), "so that it does not start"
    assert made.is_to_blame(plan)
    assert made.shortened(plan) is plan, "the host's own files, until there is a new folder"
    made.close()
    settle()
    made.make(plan)
    after = made.shortened(plan)
    assert shown_by(after) != shown_by(before)
    copied = {name: what for name, what in everything(shown_by(after)).items() if (etc / name).exists() or "vi" in name}
    assert copied.items() <= everything(etc).items()


def test_what_changed_a_moment_ago_is_not_copied(etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLED_NS", 2_000_000_000)
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    assert made.shortened(plan) is plan
    assert not any((tmp_path / "state" / "sandbox-etc").iterdir())


def test_what_changes_while_it_is_copied_is_not_used(
    etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = module._fill

    def fill_slowly(*given: Any) -> None:
        fill(*given)
        (etc / "certs" / "all.crt").write_text("of another time")

    monkeypatch.setattr(module, "_fill", fill_slowly)
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    assert made.shortened(plan) is plan
    assert not any((tmp_path / "state" / "sandbox-etc").iterdir())


def test_the_next_process_finds_it_and_so_does_the_one_beside(etc: Path, tmp_path: Path) -> None:
    plan, found = template(etc), []
    for _ in range(3):
        made = folders(tmp_path)
        made.make(plan)
        found.append(shown_by(made.shortened(plan)))
    assert len(set(found)) == 1
    assert len(list((tmp_path / "state" / "sandbox-etc").iterdir())) == 1


def test_one_that_was_removed_is_made_again(etc: Path, tmp_path: Path) -> None:
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    module.remove_tree(shown_by(made.shortened(plan)))
    made.is_seen_to_work = True
    assert made.is_to_blame(plan)
    assert made.shortened(plan) is plan
    made.close()
    assert made.shortened(plan) is not plan


def test_it_is_made_beside_the_start_that_asks_for_it(etc: Path, tmp_path: Path) -> None:
    made, plan = folders(tmp_path), template(etc)
    assert made.shortened(plan) is plan
    made.close()
    assert made.shortened(plan) is not plan


def test_where_there_is_no_room_for_a_thread_the_start_does_without(
    etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    made, plan = folders(tmp_path), template(etc)
    with monkeypatch.context() as short:
        short.setattr(threading.Thread, "start", refuse)
        assert made.shortened(plan) is plan
        made.close()
    assert made.shortened(plan) is plan
    made.close()
    assert made.shortened(plan) is not plan


@pytest.mark.parametrize(
    "changes",
    [{"run_as": (1000, 1000)}, {"closed": (("hidden_file", "/work/.env"),)}],
    ids=["another user starts it", "the sandbox's own empty file stands for what is hidden"],
)
def test_some_sandboxes_have_an_etc_of_their_own(changes: dict[str, Any], etc: Path, tmp_path: Path) -> None:
    made, plan = folders(tmp_path), template(etc, **changes)
    assert made.shortened(plan) is plan
    made.close()
    assert made.shortened(plan) is plan
    assert not any((tmp_path / "state").iterdir())


def test_without_a_state_folder_or_after_a_failed_start_there_is_none(etc: Path, tmp_path: Path) -> None:
    plan = template(etc)
    nowhere = EtcFolders(make_host(state_home=""))
    nowhere.make(plan)
    given_up = folders(tmp_path)
    given_up.make(plan)
    assert given_up.is_to_blame(plan)
    given_up.make(plan)
    assert [made.shortened(plan) for made in (nowhere, given_up)] == [plan, plan]


def test_a_place_where_it_cannot_be_made_is_no_error(etc: Path, tmp_path: Path) -> None:
    made, plan = folders(tmp_path), template(etc)
    for stands_there in ((tmp_path / "state" / "sandbox-etc").touch, (tmp_path / "state").rmdir):
        stands_there()
        made.make(plan)
        assert made.shortened(plan) is plan
        (tmp_path / "state" / "sandbox-etc").unlink(missing_ok=True)
    assert not (tmp_path / "state").exists(), "no home is made for it"


def test_one_that_others_may_write_is_not_shown(etc: Path, tmp_path: Path) -> None:
    first, plan = folders(tmp_path), template(etc)
    first.make(plan)
    shown_by(first.shortened(plan)).chmod(0o777)
    second = folders(tmp_path)
    second.make(plan)
    assert second.shortened(plan) is plan


def test_the_hosts_network_files_and_what_is_large_keep_a_bind_of_their_own(
    etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (etc / "hosts").write_text("127.0.0.1 localhost")
    os.mkfifo(etc / "certs" / "pipe")
    monkeypatch.setattr(module, "MAX_BYTES", 5)
    settle()
    made, plan = folders(tmp_path), template(etc, *bind(etc / "hosts"))
    made.make(plan)
    short = made.shortened(plan)
    own = [word for name in ("ld.so.cache", "certs", "hosts") for word in bind(etc / name)]
    assert list(short.launcher[7:16]) == own
    assert {name: kind for name, (kind, _) in everything(shown_by(short)).items() if name in {"certs", "hosts"}} == {
        "certs": stat.S_IFDIR,
        "hosts": stat.S_IFREG,
    }
    (etc / "hosts").write_text("127.0.0.1 other")
    assert made.shortened(plan) is short, "it is the host's own that is shown"


def test_a_network_file_that_goes_away_stops_no_sandbox(etc: Path, tmp_path: Path) -> None:
    (etc / "hosts").write_text("127.0.0.1 localhost")
    settle()
    made, plan = folders(tmp_path), template(etc, *bind(etc / "hosts"))
    made.make(plan)
    (etc / "hosts").unlink()
    short = made.shortened(plan)
    assert short is not plan
    assert short.launcher[7:10] == bind(etc / "hosts"), "a launcher that must find it would refuse every call"


def hide_file(etc: Path) -> None:
    (etc / "certs" / "java" / "key").write_text("of another user")
    (etc / "certs" / "java" / "key").chmod(0o640)


def hide_folder(etc: Path) -> None:
    (etc / "certs" / "java").chmod(0o711)


def hide_top(etc: Path) -> None:
    (etc / "certs").chmod(0o750)


@promise("fs-isolated.copied-etc")
@pytest.mark.parametrize("hide", [hide_file, hide_folder, hide_top])
def test_a_file_that_root_may_read_and_a_program_may_not_is_not_copied_for_it(
    hide: Callable[[Path], None], etc: Path, tmp_path: Path
) -> None:
    hide(etc)
    settle()
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    short = made.shortened(plan)
    assert short.launcher[6:10] == (str(etc), "--ro-bind-try", f"{etc}/certs", f"{etc}/certs")
    assert everything(shown_by(short) / "certs") == {}
    assert "alternatives/vi" in everything(shown_by(short))


def test_a_copied_program_can_still_be_run_and_no_umask_closes_a_folder(etc: Path, tmp_path: Path) -> None:
    (etc / "alternatives" / "own").write_text("#!/bin/sh")
    (etc / "alternatives" / "own").chmod(0o777)
    settle()
    made, plan, umask = folders(tmp_path), template(etc), os.umask(0o077)
    try:
        made.make(plan)
    finally:
        os.umask(umask)
    folder = shown_by(made.shortened(plan))
    copied = ("", "alternatives", "alternatives/own", "certs/all.crt")
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in copied] == [0o755, 0o755, 0o755, 0o644]


def test_what_nobody_asked_for_in_days_is_removed_and_nothing_else(etc: Path, tmp_path: Path) -> None:
    root = tmp_path / "state" / "sandbox-etc"
    for name, age_days in (("a" * 64, 3), (".making-left", 3), ("b" * 64, 1)):
        (root / name / "certs").mkdir(parents=True)
        then = time.time() - age_days * 24 * 3600
        os.utime(root / name, (then, then))
    made, plan = folders(tmp_path), template(etc)
    made.make(plan)
    assert {path.name for path in root.iterdir()} == {"b" * 64, shown_by(made.shortened(plan)).name}


def test_use_is_told_to_whoever_removes(etc: Path, tmp_path: Path) -> None:
    first, plan = folders(tmp_path), template(etc)
    first.make(plan)
    folder = shown_by(first.shortened(plan))
    os.utime(folder, ns=(OLD_NS, OLD_NS))
    second = folders(tmp_path)
    second.make(plan)
    assert folder.stat().st_mtime_ns > OLD_NS


def test_one_that_a_process_holds_is_not_removed_however_old_it_is(etc: Path, tmp_path: Path) -> None:
    """A machine that slept for days: a call is minutes old, and its /etc was asked for the day before yesterday."""
    sleeper, waker, plan = folders(tmp_path), folders(tmp_path), template(etc)
    sleeper.make(plan)
    folder = shown_by(sleeper.shortened(plan))
    before = everything(folder)
    os.utime(folder, ns=(OLD_NS, time.time_ns() - module.UNUSED_NS - 1))
    (etc / "certs" / "all.crt").write_text("others")
    settle()
    waker.make(plan)
    assert shown_by(waker.shortened(plan)) != folder
    assert everything(folder) == before
    sleeper.close()
    (etc / "certs" / "all.crt").write_text("others again")
    settle()
    waker.make(plan)
    assert not folder.exists()
    waker.close()


def test_one_that_is_on_its_way_out_is_not_begun_with(
    etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, plan = folders(tmp_path), folders(tmp_path), template(etc)
    first.make(plan)
    folder = shown_by(first.shortened(plan))
    first.close()
    with in_use.alone(str(folder)) as is_unused:
        assert is_unused
        second.make(plan)
        assert second.shortened(plan) == plan
    monkeypatch.setattr(second, "_not_before", 0.0)
    second.make(plan)
    assert shown_by(second.shortened(plan)) == folder
    second.close()


def test_nothing_stays_open_behind_it(etc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    before = set(os.listdir("/proc/self/fd"))
    made, plan = folders(tmp_path), template(etc)
    for text in "abcd":
        (etc / "certs" / "all.crt").write_text(text)
        settle()
        made.make(plan)
    assert len(set(os.listdir("/proc/self/fd")) - before) == 2
    made.close()
    assert set(os.listdir("/proc/self/fd")) <= before
