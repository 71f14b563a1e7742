"""FS_ISOLATED under a moving target: links swapped while the program runs, and FIFOs on either side of the wall."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palyra.errors import Reason
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from tests.conformance.arena import Arena, claimed, walled
from tests.promises import promise

pytestmark = pytest.mark.slow
SECONDS = 0.7


@contextmanager
def swapping(place: Path, target: Path) -> Iterator[None]:
    """Somebody on the host (another call in the same workspace) who makes `place` a folder, a link, a folder …"""
    over = threading.Event()
    real, link = place.with_name("real"), place.with_name("link")

    def work() -> None:
        while not over.is_set():
            link.unlink(missing_ok=True)
            link.symlink_to(target)
            place.rename(real)
            link.rename(place)
            place.unlink()
            real.rename(place)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@promise("fs-isolated.link-swaps")
def test_a_link_swapped_while_the_program_runs_leads_nowhere(any_tier: Arena) -> None:
    """Each open may meet the folder or the link to the outside: a check would lose this race sooner or later."""
    place = any_tier.workspace / "moving"
    place.mkdir()
    place.chmod(0o777)
    any_tier.give(place)
    program = """
        until, count, seen = time.monotonic() + float(sys.argv[1]), 0, set()
        while time.monotonic() < until or (not count and time.monotonic() < until + 30):
            count += tried(write, "moving/file") == "written"
            seen.add(str(tried(read, "moving/secret")))
            tried(os.unlink, "moving/secret")
            tried(os.rename, "moving/file", "moving/secret2")
        report([count, sorted(seen)])
    """
    with swapping(place, any_tier.outside):
        result = any_tier.attack(program, str(SECONDS), limits=Limits(wall_ms=60_000))
    claimed(result, Guarantee.FS_ISOLATED)
    count, seen = result.json
    assert count, "the folder itself was never met"
    assert "the secret" not in seen
    assert any_tier.secret.read_text() == "the secret"
    assert [path.name for path in any_tier.outside.iterdir()] == ["secret"]


@promise("fs-isolated.link-swaps")
def test_the_program_swapping_its_own_links_gets_nowhere_either(any_tier: Arena) -> None:
    program = """
        import threading
        outside = os.path.dirname(sys.argv[2])
        os.mkdir("real")
        until, over = time.monotonic() + float(sys.argv[1]), []
        def swap():
            while not over:
                for target in ("real", outside):
                    tried(os.symlink, target, "next")
                    tried(os.replace, "next", "moving")
        threading.Thread(target=swap, daemon=True).start()
        count, seen = 0, set()
        while time.monotonic() < until:
            count += tried(write, "moving/file") == "written"
            seen.add(str(tried(read, "moving/secret")))
        over.append(True)
        report([count, sorted(seen)])
    """
    result = any_tier.attack(program, str(SECONDS), str(any_tier.secret), limits=Limits(wall_ms=60_000))
    claimed(result, Guarantee.FS_ISOLATED)
    count, seen = result.json
    assert count
    assert "the secret" not in seen
    assert [path.name for path in any_tier.outside.iterdir()] == ["secret"]


@promise("fs-isolated.fifos")
def test_a_fifo_of_the_hosts_beside_the_workspace_cannot_be_opened(any_tier: Arena) -> None:
    """One that somebody reads commands from would be as good as a shell."""
    fifo = any_tier.outside / "fifo"
    os.mkfifo(fifo, 0o666)
    fifo.chmod(0o666)
    reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    (any_tier.workspace / "link").symlink_to(fifo)
    try:
        program = """
            def put(path):
                return os.write(os.open(path, os.O_WRONLY | os.O_NONBLOCK), b"do it")
            path = sys.argv[1]
            report([tried(put, each) for each in (path, "link", "../outside/fifo", "/proc/self/root" + path)])
        """
        result = any_tier.attack(program, str(fifo))
        claimed(result, Guarantee.FS_ISOLATED)
        assert set(result.json) <= {"ENOENT", "EACCES"}, result.json
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


@promise("fs-isolated.fifos")
def test_a_fifo_left_in_the_workspace_holds_nobody_up(any_tier: Arena) -> None:
    made = any_tier.attack('[os.mkfifo(name) for name in (".env", "Jenkinsfile", "pipe")]; report("made")').json
    assert made == "made"
    began = time.monotonic()
    assert any_tier.run("/bin/ls").execution.exit_code == 0
    assert time.monotonic() - began < 20


@promise("syscall-filter.set-user-id")
def test_no_file_is_left_that_runs_as_its_owner(any_tier: Arena) -> None:
    """In a workspace of root's or of an operator's it would make every local user that owner."""
    program = """
        import ctypes, shutil
        libc = ctypes.CDLL(None, use_errno=True)
        shutil.copy("/bin/true", "mine")
        def raw(number, *arguments):
            if libc.syscall(number, *arguments) < 0:
                raise OSError(ctypes.get_errno(), "refused")
            return "made"
        fd = os.open("mine", os.O_RDWR)
        how = (ctypes.c_uint64 * 3)(0o102, 0o4755, 0)
        report({
            "chmod": tried(os.chmod, "mine", 0o4755),
            "both bits": tried(os.chmod, "mine", 0o6755),
            "fchmod": tried(os.fchmod, fd, 0o4755),
            "at": tried(lambda: os.chmod("mine", 0o4755, dir_fd=os.open(".", os.O_RDONLY))),
            "create": tried(os.open, "new", os.O_CREAT | os.O_WRONLY, 0o4755),
            "nameless": tried(os.open, ".", os.O_TMPFILE | os.O_WRONLY, 0o4755),
            "node": tried(os.mknod, "node", 0o104755),
            "openat2": tried(raw, 437, -100, b"newer", how, 24),
            "fchmodat2": tried(raw, 452, -100, b"mine", 0o4755, 0),
            "plain": tried(os.chmod, "mine", 0o755),
        })
    """
    result = any_tier.attack(program)
    if Guarantee.SYSCALL_FILTER not in result.plan.guarantees:
        pytest.skip("no filter is claimed here")
    found = result.json
    assert (found.pop("plain"), found.pop("openat2")) == (None, "ENOSYS")
    assert set(found.values()) == {"EPERM"}, found
    modes = {path.name: path.stat().st_mode & 0o6000 for path in any_tier.workspace.iterdir()}
    assert modes == {"mine": 0}


@promise("syscall-filter.leases")
def test_nobody_outside_waits_for_a_file_that_a_program_leased(any_tier: Arena) -> None:
    """A descriptor to read by is enough for a lease, on a read-only mount too, where the file is of the same uid: that
    of root's sandbox is that of the linker's cache, and every program that starts opens it."""
    program = """
        import fcntl
        write("mine")
        open_ = {name: os.open(name, os.O_RDONLY) for name in ("mine", "/etc/ld.so.cache", "/usr/bin/env")}
        kinds = {"to read": fcntl.F_RDLCK, "alone": fcntl.F_WRLCK}
        report({
            f"{name} {kind}": tried(fcntl.fcntl, fd, fcntl.F_SETLEASE, lease)
            for name, fd in open_.items() for kind, lease in kinds.items()
        })
    """
    result = any_tier.attack(program)
    if Guarantee.SYSCALL_FILTER not in result.plan.guarantees:
        pytest.skip("no filter is claimed here")
    assert set(result.json.values()) == {"EPERM"}, result.json


@promise("fs-isolated.swapped-grant")
def test_a_link_put_in_the_place_of_a_granted_folder_shows_nothing_of_where_it_leads(any_tier: Arena) -> None:
    """A folder of another agent's workspace was granted; that agent moves it away and leaves a link to somebody's keys,
    also on the way to it."""
    granted = any_tier.folder / "other" / "shared" / "vendor"
    granted.mkdir(parents=True)
    roots = (str(granted),)
    for place, end in ((granted, any_tier.outside), (granted.parent, any_tier.folder / "elsewhere")):
        (any_tier.folder / "elsewhere").mkdir(exist_ok=True)
        if not (any_tier.folder / "elsewhere" / "vendor").exists():
            (any_tier.folder / "elsewhere" / "vendor").symlink_to(any_tier.outside)
        place.rename(place.with_name("moved"))
        place.symlink_to(end)
        result = any_tier.run("/bin/cat", f"{granted}/secret", read_roots=roots, granted_roots=roots)
        walled(result.plan)
        execution = result.execution
        assert (execution.reason, execution.stdout_bytes) == (Reason.SPAWN_FAILED, 0)
        assert "a link has taken the place of what was granted" in str(execution.message)
        place.unlink()
        place.with_name("moved").rename(place)


@promise("fs-isolated.swapped-grant")
def test_a_granted_folder_swapped_while_the_sandbox_is_made_shows_nothing(place: Arena) -> None:
    granted = place.folder / "other" / "vendor"
    granted.mkdir(parents=True)
    roots, shown = (str(granted),), []
    with swapping(granted, place.outside):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            shown.append(place.run("/bin/cat", f"{granted}/secret", read_roots=roots, granted_roots=roots))
            walled(shown[0].plan)
    assert {each.output.stdout for each in shown} == {""}
