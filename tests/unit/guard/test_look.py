"""What the disk says: links are followed to their end, nothing missing raises, programs come from the fixed path."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palyra.guard import look_guarded, look_links
from palyra.guard.look import ChildIdentity, Looker
from palyra.guard.paths import candidates
from palyra.model.sights import ExecutableSight, LookRequest, PathCandidate, PathSight, Sights
from tests.promises import promise


@pytest.fixture
def looker(tmp_path: Path) -> Looker:
    return Looker(home=str(tmp_path / "me"), state_home=str(tmp_path / "state"))


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    folder = (tmp_path / "ws").resolve()
    folder.mkdir()
    (folder / "sub").mkdir()
    (folder / "file").write_text("x")
    return folder


def look(looker: Looker, ws: Path, *args: str, cwd: str = "", command: str = "tool", path: str = "", also=()) -> Sights:
    return looker.look(
        LookRequest(
            workspace=str(ws),
            cwd=cwd,
            command=command,
            also=also,
            search_path=(path,) if path else (),
            candidates=candidates(args),
        )
    )


def ends(sights: Sights) -> list[tuple[str, bool]]:
    return [(sight.resolved, sight.exists) for sight in sights.paths]


# ── paths ────────────────────────────────────────────────────────────────────


def test_a_path_ends_where_it_says(looker, ws):
    assert ends(look(looker, ws, "sub/../file", "./new/x", str(ws / "file"))) == [
        (f"{ws}/file", True),
        (f"{ws}/new/x", False),
        (f"{ws}/file", True),
    ]


def test_relative_paths_stand_on_cwd(looker, ws):
    seen = look(looker, ws, "../file", cwd="sub")
    assert seen.cwd == PathSight(argument=-1, text="sub", resolved=f"{ws}/sub", exists=True)
    assert ends(seen) == [(f"{ws}/file", True)]


def test_a_bare_word_that_names_nothing_is_no_path(looker, ws):
    assert look(looker, ws, "status").paths == ()


@promise("commands.outside-paths")
def test_a_link_out_of_the_workspace_is_followed(looker, ws):
    (ws / "link").symlink_to("/etc/passwd")
    assert ends(look(looker, ws, "link")) == [("/etc/passwd", True)]


def test_a_dangling_link_is_followed_to_its_target(looker, ws, tmp_path):
    (ws / "link").symlink_to(tmp_path / "outside" / "new")
    assert ends(look(looker, ws, "link")) == [(f"{tmp_path.resolve()}/outside/new", False)]


def test_a_link_to_a_folder_in_the_middle_is_followed(looker, ws, tmp_path):
    (tmp_path / "outside").mkdir()
    (ws / "sub" / "door").symlink_to("../../outside")
    assert ends(look(looker, ws, "sub/door/secret", "sub/door/../x")) == [
        (f"{tmp_path.resolve()}/outside/secret", False),
        (f"{tmp_path.resolve()}/x", False),
    ]


@promise("commands.outside-paths")
def test_a_chain_of_links_is_followed(looker, ws):
    (ws / "a").symlink_to("b")
    (ws / "b").symlink_to("sub/c")
    (ws / "sub" / "c").symlink_to("/etc/shadow")
    assert [end for end, _ in ends(look(looker, ws, "a"))] == ["/etc/shadow"]


def test_a_loop_of_links_ends(looker, ws):
    (ws / "a").symlink_to("b")
    (ws / "b").symlink_to("a")
    assert [exists for _, exists in ends(look(looker, ws, "a"))] == [False]


def test_an_address_that_is_really_a_folder_is_a_path(looker, ws):
    (ws / "http:").mkdir()
    (ws / "http:" / "x").symlink_to("/etc/passwd")
    assert ends(look(looker, ws, "http://x")) == [("/etc/passwd", True)]


def test_tilde_is_a_home_folder(looker, ws, tmp_path):
    assert [end for end, _ in ends(look(looker, ws, "~/.ssh/id", "~"))] == [
        f"{tmp_path.resolve()}/me/.ssh/id",
        f"{tmp_path.resolve()}/me",
    ]
    assert [end for end, _ in ends(look(looker, ws, "~root/x"))] == ["/root/x"]
    assert [end for end, _ in ends(look(looker, ws, "~no-such-user/x"))] == [f"{ws}/~no-such-user/x"]


def test_devices_and_descriptors_are_not_followed(looker, ws):
    paths = ["/dev/stdin", "/dev/null", "/dev/fd/3", "/dev/fd"]
    assert [end for end, _ in ends(look(looker, ws, *paths))] == paths


def test_odd_paths_are_facts_not_exceptions(looker, ws):
    odd = ["file/below", "x" * 5000 + "/y", "/root/closed/x", "a\0/b", "\ud800/x", "\udcff/x", "./" + "a/" * 2000]
    request = LookRequest(
        workspace=str(ws),
        cwd="",
        command="x",
        candidates=tuple(PathCandidate(argument=at, text=text) for at, text in enumerate(odd)),
    )
    assert [sight.exists for sight in looker.look(request).paths] == [False] * len(odd)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=12))
def test_any_request_is_looked_at_without_failing(looker, ws, text, cwd, command):
    request = LookRequest(
        workspace=str(ws),
        cwd=cwd,
        command=command,
        search_path=("/usr/bin",),
        candidates=(PathCandidate(argument=0, text=text),),
    )
    for sight in looker.look(request).paths:
        assert sight.resolved.startswith("/")
        assert ".." not in sight.resolved.split("/")


@promise("commands.outside-paths")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.lists(st.sampled_from(["..", ".", "", "sub", "file", "in", "out", "loop", "no"]), max_size=7))
def test_following_agrees_with_the_system(looker, ws, parts):
    for name, target in (("in", "sub"), ("out", ".."), ("loop", "loop")):
        if not os.path.lexists(ws / name):
            (ws / name).symlink_to(target)
    text = "./" + "/".join(parts)
    real = os.path.realpath(ws / text)
    for end, exists in ends(look(looker, ws, text)):
        assert end == real or not os.path.exists(ws / text)
        assert exists or not os.path.exists(ws / text)


# ── the workspace ────────────────────────────────────────────────────────────


@pytest.mark.skipif(os.getuid() != 0, reason="only a root engine has to start a program as nobody")
def test_a_workspace_of_roots_says_whether_nobody_may_enter_it(looker):
    """Each folder on the way counts."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as top:
        inner = Path(top).resolve() / "inner"
        inner.mkdir()

        def seen(outer: int, own: int) -> bool:
            os.chmod(top, outer)
            inner.chmod(own)
            return looker.look(LookRequest(workspace=str(inner), cwd="", command="x")).workspace.open_to_all

        modes = ((0o755, 0o755), (0o700, 0o755), (0o755, 0o750), (0o711, 0o755), (0o755, 0o751))
        assert [seen(*pair) for pair in modes] == [True, False, False, True, False]
        os.chown(inner, 65534, 65534)
        assert seen(0o700, 0o700), "its owner's programs run as its owner"


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "No workspace was given."),
        ("nowhere", "The workspace {place!r} does not exist or cannot be entered."),
        ("ws/file", "The workspace is not a folder."),
        ("me", "The workspace is a home folder itself."),
        ("state/x", "The workspace lies inside Palyra's own state."),
        (".", "The workspace contains the home folder."),
    ],
)
def test_what_cannot_be_a_workspace_is_said(looker, ws, tmp_path, name, problem):
    (tmp_path / "me").mkdir()
    (tmp_path / "state" / "x").mkdir(parents=True)
    sight = looker.look(LookRequest(workspace=str(tmp_path / name) if name else "", cwd="", command="x")).workspace
    assert sight.problem == problem.format(place=str(tmp_path / name))


def test_a_link_to_a_system_folder_is_no_workspace(looker, tmp_path):
    (tmp_path / "innocent").symlink_to("/etc")
    sight = look(looker, tmp_path / "innocent").workspace
    assert (sight.path, sight.problem) == ("/etc", "The workspace /etc is a system folder.")


def test_protected_and_masked_paths_are_those_that_exist(looker, ws):
    (ws / ".git" / "hooks").mkdir(parents=True)
    (ws / ".git" / "config").write_text("")
    (ws / ".git" / "modules" / "lib" / "a" / "hooks").mkdir(parents=True)
    (ws / ".git" / "modules" / "lib" / "a" / "HEAD").write_text("")
    (ws / ".git" / "modules" / "lib" / "a" / "config").write_text("")
    for name in (".github", ".vscode", ".env.d"):
        (ws / name).mkdir()
    for name in (".gitlab-ci.yml", ".env", ".env.local", ".envrc", ".env.example", "env", "README"):
        (ws / name).write_text("")
    status = ws.stat()
    sight = look(looker, ws).workspace
    assert (sight.path, sight.problem, sight.owner_uid, sight.owner_gid) == (str(ws), "", status.st_uid, status.st_gid)
    assert [path.removeprefix(f"{ws}/") for path in sight.protected] == [
        ".env.d",
        ".env.example",
        ".git/config",
        ".git/hooks",
        ".git/modules/lib/a/config",
        ".git/modules/lib/a/hooks",
        ".github",
        ".gitlab-ci.yml",
        ".vscode",
    ]
    assert [path.removeprefix(f"{ws}/") for path in sight.masked] == [".env", ".env.local", ".envrc"]


def test_the_git_file_of_a_worktree_is_protected(looker, ws):
    (ws / ".git").write_text("gitdir: /elsewhere/.git/worktrees/x\n")
    assert look(looker, ws).workspace.protected == (f"{ws}/.git",)


def test_a_protected_link_is_its_target_inside_and_nothing_outside(looker, ws, tmp_path):
    (tmp_path / "outside").mkdir()
    (ws / ".vscode").symlink_to(tmp_path / "outside")
    (ws / ".github").symlink_to("sub")
    (ws / ".env").symlink_to("file")
    (ws / ".env.out").symlink_to("/etc/passwd")
    (ws / ".idea").symlink_to("nowhere")
    (ws / ".husky").symlink_to(".")
    sight = look(looker, ws).workspace
    assert (sight.protected, sight.masked) == ((f"{ws}/sub",), (f"{ws}/file",))


def test_a_pipe_with_a_protected_name_is_left_out(looker, ws):
    os.mkfifo(ws / ".env")
    sight = look(looker, ws).workspace
    assert (sight.protected, sight.masked) == ((), ())


def test_more_env_files_than_can_be_hidden_is_a_problem(looker, ws):
    for number in range(65):
        (ws / f".env.{number}").write_text("")
    assert look(looker, ws).workspace.problem == "The workspace contains more than 64 .env files to be hidden."


@pytest.mark.parametrize("place", [".", ".git/modules"])
def test_a_crowd_of_files_that_would_hold_everybody_up_is_a_problem(ws, place):
    (ws / place).mkdir(parents=True, exist_ok=True)
    for number in range(60):
        (ws / place / f"x{number}").write_text("")
    allowance = look_links.Allowance(entries=50)
    look_guarded.find_guarded(str(ws), allowance)
    assert allowance.problem == (look_guarded.TOO_FULL if place == "." else look_links.TOO_MANY)


@pytest.fixture
def own() -> Iterator[Path]:
    """A workspace of a user who may not look everywhere, and that user."""
    folder = Path(tempfile.mkdtemp()).resolve()
    was = os.geteuid()
    if was == 0:
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
    try:
        for place in (".git/hooks", ".git/modules/m/hooks", ".github", "lib/.git/hooks", "deep/lib/.git/hooks"):
            (folder / place).mkdir(parents=True)
        (folder / ".git" / "modules" / "m" / "HEAD").touch()
        (folder / ".env").write_text("SECRET")
        (folder / ".vscode").symlink_to("deep")
        yield folder
    finally:
        if was == 0:
            os.seteuid(was)
        for place, _, _ in os.walk(folder):
            os.chmod(place, 0o700)
        shutil.rmtree(folder)


OPEN = {".git/hooks", ".git/modules/m/hooks", ".github", "lib/.git/hooks", "deep"}
BELOW = {"deep/lib/.git/hooks"}


@promise("workspace.removed-rights")
@pytest.mark.parametrize(
    ("place", "closed"),
    [
        (".git", OPEN - {".git/hooks", ".git/modules/m/hooks"} | BELOW | {".git"}),
        (".git/modules", OPEN - {".git/modules/m/hooks"} | BELOW | {".git/modules"}),
        (".git/modules/m", OPEN - {".git/modules/m/hooks"} | BELOW | {".git/modules/m"}),
        ("lib", OPEN - {"lib/.git/hooks"} | BELOW | {"lib"}),
        ("lib/.git", OPEN - {"lib/.git/hooks"} | BELOW | {"lib/.git"}),
        ("deep/lib", OPEN | {"deep/lib"}),
    ],
)
def test_a_folder_that_cannot_be_looked_into_is_closed_itself(own: Path, place: str, closed: set[str]) -> None:
    """A program that took its own rights away had nothing closed in its next call, and gave them back there."""
    (own / place).chmod(0)
    allowance = look_links.Allowance()
    protected, masked = look_guarded.find_guarded(str(own), allowance)
    assert {os.path.relpath(path, own) for path in protected} == closed
    assert (masked, allowance.problem) == ((f"{own}/.env",), "")
    (own / place).chmod(0o700)


@promise("workspace.removed-rights")
@pytest.mark.parametrize("mode", [0o000, 0o300, 0o600])
def test_nothing_runs_in_a_workspace_that_cannot_be_looked_into(own: Path, mode: int) -> None:
    own.chmod(mode)
    allowance = look_links.Allowance()
    look_guarded.find_guarded(str(own), allowance)
    assert allowance.problem == look_guarded.SHUT
    own.chmod(0o700)


def test_a_folder_of_another_users_that_cannot_be_looked_into_closes_nothing(own: Path, monkeypatch) -> None:
    """A database's, for instance: no program of ours may open it either."""
    (own / "lib").chmod(0)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    allowance = look_links.Allowance()
    protected, _ = look_guarded.find_guarded(str(own), allowance)
    assert {os.path.relpath(path, own) for path in protected} == OPEN - {"lib/.git/hooks"} | BELOW
    assert allowance.problem == ""
    (own / "lib").chmod(0o700)


def test_a_crowd_beside_the_hooks_holds_nobody_up_because_nobody_lists_it(ws):
    (ws / ".git" / "hooks").mkdir(parents=True)
    for number in range(60):
        (ws / ".git" / f"x{number}").write_text("")
    allowance = look_links.Allowance(entries=50)
    assert look_guarded.find_guarded(str(ws), allowance) == ((f"{ws}/.git/hooks",), ())
    assert allowance.problem == ""


def test_a_crowd_below_the_top_hides_no_repository_of_the_first_level(ws, monkeypatch):
    monkeypatch.setattr(look_guarded, "Allowance", partial(look_links.Allowance, entries=5))
    for number in range(20):
        (ws / "crowd" / f"{number}").mkdir(parents=True)
    (ws / "lib" / ".git" / "hooks").mkdir(parents=True)
    allowance = look_links.Allowance()
    assert look_guarded.find_guarded(str(ws), allowance) == ((f"{ws}/lib/.git/hooks",), ())
    assert allowance.problem == ""


# ── executables ──────────────────────────────────────────────────────────────


def install(folder: Path, name: str, content: bytes = b"\x7fELF...", mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_bytes(content)
    program.chmod(mode)
    return program


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "bin"
    folder.mkdir()
    return folder


def test_a_program_is_found_on_the_fixed_path_with_its_digest(looker, ws, bin_folder):
    program = install(bin_folder, "tool")
    assert look(looker, ws, path=str(bin_folder)).executable == ExecutableSight(
        name="tool", path=str(program), sha256=hashlib.sha256(b"\x7fELF...").hexdigest()
    )


def test_a_program_planted_in_cwd_is_not_found(looker, ws):
    install(ws, "tool")
    install(ws / "sub", "tool")
    request = LookRequest(workspace=str(ws), cwd="sub", command="tool", search_path=("", ".", "sub", "relative"))
    assert looker.look(request).executable == ExecutableSight(name="tool", path="")


def test_a_program_in_the_workspace_could_be_written_by_the_agent(looker, ws):
    install(ws / "sub", "tool")
    assert look(looker, ws, path=str(ws / "sub")).executable.agent_writable


def test_a_program_that_is_a_link_through_the_workspace_could_be_too(looker, ws, bin_folder):
    install(bin_folder, "real")
    (ws / "link").symlink_to(bin_folder / "real")
    (bin_folder / "tool").symlink_to(ws / "link")
    sight = look(looker, ws, path=str(bin_folder)).executable
    assert (sight.path, sight.agent_writable) == (str(bin_folder / "real"), True)


def test_a_program_in_a_folder_open_to_all_could_be_replaced(looker, ws, bin_folder):
    install(bin_folder, "tool")
    bin_folder.chmod(0o777)
    assert look(looker, ws, path=str(bin_folder)).executable.agent_writable


def test_a_program_of_the_childs_own_could_be_written(ws, bin_folder, tmp_path):
    install(bin_folder, "tool")
    owner = bin_folder.stat().st_uid
    child = ChildIdentity(uid=owner or 12345, gids=frozenset())
    os.chown(bin_folder / "tool", child.uid if os.getuid() == 0 else -1, -1)
    watchful = Looker(home="", state_home="", child=child)
    assert look(watchful, ws, path=str(bin_folder)).executable.agent_writable


@pytest.mark.parametrize(("content", "mode"), [(b"\x7fELF", 0o644), (None, 0)])
def test_what_cannot_be_run_is_passed_over(looker, ws, bin_folder, content, mode):
    if content is None:
        (bin_folder / "tool").mkdir()
    else:
        install(bin_folder, "tool", content, mode)
    assert look(looker, ws, path=str(bin_folder)).executable.path == ""


@pytest.mark.parametrize("name", ["", "..", ".", "a/b", "/bin/sh", "a\0b", "x" * 300, "\ud800"])
def test_what_is_no_name_is_not_found(looker, ws, name):
    assert look(looker, ws, command=name, path="/usr/bin").executable == ExecutableSight(name=name, path="")


@pytest.mark.parametrize(
    ("content", "shebang"),
    [
        (b"#!/usr/bin/env -S python3 -u\n", "python3"), (b"#!/bin/sh\n", "sh"), (b"echo no first line\n", "sh"),
        (b"", "sh"),
        (b"\x7fELF\x02", ""), (b"MZ\x90", ""), (b"\xcf\xfa\xed\xfe", ""),
    ],
)  # fmt: skip
def test_scripts_are_told_from_binaries(looker, ws, bin_folder, content, shebang):
    install(bin_folder, "tool", content)
    assert look(looker, ws, path=str(bin_folder)).executable.shebang == shebang


def test_a_changed_program_has_another_digest(looker, ws, bin_folder):
    install(bin_folder, "tool", b"\x7fELF one")
    first = look(looker, ws, path=str(bin_folder)).executable.sha256
    assert look(looker, ws, path=str(bin_folder)).executable.sha256 == first
    (bin_folder / "tool").unlink()
    install(bin_folder, "tool", b"\x7fELF two!")
    assert look(looker, ws, path=str(bin_folder)).executable.sha256 == hashlib.sha256(b"\x7fELF two!").hexdigest()


def test_what_a_wrapper_runs_is_looked_up_the_same_way(looker, ws, bin_folder):
    install(bin_folder, "tool")
    seen = look(looker, ws, path=str(bin_folder), command="missing", also=("tool", "none"))
    assert [(sight.name, bool(sight.path)) for sight in (seen.executable, *seen.also)] == [
        ("missing", False),
        ("tool", True),
        ("none", False),
    ]


def replaced_by_a_link(ws, tmp_path):
    os.rename(ws, tmp_path / "moved")
    ws.symlink_to(tmp_path / "moved")


def parent_replaced_by_a_link(ws, tmp_path):
    os.rename(ws.parent, f"{ws.parent}.moved")
    ws.parent.symlink_to(f"{ws.parent}.moved")


def removed(ws, tmp_path):
    shutil.rmtree(ws)


def another_folder_of_that_name(ws, tmp_path):
    os.rename(ws, tmp_path / "moved")
    ws.mkdir()
    (ws / ".env.local").touch()


def a_file_of_that_name(ws, tmp_path):
    shutil.rmtree(ws)
    ws.touch()


def somebody_elses(ws, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root gives folders away")
    os.chown(ws, 12345, 54321)


def new_names_in_it(ws, tmp_path):
    (ws / ".env").write_text("SECRET=1")
    (ws / ".mcp.json").touch()


def a_repository_in_it(ws, tmp_path):
    (ws / "sub" / ".git" / "hooks").mkdir(parents=True)


def nothing(ws, tmp_path):
    pass


CHANGES = [
    replaced_by_a_link,
    parent_replaced_by_a_link,
    removed,
    another_folder_of_that_name,
    a_file_of_that_name,
    somebody_elses,
    new_names_in_it,
    a_repository_in_it,
    nothing,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_workspace_that_was_seen_before_is_seen_as_it_is_now(tmp_path, change):
    """However it was swapped between two calls of one run."""
    ws = tmp_path.resolve() / "deep" / "ws"
    ws.mkdir(parents=True)
    request = LookRequest(workspace=str(ws), cwd="", command="tool")
    looker = Looker(home="/nowhere", state_home="/nowhere-else")
    first = [looker.look(request) for _ in range(3)]
    assert first[0] == first[1] == first[2]
    change(ws, tmp_path.resolve())
    for _ in range(2):
        assert looker.look(request) == Looker(home="/nowhere", state_home="/nowhere-else").look(request)
    assert (looker.look(request) == first[0]) == (change is nothing)
