"""What the probe remembers and finds. The sandbox itself is looked at in tests/conformance."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.errors import Unenforceable
from palyra.model.host import Blocker, BubblewrapFacts, HostFacts, Platform
from palyra.sandbox import probe as under_test
from palyra.sandbox import probe_bwrap, probe_kernel
from palyra.sandbox.planner import BACKENDS, plan_job
from palyra.sandbox.probe import CACHE_NAME, probe
from palyra.sandbox.probe_bwrap import Isolates
from palyra.sandbox.probe_launcher import Launcher
from tests.unit.sandbox.jobs import make_job

FOUND = Isolates(
    bubblewrap=BubblewrapFacts(path="/usr/bin/bwrap", version="9.9", disable_userns=True),
    pid_max_per_namespace=True,
    starter=False,
)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The trial is counted instead of run; its answer is the last element."""
    seen: list[object] = [FOUND]

    def look(host: HostFacts, bwrap: str, *, listeners: str) -> object:
        seen.insert(0, bwrap)
        return seen[-1]

    monkeypatch.setattr(probe_bwrap, "try_bwrap", look)
    monkeypatch.setattr(under_test, "find_launcher", lambda name, folders: Launcher(path="/bin/sh"))
    monkeypatch.setattr(probe_kernel, "try_cgroup_kill", lambda limits: "/g")
    return seen


def ask(state: Path, **changes: bool) -> HostFacts:
    return probe(home="/home/alice", state_home=str(state), search_path=(), **changes)


def test_what_was_found_is_remembered(tmp_path: Path, looks: list[object]) -> None:
    first, again = ask(tmp_path), ask(tmp_path)
    assert first == again
    assert (len(looks), first.pid_max_per_namespace, first.cgroup_kill) == (2, True, "/g")
    assert first.bubblewrap is not None
    assert first.bubblewrap.version == "9.9"


@pytest.mark.parametrize("named", ["podman", "docker", "seatbelt"])
def test_a_backend_that_is_named_leaves_the_others_out(tmp_path: Path, looks: list[object], named: str) -> None:
    """A call that it cannot serve is then refused, with this as the way out."""
    host = probe(home="/home/alice", state_home=str(tmp_path), search_path=(), backend=named)
    assert (host.bubblewrap, host.container) == (None, None)
    fixes = {blocker.backend: blocker.fix for blocker in host.blockers}
    assert 'backend = "auto"' in fixes["bubblewrap"]
    assert named == "seatbelt" or "container_image" in fixes[named]
    job = make_job()
    with pytest.raises(Unenforceable) as refused:
        plan_job(job, host)
    assert 'backend = "auto"' in (refused.value.hint or "")


@pytest.mark.parametrize("named", ["auto", "bubblewrap"])
def test_bubblewrap_is_taken_by_itself_or_by_its_name(tmp_path: Path, looks: list[object], named: str) -> None:
    image = "sha256:" + "a" * 64 if named == "bubblewrap" else ""
    host = probe(home="/home/alice", state_home=str(tmp_path), search_path=(), backend=named, container_image=image)
    assert host.bubblewrap is not None
    assert (host.container, host.blockers) == (None, ()), "no container engine is asked"


def test_a_fresh_look_does_not_trust_what_was_remembered(tmp_path: Path, looks: list[object]) -> None:
    ask(tmp_path)
    ask(tmp_path, fresh=True)
    assert len(looks) == 3


def test_a_failure_is_never_remembered(tmp_path: Path, looks: list[object]) -> None:
    looks[-1] = Blocker("bubblewrap", "chroot", "x", "y")
    assert ask(tmp_path).blockers == (looks[-1],)
    assert not (tmp_path / CACHE_NAME).exists()
    looks[-1] = FOUND
    assert ask(tmp_path).blockers == ()


@pytest.mark.parametrize("change", ["kernel", "shell", "uid", "machine"])
def test_another_kernel_shell_user_or_machine_is_looked_at_anew(
    tmp_path: Path, looks: list[object], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    ask(tmp_path)
    basics = under_test._basics
    new = 4711 if change == "uid" else "aarch64" if change == "machine" else "other"
    monkeypatch.setattr(under_test, "_basics", lambda home, state: replace(basics(home, state), **{change: new}))
    ask(tmp_path)
    assert len(looks) == 3


@pytest.mark.parametrize("text", ["", "[]", "{", '{"k": 1}', "null", '{"a": {"path": 1}}'])
def test_a_broken_memory_is_ignored_and_replaced(tmp_path: Path, looks: list[object], text: str) -> None:
    (tmp_path / CACHE_NAME).write_text(text)
    ask(tmp_path)
    ask(tmp_path)
    assert len(looks) == 2


def test_an_entry_with_wrong_types_is_ignored(tmp_path: Path, looks: list[object]) -> None:
    ask(tmp_path)
    file = tmp_path / CACHE_NAME
    entries = json.loads(file.read_text())
    for entry in entries.values():
        entry["disable_userns"] = "yes"
    file.write_text(json.dumps(entries))
    ask(tmp_path)
    assert len(looks) == 3


def test_a_memory_that_others_may_write_is_ignored(tmp_path: Path, looks: list[object]) -> None:
    ask(tmp_path)
    (tmp_path / CACHE_NAME).chmod(0o666)
    ask(tmp_path)
    assert len(looks) == 3


def test_a_memory_that_is_a_link_is_ignored(tmp_path: Path, looks: list[object]) -> None:
    ask(tmp_path)
    os.rename(tmp_path / CACHE_NAME, tmp_path / "elsewhere")
    (tmp_path / CACHE_NAME).symlink_to(tmp_path / "elsewhere")
    ask(tmp_path)
    assert len(looks) == 3


def test_the_memory_is_private_and_does_not_grow_without_end(
    tmp_path: Path, looks: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    basics = under_test._basics
    for number in range(12):
        monkeypatch.setattr(under_test, "_basics", lambda h, s, n=number: replace(basics(h, s), kernel=f"k{n}"))
        ask(tmp_path)
    file = tmp_path / CACHE_NAME
    assert len(json.loads(file.read_text())) == 8
    assert file.stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path) == [CACHE_NAME]


def test_a_home_that_does_not_exist_is_no_reason_to_fail(tmp_path: Path, looks: list[object]) -> None:
    assert ask(tmp_path / "missing").blockers == ()


def test_only_palyras_own_process_collects_orphans(tmp_path: Path, looks: list[object]) -> None:
    assert ask(tmp_path).subreaper is False
    assert ask(tmp_path, owns_process=True).subreaper is True


@pytest.mark.parametrize(("leads_to", "is_shown"), [("/usr/bin/env", True), ("/etc/passwd", False), ("/usr", False)])
def test_the_time_zone_is_named_only_where_every_sandbox_shows_it(
    leads_to: str, is_shown: bool, tmp_path: Path
) -> None:
    (tmp_path / "localtime").symlink_to(leads_to)
    assert under_test._localtime(str(tmp_path / "localtime")) == (os.path.realpath(leads_to) if is_shown else "")


def test_toolchains_settings_are_shown_where_everybody_may_read_all_of_them(tmp_path: Path) -> None:
    for name in ("fonts/fonts.conf", "java-17-openjdk/net.properties", "java-21-openjdk/security/key", "pip.conf"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(mode=0o600 if name.endswith("key") else 0o644)
        (tmp_path / name).parent.chmod(0o755)
    (tmp_path / "fonts" / "gone").symlink_to("nowhere")
    assert under_test._etc_settings(str(tmp_path)) == (f"{tmp_path}/fonts", f"{tmp_path}/java-17-openjdk")


def test_settings_that_a_link_takes_from_a_private_folder_are_not_shown(tmp_path: Path) -> None:
    """Files there are for everybody, and the folder around them for nobody: uid 0 was shown them all the same."""
    private, etc = tmp_path / "private", tmp_path / "etc"
    for folder in (private / "fonts", etc / "moved"):
        folder.mkdir(parents=True)
        (folder / "file").write_text("x")
    private.chmod(0o700)
    (etc / "fonts").symlink_to(private / "fonts")
    (etc / "java").symlink_to("moved")
    assert under_test._etc_settings(str(etc)) == (f"{etc}/java",)


def test_no_bubblewrap_is_a_blocker_with_a_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "find_launcher", lambda name, folders: Launcher())
    monkeypatch.setattr(under_test, "_distributions", lambda: ("debian",))
    host = ask(tmp_path)
    assert host.bubblewrap is None
    assert [(b.code, b.fix) for b in host.blockers] == [("missing", "Install bubblewrap: apt install bubblewrap")]


def test_a_bubblewrap_that_is_passed_over_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(under_test, "find_launcher", lambda name, folders: Launcher(passed_over="/ws/bin/bwrap"))
    (blocker,) = ask(tmp_path).blockers
    assert (blocker.code, "/ws/bin/bwrap is not used" in blocker.detail) == ("missing", True)
    assert "have root put it into /usr/local/bin" in blocker.fix


@pytest.mark.parametrize(("system", "kind"), [("darwin", Platform.MACOS), ("win32", Platform.WINDOWS)])
def test_another_system_is_a_blocker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, kind: Platform
) -> None:
    """What cannot be seen to isolate is not claimed: here neither has its launcher."""
    monkeypatch.setattr("sys.platform", system)
    host = ask(tmp_path)
    assert (host.platform, host.seatbelt, host.job_objects) == (kind, None, False)
    assert [b.code for b in host.blockers] == ["platform", "not_isolating"]
    assert all(backend.guarantees(host) == frozenset() for backend in BACKENDS)


def test_what_palyra_runs_from_is_known(tmp_path: Path, looks: list[object]) -> None:
    package = os.path.dirname(os.path.dirname(os.path.realpath(under_test.__file__)))
    assert ask(tmp_path).own_code == tuple(dict.fromkeys((os.path.realpath(sys.prefix), package)))
