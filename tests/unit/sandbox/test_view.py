from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Unenforceable
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.view import View, closings, is_within, view_of
from tests.promises import promise
from tests.unit.sandbox.jobs import make_host, make_job

WS = "/home/alice/project"


def sight(**changes: object) -> WorkspaceSight:
    return WorkspaceSight(**({"path": WS, "owner_uid": 1001, "owner_gid": 1001} | changes))


def test_a_plain_job_sees_system_folders_and_its_workspace_alone() -> None:
    assert view_of(make_job(), make_host()) == View(
        readable=(), parents=(), protected=(), hidden_files=(), hidden_folders=()
    )


def test_every_parent_of_a_closed_path_becomes_a_mount() -> None:
    job = make_job(
        workspace=sight(
            protected=(f"{WS}/.git/hooks", f"{WS}/.git/modules/a/config", f"{WS}/.github"),
            masked=(f"{WS}/.env", f"{WS}/deep/er/.env"),
        )
    )
    view = view_of(job, make_host())
    assert view.parents == (
        f"{WS}/.git",
        f"{WS}/.git/modules",
        f"{WS}/.git/modules/a",
        f"{WS}/deep",
        f"{WS}/deep/er",
    )
    assert view.hidden_files == (f"{WS}/.env", f"{WS}/deep/er/.env")


def test_a_copy_is_shown_only_of_what_is_protected_and_can_be_written() -> None:
    copied = sight(protected=(f"{WS}/.git/config", f"{WS}/.git/hooks"), copied=(f"{WS}/.git/config", f"{WS}/file"))
    view = view_of(make_job(workspace=copied), make_host())
    assert closings(view) == (
        ("parent", f"{WS}/.git"),
        ("copied", f"{WS}/.git/config"),
        ("protected", f"{WS}/.git/hooks"),
    )
    assert closings(view_of(make_job(workspace=copied, workspace_writable=False), make_host())) == ()


def test_a_link_to_what_is_closed_is_closed_as_a_link() -> None:
    job = make_job(workspace=sight(protected=(f"{WS}/conf/real",), links=(f"{WS}/tools/shared", f"{WS}/link")))
    assert closings(view_of(job, make_host())) == (
        ("parent", f"{WS}/conf"),
        ("parent", f"{WS}/tools"),
        ("protected", f"{WS}/conf/real"),
        ("link", f"{WS}/link"),
        ("link", f"{WS}/tools/shared"),
    )


@promise("git.operator-settings")
def test_what_nothing_can_close_is_refused_to_who_may_write_and_to_nobody_else() -> None:
    told = sight(unclosable="Too many names.", remedy="Take some away.")
    with pytest.raises(Unenforceable, match="Too many names") as refused:
        view_of(make_job(workspace=told), make_host())
    assert refused.value.hint == "Take some away."
    view_of(make_job(workspace=told, workspace_writable=False), make_host())


def test_a_protected_folder_stays_read_only_even_where_it_is_a_parent() -> None:
    view = view_of(make_job(workspace=sight(protected=(f"{WS}/.git", f"{WS}/.git/hooks"))), make_host())
    assert view.parents == ()
    assert view.protected == (f"{WS}/.git", f"{WS}/.git/hooks")


def test_palyras_state_is_hidden_where_the_workspace_or_a_granted_folder_holds_it() -> None:
    inside = view_of(make_job(), make_host(state_home=f"{WS}/.state/palyra"))
    assert inside.hidden_folders == (f"{WS}/.state/palyra",)
    assert inside.parents == (f"{WS}/.state",)
    granted = view_of(make_job(read_roots=("/home/alice",)), make_host())
    assert granted.readable == ("/home/alice",)
    assert granted.hidden_folders == ("/home/alice/.local/state/palyra",)


def test_a_toolchains_folder_is_shown_but_never_a_whole_home() -> None:
    cargo = view_of(make_job(program="/home/alice/.cargo/bin/cargo"), make_host())
    assert cargo.readable == ("/home/alice/.cargo/bin",)
    stray = view_of(make_job(program="/home/alice/tool"), make_host())
    assert stray.readable == ("/home/alice/tool",)
    inner = view_of(make_job(program="/home/alice/.rustup/bin/rustc", read_roots=("/home/alice/.rustup",)), make_host())
    assert inner.readable == ("/home/alice/.rustup",)


def test_granted_folders_inside_what_is_visible_are_not_mounted_again() -> None:
    roots = ("/usr/share/doc", f"{WS}/vendor", "/opt/tools", "/opt/tools/lib")
    assert view_of(make_job(read_roots=roots), make_host()).readable == ("/opt/tools",)


@pytest.mark.parametrize(
    "path",
    ["/", "/home", "/home/alice", "/tmp", "/var", "/etc", "/usr", "/usr/src/x", "/proc/1", "/dev/shm", "relative",
     "/home/alice/../bob", "/home/alice/.local/state/palyra", "/home/alice/.local/state/palyra/artifacts", ""],
)  # fmt: skip
def test_a_workspace_that_would_open_the_sandbox_is_refused(path: str) -> None:
    with pytest.raises(Unenforceable) as refusal:
        view_of(make_job(workspace=sight(path=path)), make_host())
    assert refusal.value.missing == ("FS_ISOLATED",)
    assert refusal.value.hint


def test_a_workspace_in_shared_memory_is_as_good_as_one_in_tmp() -> None:
    assert view_of(make_job(workspace=sight(path="/dev/shm/w")), make_host()).readable == ()
    with pytest.raises(Unenforceable):
        view_of(make_job(workspace=sight(path="/dev/shm/../sda")), make_host())


def test_whoever_works_below_usr_is_told_why_not() -> None:
    with pytest.raises(Unenforceable) as refusal:
        view_of(make_job(workspace=sight(path="/usr/src/app")), make_host())
    assert refusal.value.hint.startswith("Every sandbox shows all of /usr to its programs")


@pytest.mark.parametrize(
    "root", ["/", "/home", "/tmp", "/etc", "/proc", "/proc/1", "/dev", "/sys/fs", "/var", "x",
             "/home/alice/.local/state/palyra", "/home/alice/.local/state/palyra/keys"]
)  # fmt: skip
def test_a_granted_folder_that_would_open_the_sandbox_is_refused(root: str) -> None:
    with pytest.raises(Unenforceable):
        view_of(make_job(read_roots=(root,)), make_host())


@given(st.lists(st.text("ab./", min_size=1, max_size=6), max_size=4))
def test_within_is_judged_by_component(parts: list[str]) -> None:
    folder = "/a/b"
    path = folder + "".join(parts)
    assert is_within(path, folder) == (path == folder or path.startswith("/a/b/"))
