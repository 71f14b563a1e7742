"""FS_ISOLATED: nothing outside the workspace and the system's folders can be read, nothing else written."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from palyra.errors import Unenforceable
from palyra.model.host import Guarantee
from palyra.model.outcome import Status
from palyra.sandbox.view import HIDDEN_TEXT
from tests.conformance.arena import Arena
from tests.promises import promise

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _claimed(tier_c: Arena) -> None:
    from palyra.model.call import Tier
    from tests.conformance.arena import require

    require(Tier.C, Guarantee.FS_ISOLATED)


@promise("fs-isolated.read-outside")
def test_a_secret_beside_the_workspace_cannot_be_read_in_any_way(tier_c: Arena) -> None:
    (tier_c.workspace / "link").symlink_to(tier_c.secret)
    (tier_c.workspace / "folder").symlink_to(tier_c.outside)
    found = tier_c.attack(
        """
        secret = sys.argv[1]
        report({
            "absolute": tried(read, secret),
            "dots": tried(read, "../outside/secret"),
            "link": tried(read, "link"),
            "folder link": tried(read, "folder/secret"),
            "own root": tried(read, "/proc/self/root" + secret),
            "first process's root": tried(read, "/proc/1/root" + secret),
            "own cwd": tried(read, "/proc/self/cwd/../outside/secret"),
            "hard link": tried(os.link, secret, "hard"),
            "listing": tried(os.listdir, os.path.dirname(secret)),
        })
        """,
        str(tier_c.secret),
    ).json
    assert set(found.values()) <= {"ENOENT", "EACCES", "EPERM"}, found


@promise("fs-isolated.private-places")
def test_homes_the_state_folder_and_other_workspaces_do_not_exist_inside(tier_c: Arena) -> None:
    found = tier_c.attack(
        """
        paths = ["/root", "/home", "/home/agent", "/run", "/sys", "/boot", "/srv", "/opt", "/mnt", "/var",
                 "/etc/shadow", "/etc/sudoers", "/var/run/docker.sock", "/etc/ssh", "/var/lib"]
        report({path: tried(os.listdir, path) for path in paths})
        """
    ).json
    seen = {path: what for path, what in found.items() if what not in ("ENOENT", "ENOTDIR", "EACCES")}
    assert seen == {"/home": ["agent"], "/home/agent": [], "/var": ["tmp"]}


@promise("fs-isolated.write-outside")
def test_nothing_outside_can_be_written_in_any_way(tier_c: Arena) -> None:
    (tier_c.workspace / "link").symlink_to(tier_c.secret)
    (tier_c.workspace / "dangling").symlink_to(tier_c.outside / "new")
    found = tier_c.attack(
        """
        secret = sys.argv[1]
        folder = os.path.dirname(secret)
        report({
            "absolute": tried(write, secret),
            "new": tried(write, folder + "/new"),
            "dots": tried(write, "../outside/new"),
            "link": tried(write, "link"),
            "dangling": tried(write, "dangling"),
            "own root": tried(write, "/proc/self/root" + secret),
            "rename": tried(os.rename, "/proc/self/cwd/link", folder + "/new"),
            "beside": tried(write, "../new"),
        } | {
            path: tried(write, path + "/palyra-new")
            for path in ("", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/proc/sys/kernel", "/home", "/var", "/lib/")
        })
        """,
        str(tier_c.secret),
    ).json
    found.pop("beside")  # the sandbox's own /tmp, where this workspace lies; what counts is the host's, below
    assert "written" not in found.values(), found
    assert tier_c.secret.read_text() == "the secret"
    assert sorted(path.name for path in tier_c.outside.iterdir()) == ["secret"]
    assert sorted(path.name for path in tier_c.folder.iterdir()) == ["outside", "workspace"]


@promise("fs-isolated.ordinary-work")
def test_the_workspace_and_the_private_folders_can_be_written(tier_c: Arena) -> None:
    found = tier_c.attack(
        """
        report({path: tried(write, path + "/new") for path in (".", "/tmp", "/var/tmp", "/dev/shm", "/home/agent")})
        """
    ).json
    assert set(found.values()) == {"written"}
    assert (tier_c.workspace / "new").read_text() == "written by the program"
    assert (tier_c.workspace / "new").stat().st_uid == tier_c.owner


@promise("fs-isolated.private-folders")
def test_private_folders_are_bounded_and_gone_afterwards(tier_c: Arena) -> None:
    from palyra.model.limits import Limits

    filler = """
        def fill(path):
            with open(path, "wb") as file:
                for _ in range(64):
                    file.write(bytes(1 << 20))
        report({path: [tried(fill, path + "/big"), os.path.getsize(path + "/big")]
                for path in ("/tmp", "/var/tmp", "/dev/shm", "/home/agent")})
    """
    limits = Limits(scratch_bytes=2 << 20, wall_ms=30_000)
    found = tier_c.attack(filler, limits=limits).json
    assert {what for what, _ in found.values()} == {"ENOSPC"}
    assert max(size for _, size in found.values()) <= 2 << 20
    assert tier_c.attack('report(os.listdir("/tmp"))').json == [tier_c.folder.name]


@promise("fs-isolated.kernel-settings")
def test_kernel_settings_cannot_be_opened_for_writing(tier_c: Arena) -> None:
    found = tier_c.attack(
        """
        opened = []
        own = {"self", "thread-self", *(name for name in os.listdir("/proc") if name.isdigit())}
        for top in sorted(set(os.listdir("/proc")) - own):
            tree = os.walk("/proc/" + top) if os.path.isdir("/proc/" + top) else [("/proc", [], [top])]
            for folder, _, names in tree:
                for name in names:
                    path = folder + "/" + name
                    try:
                        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
                        opened.append(path)
                    except OSError:
                        pass
        report(opened)
        """
    ).json
    harmless = {"/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory", "/proc/pressure/irq"}
    assert set(found) <= harmless, found


@promise("fs-isolated.device-modes")
def test_nothing_of_the_hosts_gets_another_mode_owner_or_time(tier_c: Arena) -> None:
    """A sandbox that keeps uid 0 owned the machine's devices, and the kernel's files, which every /proc shows: `chmod 0
    /dev/null` held for all programs of the machine, and `chmod 444 /proc/kpagecount` for all its users."""
    found = tier_c.attack(
        """
        import stat
        own = {"self", "thread-self", *(name for name in os.listdir("/proc") if name.isdigit())}
        paths = ["/proc/" + name for name in os.listdir("/proc") if name not in own]
        paths += ["/dev/" + name for name in os.listdir("/dev")]
        paths += ["/etc", "/usr", "/usr/bin/env", "/proc/self/ns/time"]
        changed, tries = [], 0
        for path in paths:
            seen = os.stat(path, follow_symlinks="ns/" in path)
            if stat.S_ISLNK(seen.st_mode) or path in ("/dev/pts", "/dev/shm"):
                continue
            for change, *same in (
                (os.chmod, stat.S_IMODE(seen.st_mode)),
                (os.chown, seen.st_uid, seen.st_gid),
                (os.utime, (seen.st_atime, seen.st_mtime)),
            ):
                tries += 1
                if tried(change, path, *same) is None:
                    changed.append([change.__name__, path])
        with open("/dev/null", "w") as null, open("/dev/urandom", "rb") as random:
            report([changed, tries > 100, null.write("x"), len(random.read(4))])
        """
    ).json
    assert found == [[], True, 1, 4]


@promise("fs-isolated.engine-environment")
def test_the_engines_environment_cannot_be_read(tier_c: Arena) -> None:
    os.environ["PALYRA_TEST_SECRET"] = "do not show"
    try:
        found = tier_c.attack(
            """
            report({pid: tried(read, f"/proc/{pid}/environ") for pid in os.listdir("/proc") if pid.isdigit()}
                   | {"env": dict(os.environ)})
            """
        ).json
    finally:
        del os.environ["PALYRA_TEST_SECRET"]
    assert "do not show" not in str(found)
    own = f"PWD={tier_c.workspace}\0"  # the launcher sets it for whatever it becomes
    assert found["1"] in ("", "EACCES", own)
    assert found["env"].keys() <= {"PATH", "HOME", "LC_CTYPE"}  # the interpreter sets the last one itself


@promise("fs-isolated.protected-paths")
def test_a_protected_folder_cannot_be_written_or_renamed_away(tier_c: Arena) -> None:
    git = tier_c.workspace / ".git"
    (git / "hooks").mkdir(parents=True)
    (git / "config").write_text("[core]\n")
    (tier_c.workspace / ".env").write_text("TOKEN=1\n")
    tier_c.give(git, git / "hooks", git / "config", tier_c.workspace / ".env")
    found = tier_c.attack(
        """
        import shutil
        report({
            "hook": tried(write, ".git/hooks/pre-commit"),
            "config": tried(write, ".git/config"),
            "move .git": tried(os.rename, ".git", "old"),
            "move hooks": tried(os.rename, ".git/hooks", ".git/old"),
            "replace config": tried(os.replace, shutil.copy(".git/config", ".git/x"), ".git/config"),
            "remove config": tried(os.unlink, ".git/config"),
            "remove hooks": tried(os.rmdir, ".git/hooks"),
            "link over": tried(os.symlink, "/tmp", ".git/hooks"),
            "mask read": tried(read, ".env"),
            "mask write": tried(write, ".env"),
            "mask move": tried(os.rename, ".env", "env"),
            "mask remove": tried(os.unlink, ".env"),
            "commit": tried(write, ".git/index"),
        })
        """,
        protected=(str(git / "config"), str(git / "hooks")),
        masked=(str(tier_c.workspace / ".env"),),
    ).json
    assert found.pop("mask read") == HIDDEN_TEXT.decode()
    assert found.pop("commit") == "written"
    assert set(found.values()) <= {"EROFS", "EBUSY", "EEXIST", "EACCES", "EPERM"}, found
    assert (git / "config").read_text() == "[core]\n"
    assert list((git / "hooks").iterdir()) == []
    assert (tier_c.workspace / ".env").read_text() == "TOKEN=1\n"


@promise("fs-isolated.swapped-mount")
def test_a_folder_swapped_for_a_link_while_the_sandbox_is_made_opens_nothing(tier_c: Arena) -> None:
    """The agent's other call renames `.git` and puts a link to a secret folder there, over and over."""
    git, spare, link = (tier_c.workspace / name for name in (".git", "spare", "link"))
    (git / "hooks").mkdir(parents=True)
    (tier_c.outside / "hooks").mkdir()
    link.symlink_to(tier_c.outside)
    tier_c.give(git, git / "hooks", tier_c.outside / "hooks", link)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            try:
                os.rename(git, spare)
                os.rename(link, git)
                os.rename(git, link)
                os.rename(spare, git)
            except OSError:
                continue

    swapping = threading.Thread(target=swap)
    swapping.start()
    program = 'report([tried(read, ".git/secret"), tried(write, ".git/stolen"), tried(write, ".git/hooks/planted")])'
    statuses = []
    try:
        for _ in range(12):
            result = tier_c.attack(program, protected=(str(git / "hooks"),))
            statuses.append(result.execution.status)
            assert "the secret" not in result.output.stdout
            assert not result.output.stdout.endswith('"written"]\n'), result.output.stdout
    finally:
        stop.set()
        swapping.join()
    assert sorted(path.name for path in tier_c.outside.iterdir()) == ["hooks", "secret"]
    assert list((tier_c.outside / "hooks").iterdir()) == []
    assert set(statuses) <= {Status.COMPLETED, Status.FAILED}


@promise("fs-isolated.granted-folders")
def test_granted_folders_are_readable_and_nothing_more(tier_c: Arena) -> None:
    found = tier_c.attack(
        "report([tried(read, sys.argv[1]), tried(write, sys.argv[1])])",
        str(tier_c.secret),
        read_roots=(str(tier_c.outside),),
    ).json
    assert found == ["the secret", "EROFS"]


@promise("fs-isolated.granted-toolchain")
def test_a_program_of_a_toolchain_outside_the_system_folders_runs(tier_c: Arena) -> None:
    tool = tier_c.outside / "tool"
    tool.write_text("#!/bin/sh\necho tool ran in $PWD\n")
    tool.chmod(0o755)
    result = tier_c.run(str(tool))
    assert result.output.stdout == f"tool ran in {tier_c.workspace}\n"


@promise("workspace.system-folders")
def test_a_workspace_that_is_no_project_folder_is_refused(place_c: Arena) -> None:
    from dataclasses import replace

    from palyra.sandbox.planner import plan_job
    from tests.conformance.arena import host

    job = place_c.job("/bin/true")
    for path in ("/", "/tmp", "/usr", "/etc"):
        with pytest.raises(Unenforceable):
            plan_job(replace(job, workspace=replace(job.workspace, path=path)), host())


@promise("fs-isolated.copied-settings")
def test_of_a_copied_file_the_program_changes_its_copy_alone(tier_c: Arena) -> None:
    """As git changes its settings: a new file beside it, renamed over what the name leads to. Nothing that a program
    does to its copy, or to the link that shows it, opens the host's file, and the name cannot be taken away."""
    settings = tier_c.workspace / ".git" / "config"
    settings.parent.mkdir()
    settings.write_text("the operator's")
    for path in (settings.parent, settings):
        os.chown(path, tier_c.owner, tier_c.owner)
    found = tier_c.attack(
        """
        import shutil
        name = ".git/config"
        was = open(name).read()
        real = os.path.realpath(name)
        write(real + ".lock")
        os.rename(real + ".lock", real)
        now = open(name).read()
        taken = [tried(os.unlink, name), tried(os.rename, name, "x"), tried(os.rename, ".git", "y"),
                 tried(os.rename, real, name), tried(os.symlink, "/etc/passwd", name)]
        shutil.rmtree(os.path.dirname(real))
        report([was, now, taken, tried(open, name), tried(os.unlink, name), tried(write, name)])
        """,
        protected=(str(settings),),
        copied=(str(settings),),
    ).json
    was, now, taken, gone, removed, written = found
    assert (was, now) == ("the operator's", "written by the program")
    assert "done" not in taken
    assert "written" not in taken
    assert (gone, removed, written) == ("ENOENT", "EBUSY", "ENOENT")
    assert settings.read_text() == "the operator's"
    assert not settings.is_symlink()


@promise("fs-isolated.copied-settings")
@pytest.mark.parametrize("shut", ["config", "sub"], ids=["file", "folder"])
def test_of_a_file_that_the_program_may_not_read_it_gets_no_copy(tier_c: Arena, shut: str) -> None:
    """An agent moved root's file to the name of settings that are copied, and the copy, which root made, was its own to
    read. The same rights hold for the copy as for the file, and for the folders on the way."""
    settings = tier_c.workspace / "sub" / "config"
    settings.parent.mkdir()
    settings.write_text("somebody else's")
    tier_c.give(settings.parent, settings)
    closed = settings if shut == "config" else settings.parent
    closed.chmod(0)
    words = ("/bin/sh", "-c", "cat sub/config; find /home/agent -type f")
    result = tier_c.run(*words, protected=(str(settings),), copied=(str(settings),))
    closed.chmod(0o700)
    assert result.output.stdout == ""
    assert "Permission denied" in result.output.stderr
    assert settings.read_text() == "somebody else's"


@promise("git.copied-settings-bounded")
def test_hundreds_of_files_to_be_copied_fill_no_memory_and_keep_no_sandbox_from_starting(tier_c: Arena) -> None:
    """A program can make as many as are closed, of a megabyte that is a hole on the disk: each sandbox that waited held
    all its private room of memory that no limit of a program's counts. What is too much is protected as it is."""
    names = [tier_c.workspace / f"{number:03}" for number in range(400)]
    for name in names:
        name.touch()
        os.truncate(name, 9 if name == names[0] else 1 << 20)
        tier_c.give(name)
    closed = tuple(map(str, names))
    script = "for name in *; do if [ -L $name ]; then echo $name; fi; done; du -sk /home/agent; : > 005"
    result = tier_c.run("/bin/sh", "-c", script, protected=closed, copied=closed)
    link, kilobytes, _ = result.output.stdout.split()
    assert link == "000"
    assert int(kilobytes) <= 1024
    assert "Read-only file system" in result.output.stderr


@promise("fs-isolated.ordinary-work", "fs-isolated.protected-paths")
def test_git_works_inside_with_its_own_files_closed(tier_c: Arena) -> None:
    git = Path("/usr/bin/git")
    if not git.exists():
        pytest.skip("there is no git")
    hooks = tier_c.workspace / ".git" / "hooks"
    subprocess.run([git, "init", "-q", tier_c.workspace], check=True, env={"HOME": "/nonexistent"})
    for path in (tier_c.workspace, *tier_c.workspace.rglob("*")):
        tier_c.give(path)
    script = (
        "echo hello > file && git add file && git -c user.name=a -c user.email=a@b commit -qm m && git log --format=%s"
    )
    result = tier_c.run("/bin/sh", "-c", script, protected=(str(hooks.parent / "config"), str(hooks)))
    assert result.output.stdout == "m\n", result.output.stderr
