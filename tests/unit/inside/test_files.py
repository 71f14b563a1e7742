"""palyra.fs.*, the program: what it reads, lists, finds and changes of a hostile workspace. Real files, no sandbox."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from palyra.inside import beneath, changes, files
from palyra.inside.beneath import Refused
from tests.promises import promise


@pytest.fixture
def ws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "ws"
    folder.mkdir()
    (tmp_path / "secret").write_text("outside")
    monkeypatch.chdir(folder)
    monkeypatch.setattr("signal.pthread_sigmask", lambda *_: None)
    yield folder
    for name in os.listdir("/proc/self/fd"):  # the program keeps folders open until it ends, after one call
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{name}").startswith(f"{tmp_path}/"):
                os.close(int(name))


def ask(op: str, *, hidden: tuple[str, ...] = (), undo: object = None, **given: object) -> dict:
    request = {"op": op, "input": given, "workspace": os.getcwd(), "hidden": hidden, "protected": ["jenkinsfile"]}
    return files.answer(request | ({"undo": undo} if undo is not None else {}))


def refusal(op: str, **given: object) -> str:
    with pytest.raises(Refused) as caught:
        ask(op, **given)
    return caught.value.code


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def diff(name: str, old: str, new: str) -> str:
    return f"--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}\n+{new}\n"


# ── reading ──────────────────────────────────────────────────────────────────


def test_a_file_is_read_whole_with_its_digest(ws: Path):
    (ws / "x").write_bytes(b"a\nb\n")
    assert ask("read", path="x") == {
        "path": "x", "encoding": "utf-8", "text": "a\nb\n", "offset_bytes": 0, "bytes": 4, "total_bytes": 4,
        "next_offset_bytes": None, "sha256": sha256(b"a\nb\n"),
    }  # fmt: skip


def test_pages_are_cut_between_characters_and_lose_nothing(ws: Path):
    text = "aé€😀" * 7
    (ws / "x").write_text(text)
    seen, at = "", 0
    while at is not None:
        page = ask("read", path="x", offset_bytes=at, max_bytes=5)
        assert page["encoding"] == "utf-8"
        seen, at = seen + page["text"], page["next_offset_bytes"]
    assert seen == text


def test_bytes_that_are_not_text_come_as_base64(ws: Path):
    (ws / "x").write_bytes(b"\xff\x00\xfe")
    page = ask("read", path="x")
    assert (page["encoding"], base64.b64decode(page["base64"])) == ("base64", b"\xff\x00\xfe")


def test_lines_are_read_by_number(ws: Path):
    (ws / "x").write_text("1\n2\n3\n4")
    page = ask("read", path="x", start_line=2, max_lines=2)
    assert (page["text"], page["lines"], page["total_lines"], page["next_offset_bytes"]) == ("2\n3\n", 2, 4, 6)
    assert ask("read", path="x", start_line=4)["text"] == "4"
    assert ask("read", path="x", start_line=9)["text"] == ""


def test_a_huge_file_is_read_in_part_and_has_no_digest(ws: Path):
    with open(ws / "x", "wb") as file:
        file.truncate(1 << 40)
    page = ask("read", path="x", offset_bytes=1 << 39, max_bytes=8)
    assert (page["text"], page["total_bytes"], page["sha256"]) == ("\0" * 8, 1 << 40, None)
    assert refusal("read", path="x", start_line=1) == "TOO_LARGE"


@promise("workspace.file-tools")
def test_links_that_stay_inside_are_followed_and_others_are_not(ws: Path):
    (ws / "x").write_text("x")
    (ws / "in").symlink_to("x")
    (ws / "up").symlink_to("../secret")
    (ws / "absolute").symlink_to(ws / "x")
    (ws / "root").symlink_to("/proc/self/root")
    (ws / "loop").symlink_to("loop")
    assert ask("read", path="in")["text"] == "x"
    assert [refusal("read", path=name) for name in ("up", "absolute", "root/etc/passwd", "loop")] == [
        *["OUTSIDE_WORKSPACE"] * 3,
        "LINK",
    ]


@promise("workspace.file-tools")
@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "/etc/passwd", "/proc/self/root/etc/passwd", "..", "x/.."]
)
def test_a_path_that_leads_out_is_refused(ws: Path, path: str):
    (ws / "a").mkdir()
    assert refusal("read", path=path) == "OUTSIDE_WORKSPACE"


def test_an_absolute_path_within_the_workspace_is_understood_and_a_neighbour_is_not(ws: Path):
    (ws / "x").write_text("x")
    (ws.parent / "ws2").mkdir()
    (ws.parent / "ws2" / "x").write_text("no")
    assert ask("read", path=str(ws / "x"))["text"] == "x"
    assert refusal("read", path=str(ws) + "2/x") == "OUTSIDE_WORKSPACE"


@promise("workspace.file-tools")
def test_fifos_devices_and_folders_are_no_files(ws: Path):
    os.mkfifo(ws / "fifo")
    (ws / "folder").mkdir()
    assert {refusal("read", path=name) for name in ("fifo", "folder", ".")} == {"NOT_A_FILE"}
    assert refusal("write", path="fifo", text="x") == "NOT_A_FILE"
    assert refusal("write", path="folder", text="x") == "NOT_A_FILE"


def test_a_hidden_file_says_so(ws: Path):
    (ws / ".env").write_text("")
    with pytest.raises(Refused) as caught:
        ask("read", hidden=(".env",), path=".env")
    assert caught.value.code == "HIDDEN"


def test_without_openat2_no_link_is_followed_at_all(ws: Path):
    (ws / "d").mkdir()
    (ws / "d" / "x").write_text("x")
    (ws / "in").symlink_to("d")
    root = os.open(ws, os.O_PATH | os.O_DIRECTORY)
    assert os.read(beneath.walk(root, (b"d", b"x"), os.O_RDONLY), 9) == b"x"
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        beneath.walk(root, (b"in", b"x"), os.O_RDONLY)
    assert os.listdir(beneath.walk(root, (), os.O_RDONLY | os.O_DIRECTORY))


# ── races ────────────────────────────────────────────────────────────────────


@contextmanager
def swapping(ws: Path) -> Iterator[None]:
    """`door` is in turn a folder with x in it, and a link out of the workspace, as fast as one thread can."""
    (ws / "real").mkdir()
    (ws / "real" / "x").write_text("inside")
    (ws / "link").symlink_to("..")
    (ws.parent / "x").write_text("outside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name in ("real", "link"):
                os.rename(ws / name, ws / "door")
                os.rename(ws / "door", ws / name)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_folder_swapped_for_a_link_meanwhile_never_leads_out(ws: Path):
    seen = set()
    with swapping(ws):
        for _ in range(3000):
            try:
                seen.add(ask("read", path="door/x")["text"])
            except Refused as refused:
                seen.add(refused.code)
    assert seen <= {"inside", "NOT_FOUND", "OUTSIDE_WORKSPACE", "LINK", "NOT_A_FOLDER", "FAILED"}


@promise("workspace.file-tools")
def test_a_write_through_a_swapped_folder_never_lands_outside(ws: Path):
    with swapping(ws):
        for _ in range(600):
            try:
                ask("write", path="door/x", text="changed")
            except Refused:
                continue
    assert (ws.parent / "x").read_text() == "outside"
    assert sorted(os.listdir(ws.parent)) == ["secret", "ws", "x"]


# ── listing and searching ────────────────────────────────────────────────────


def test_a_listing_is_sorted_and_pages_join(ws: Path):
    for name in ("b/x", "b/y/z", "a", "c", ".git/config"):
        (ws / name).parent.mkdir(parents=True, exist_ok=True)
        (ws / name).write_text("")
    whole = [entry["path"] for entry in ask("list", recursive=True)["entries"]]
    assert whole == [".git", "a", "b", "b/x", "b/y", "b/y/z", "c"]
    paged, cursor = [], ""
    while cursor is not None:
        page = ask("list", recursive=True, max_entries=1, cursor=cursor)
        paged += [entry["path"] for entry in page["entries"]]
        cursor = page["next"]
    assert paged == whole


def test_a_listing_goes_on_although_its_place_went_away(ws: Path):
    for name in "abcd":
        (ws / name).write_text("")
    cursor = ask("list", max_entries=2)["next"]
    (ws / "b").unlink()
    assert [entry["path"] for entry in ask("list", cursor=cursor)["entries"]] == ["c", "d"]
    assert refusal("list", cursor="ä") == "BAD_CURSOR"


def test_names_of_any_bytes_are_listed(ws: Path):
    for name in (b"new\nline", b"bad\xff", b"quote\"'", "é".encode()):
        (ws / os.fsdecode(name)).write_text("")
    entries = ask("list")["entries"]
    assert [(e["path"], e.get("encoding")) for e in entries] == [
        ("bad\ufffd", "utf-8-replaced"), ("new\nline", None), ("quote\"'", None), ("é", None),
    ]  # fmt: skip


def test_a_listing_says_what_each_entry_is(ws: Path):
    (ws / "f").write_text("abc")
    (ws / "f").chmod(0o755)
    (ws / "l").symlink_to("/etc")
    os.mkfifo(ws / "p")
    assert ask("list")["entries"] == [
        {"path": "f", "type": "file", "size_bytes": 3, "executable": True},
        {"path": "l", "type": "link", "target": "/etc"},
        {"path": "p", "type": "other"},
    ]
    assert refusal("list", path="l") == "OUTSIDE_WORKSPACE"


@pytest.mark.slow
def test_a_folder_of_a_hundred_thousand_names_is_listed_in_pages(ws: Path):
    for number in range(100_000):
        os.mknod(ws / f"{number:06}")
    first = ask("list", max_entries=1000)
    second = ask("list", max_entries=1000, cursor=first["next"])
    assert (first["entries"][-1]["path"], second["entries"][0]["path"]) == ("000999", "001000")


def test_a_tree_deeper_than_any_path_is_listed_as_far_as_it_goes(ws: Path):
    folder = os.open(ws, os.O_RDONLY)
    for _ in range(200):
        os.mkdir("d" * 100, dir_fd=folder)
        folder = os.open("d" * 100, os.O_RDONLY, dir_fd=folder)
    first = ask("list", recursive=True, max_entries=1000)
    rest = ask("list", recursive=True, max_entries=1000, cursor=first["next"])
    assert len(first["entries"]) + len(rest["entries"]) == 129
    assert (rest["next"], rest["incomplete"]) == (None, True)


def test_pages_of_endless_names_stay_small(ws: Path):
    folder = os.open(ws, os.O_RDONLY)
    for _ in range(100):
        os.mkdir("d" * 250, dir_fd=folder)
        folder = os.open("d" * 250, os.O_RDONLY, dir_fd=folder)
        for number in range(3):
            os.close(os.open(f"f{number}", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    seen, cursor = 0, ""
    while cursor is not None:
        page = ask("list", recursive=True, max_entries=1000, cursor=cursor)
        assert len(json.dumps(page)) < 1 << 20
        seen, cursor = seen + len(page["entries"]), page["next"]
    assert seen == 400


def test_a_search_finds_lines_and_leaves_out_what_is_no_text(ws: Path):
    (ws / "a.py").write_text("one\ntwo x\n")
    (ws / "b.txt").write_text("x\r\nX\n")
    (ws / "bin").write_bytes(b"x\0")
    (ws / ".git").mkdir()
    (ws / ".git" / "config").write_text("x")
    (ws / "l").symlink_to("../secret")
    assert ask("search", pattern="x") == {
        "matches": [
            {"path": "a.py", "line": 2, "column": 5, "text": "two x"},
            {"path": "b.txt", "line": 1, "column": 1, "text": "x"},
        ],
        "files_searched": 2,
        "files_skipped": 1,
        "truncated": False,
    }  # fmt: skip
    assert len(ask("search", pattern="x", ignore_case=True)["matches"]) == 3
    assert [m["path"] for m in ask("search", pattern=".", regex=True, glob="*.py")["matches"]] == ["a.py", "a.py"]
    assert ask("search", pattern="x", path="a.py")["files_searched"] == 1
    assert ask("search", pattern=".", regex=True, max_matches=1)["truncated"] is True
    assert ask("search", pattern="(", regex=False)["matches"] == []
    assert refusal("search", pattern="(", regex=True) == "BAD_PATTERN"
    assert refusal("search", pattern="x", path="l") == "OUTSIDE_WORKSPACE"


# ── writing ──────────────────────────────────────────────────────────────────


def left_over(ws: Path) -> list[str]:
    return [name for _, _, names in os.walk(ws) for name in names if name.startswith(".palyra-")]


def test_a_write_replaces_a_file_whole_and_keeps_its_mode(ws: Path):
    (ws / "x").write_text("old")
    (ws / "x").chmod(0o750)
    done = ask("write", path="x", text="new", expected_sha256=sha256(b"old"))
    assert (done["created"], done["previous_sha256"]) == (False, sha256(b"old"))
    assert ((ws / "x").read_text(), stat.S_IMODE((ws / "x").stat().st_mode)) == ("new", 0o750)
    assert left_over(ws) == []


def test_a_write_asks_for_what_it_expects(ws: Path):
    (ws / "x").write_text("old")
    assert refusal("write", path="x", text="new", expected_sha256="0" * 64) == "CHANGED"
    assert refusal("write", path="x", text="new", create_only=True) == "EXISTS"
    assert refusal("write", path="y", text="new", expected_sha256="0" * 64) == "NOT_FOUND"
    assert refusal("write", path="a/b/c", text="new") == "NOT_FOUND"
    assert ((ws / "x").read_text(), os.listdir(ws)) == ("old", ["x"])
    ask("write", path="a/b/c", base64="/w==", create_dirs=True)
    assert (ws / "a" / "b" / "c").read_bytes() == b"\xff"


def test_a_write_follows_no_link_and_replaces_none(ws: Path):
    (ws / "x").write_text("x")
    (ws / "in").symlink_to("x")
    (ws / "out").symlink_to("../secret")
    (ws / "dangling").symlink_to("../planted")
    (ws / "folder").symlink_to("..")
    for name in ("in", "out", "dangling", "folder/x"):
        assert refusal("write", path=name, text="new", create_dirs=True) in ("LINK", "NOT_A_FOLDER")
    assert ((ws / "x").read_text(), (ws.parent / "secret").read_text()) == ("x", "outside")
    assert not (ws.parent / "planted").exists()


def test_another_name_of_a_file_keeps_the_old_content(ws: Path):
    """A hard link made by the owner before is readable through the workspace; writing cuts it, never through it."""
    os.link(ws.parent / "secret", ws / "x")
    assert ask("read", path="x")["text"] == "outside"
    ask("write", path="x", text="new")
    assert ((ws / "x").read_text(), (ws.parent / "secret").read_text()) == ("new", "outside")


@promise("workspace.trusted-names")
@pytest.mark.parametrize(
    "path",
    [".git/hooks/pre-commit", ".git", "sub/.git/config", ".GIT/config", ".env", ".env.local", ".envrc",
     "Jenkinsfile", "JENKINSFILE", ".g\u200cit/config", ".git\ufe0f/config", "Jenkins\u202efile", ".git./config",
     "jenkinsfile .", ".\u2060env", "\uff4aenkinsfile"],
)  # fmt: skip
def test_names_that_other_programs_trust_are_refused_before_they_exist(ws: Path, path: str):
    assert refusal("write", path=path, text="x", create_dirs=True) == "PROTECTED"
    assert refusal("apply_patch", patch=f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n") == "PROTECTED"
    assert os.listdir(ws) == []


# ── patches ──────────────────────────────────────────────────────────────────


def test_a_patch_over_several_files_is_applied_and_undone(ws: Path):
    (ws / "m").write_text("a\n")
    (ws / "m").chmod(0o755)
    (ws / "gone").write_text("g\n")
    (ws / "old").write_text("r\n")
    text = (
        diff("m", "a", "b")
        + "--- /dev/null\n+++ b/new/n\n@@ -0,0 +1 @@\n+n\n"
        + "--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n"
        + "diff --git a/old b/name\nsimilarity index 90%\nrename from old\nrename to name\n"
        + "--- a/old\n+++ b/name\n@@ -1 +1 @@\n-r\n+R\n"
    )
    before = {p.name: p.read_text() for p in ws.iterdir()}
    done = ask("apply_patch", patch=text)
    assert [(f["path"], f["change"]) for f in done["files"]] == [
        ("m", "modified"), ("new/n", "created"), ("gone", "deleted"), ("old", "deleted"), ("name", "created"),
    ]  # fmt: skip
    after = {str(p.relative_to(ws)): p.read_text() for p in ws.rglob("*") if p.is_file()}
    assert after == {"m": "b\n", "new/n": "n\n", "name": "R\n"}
    assert stat.S_IMODE((ws / "m").stat().st_mode) == 0o755
    ask("apply_patch", undo=done["before"])
    assert {p.name: p.read_text() for p in ws.iterdir() if p.is_file()} == before
    assert stat.S_IMODE((ws / "m").stat().st_mode) == 0o755
    assert left_over(ws) == []


def test_an_undo_that_would_lose_later_work_is_refused(ws: Path):
    (ws / "x").write_text("a\n")
    done = ask("apply_patch", patch=diff("x", "a", "b"))
    (ws / "x").write_text("later\n")
    with pytest.raises(Refused) as caught:
        ask("apply_patch", undo=done["before"])
    assert (caught.value.code, (ws / "x").read_text()) == ("CHANGED", "later\n")


def test_one_hunk_that_does_not_fit_changes_nothing_at_all(ws: Path):
    (ws / "x").write_text("a\n")
    (ws / "y").write_text("other\n")
    made = "--- /dev/null\n+++ b/sub/new\n@@ -0,0 +1 @@\n+n\n"
    assert refusal("apply_patch", patch=diff("x", "a", "b") + made + diff("y", "a", "b")) == "PATCH_FAILED"
    assert ((ws / "x").read_text(), sorted(os.listdir(ws))) == ("a\n", ["x", "y"])


def test_a_rename_that_fails_midway_is_taken_back(ws: Path, monkeypatch: pytest.MonkeyPatch):
    for name in "xyz":
        (ws / name).write_text("a\n")
    real, count = changes.rename, [0]

    def break_third(*given: object) -> None:
        count[0] += 1
        if count[0] == 3:
            raise OSError(28, "No space left on device")
        real(*given)

    monkeypatch.setattr(changes, "rename", break_third)
    gone = "--- a/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
    made = "--- /dev/null\n+++ b/d/e/new\n@@ -0,0 +1 @@\n+n\n"
    assert refusal("apply_patch", patch=diff("x", "a", "b") + gone + made + diff("z", "a", "b")) == "NO_SPACE"
    assert {p.name: p.read_text() for p in ws.iterdir()} == {"x": "a\n", "y": "a\n", "z": "a\n"}


def test_a_file_changed_between_look_and_rename_is_noticed_and_kept(ws: Path, monkeypatch: pytest.MonkeyPatch):
    (ws / "x").write_text("a\n")
    real = changes.rename

    def change_first(*given: object) -> None:
        monkeypatch.setattr(changes, "rename", real)
        (ws / "new").write_text("theirs\n")
        os.rename(ws / "new", ws / "x")
        real(*given)

    monkeypatch.setattr(changes, "rename", change_first)
    assert refusal("apply_patch", patch=diff("x", "a", "b")) == "CHANGED"
    assert ((ws / "x").read_text(), os.listdir(ws)) == ("theirs\n", ["x"])


def test_file_systems_without_exchange_are_served_by_links(ws: Path):
    (ws / "new").write_text("new")
    (ws / "x").write_text("old")
    folder = os.open(ws, os.O_RDONLY)
    changes._rename_by_links(folder, b"new", b"x", changes.EXCHANGE)
    assert ((ws / "x").read_text(), (ws / "new").read_text()) == ("new", "old")
    with pytest.raises(FileExistsError):
        changes._rename_by_links(folder, b"new", b"x", changes.NOREPLACE)
    changes._rename_by_links(folder, b"new", b"y", changes.NOREPLACE)
    assert sorted(os.listdir(ws)) == ["x", "y"]


@promise("workspace.file-tools")
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("../secret", "OUTSIDE_WORKSPACE"),
        ("sub/../../secret", "OUTSIDE_WORKSPACE"),
        ("/etc/hostname", "OUTSIDE_WORKSPACE"),
        ("/dev/null/x", "OUTSIDE_WORKSPACE"),
        ("link", "LINK"),
        ("folder/x", "NOT_A_FOLDER"),
    ],
)
def test_a_patch_that_names_something_outside_is_refused(ws: Path, name: str, code: str):
    (ws / "sub").mkdir()
    (ws / "link").symlink_to("../secret")
    (ws / "folder").symlink_to("..")
    assert refusal("apply_patch", patch=f"--- {name}\n+++ {name}\n@@ -1 +1 @@\n-outside\n+in\n") in (code, "LINK")
    assert refusal("apply_patch", patch=f"--- /dev/null\n+++ {name}\n@@ -0,0 +1 @@\n+in\n") in (code, "LINK")
    renamed = f"diff --git a/a b/b\nrename from a\nrename to {name}\n"
    (ws / "a").write_text("a")
    assert refusal("apply_patch", patch=renamed) in (code, "LINK", "EXISTS")
    assert (ws.parent / "secret").read_text() == "outside"


def test_a_file_that_is_to_be_deleted_must_be_known_whole(ws: Path):
    (ws / "x").write_text("a\nb\n")
    assert refusal("apply_patch", patch="--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n") == "PATCH_FAILED"


def test_a_file_too_large_to_be_kept_is_not_changed(ws: Path):
    with open(ws / "x", "wb") as file:
        file.truncate(changes.MAX_FILE_BYTES + 1)
    assert refusal("write", path="x", text="") == "TOO_LARGE"
