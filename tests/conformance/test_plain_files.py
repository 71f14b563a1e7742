"""FS_ISOLATED: in tier B too, where Landlock and the filter keep it instead of mounts. Ways round either are here."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra.errors import Reason
from palyra.launch.held import template_of
from palyra.launch.pool import PoolSize
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.model.outcome import Status
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import OWNERS, PYTHON, Arena, Kept, arena, claimed, host, require
from tests.conformance.survivors import still_writing
from tests.promises import promise

pytestmark = pytest.mark.slow
REFUSED = {"EACCES", "EPERM", "ENOENT", "EXDEV"}


@pytest.fixture(params=[False, True], ids=["cold", "warm"])
def tier_b(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Not as uid 0, which owns the system's files: that is not claimed, and said."""
    require(Tier.B, Guarantee.FS_ISOLATED)
    with arena(Tier.B, OWNERS[-1], warm=request.param) as place:
        claimed(place.run("/bin/true"), Guarantee.FS_ISOLATED)
        yield place


def listing(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@promise("fs-isolated.read-outside")
def test_nothing_outside_can_be_read_in_any_way(tier_b: Arena) -> None:
    (tier_b.workspace / "link").symlink_to(tier_b.secret)
    (tier_b.workspace / "folder").symlink_to(tier_b.outside)
    tool = tier_b.outside / "tool"
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)
    found = tier_b.attack(
        """
        import subprocess
        secret, engine, tool = sys.argv[1:]
        def below(folder):
            fd = os.open(folder, os.O_PATH)
            return read(os.open("secret", os.O_RDONLY, dir_fd=fd))
        def reopened(path):
            return read(f"/proc/self/fd/{os.open(path, os.O_PATH)}")
        report({
            "absolute": tried(read, secret),
            "dots": tried(read, "../outside/secret"),
            "link": tried(read, "link"),
            "folder link": tried(read, "folder/secret"),
            "own root": tried(read, "/proc/self/root" + secret),
            "own cwd": tried(read, "/proc/self/cwd/../outside/secret"),
            "below a descriptor": tried(below, os.path.dirname(secret)),
            "reopened": tried(reopened, secret),
            "hard link": tried(os.link, secret, "hard"),
            "rename in": tried(os.rename, secret, "mine"),
            "listing": tried(os.listdir, os.path.dirname(secret)),
            "run": tried(subprocess.run, [tool]),
            "shadow": tried(read, "/etc/shadow"),
            "homes": tried(os.listdir, "/home"),
            "root's home": tried(os.listdir, "/root"),
            "tmp": tried(os.listdir, "/tmp"),
            "shared memory": tried(os.listdir, "/dev/shm"),
            "run folder": tried(os.listdir, "/run"),
            "processes": tried(os.listdir, "/proc"),
            "own environment": tried(read, "/proc/self/environ"),
            "engine's environment": tried(read, f"/proc/{engine}/environ"),
            "engine's arguments": tried(read, f"/proc/{engine}/cmdline"),
            "engine's memory": tried(read, f"/proc/{engine}/mem"),
            "engine's root": tried(read, f"/proc/{engine}/root" + secret),
            "terminals": tried(os.listdir, "/dev/pts"),
            "a new terminal": tried(os.open, "/dev/ptmx", os.O_RDWR),
            "disk": tried(os.open, "/dev/vda", os.O_RDONLY),
            "groups": tried(os.listdir, "/sys/fs/cgroup"),
        })
        """,
        str(tier_b.secret),
        str(os.getpid()),
        str(tool),
    ).json
    assert set(found.values()) <= REFUSED, found


@promise("fs-isolated.claim")
def test_all_of_the_disk_is_readable_where_that_was_granted(tier_b: Arena) -> None:
    """/ is no name in a folder above it, so it is opened by itself."""
    tier_b.secret.chmod(0o644)
    found = tier_b.run("/bin/cat", str(tier_b.secret), read_roots=("/",), granted_roots=("/",))
    assert found.output.stdout == "the secret"


@promise("fs-isolated.write-outside")
def test_nothing_outside_can_be_changed_in_any_way(tier_b: Arena) -> None:
    (tier_b.workspace / "link").symlink_to(tier_b.secret)
    (tier_b.workspace / "dangling").symlink_to(tier_b.outside / "new")
    (tier_b.outside / "empty").mkdir()
    tier_b.give(tier_b.outside / "empty")
    found = tier_b.attack(
        """
        secret = sys.argv[1]
        folder = os.path.dirname(secret)
        write("mine")
        report({
            "absolute": tried(write, secret),
            "new": tried(write, folder + "/new"),
            "dots": tried(write, "../outside/new"),
            "beside": tried(write, "../new"),
            "link": tried(write, "link"),
            "dangling": tried(write, "dangling"),
            "own root": tried(write, "/proc/self/root" + secret),
            "truncate": tried(os.truncate, secret, 0),
            "append": tried(os.open, secret, os.O_WRONLY | os.O_APPEND),
            "unlink": tried(os.unlink, secret),
            "rmdir": tried(os.rmdir, folder + "/empty"),
            "mkdir": tried(os.mkdir, folder + "/new"),
            "symlink": tried(os.symlink, "x", folder + "/new"),
            "fifo": tried(os.mkfifo, folder + "/new"),
            "hard link": tried(os.link, "mine", folder + "/new"),
            "rename out": tried(os.rename, "mine", folder + "/new"),
            "rename over": tried(os.replace, "mine", secret),
            "rename out of": tried(os.rename, secret, folder + "/old"),
            "character device": tried(os.mknod, "null", 0o20666, os.makedev(1, 3)),
            "block device": tried(os.mknod, "disk", 0o60666, os.makedev(254, 0)),
            "tmp": tried(write, "/tmp/palyra-new"),
            "shared memory": tried(write, "/dev/shm/palyra-new"),
            "system": tried(write, "/usr/palyra-new"),
            "etc": tried(write, "/etc/palyra-new"),
            "root": tried(write, "/palyra-new"),
            "kernel settings": tried(write, "/proc/sys/kernel/core_pattern", "x"),
            "own score": tried(write, "/proc/self/oom_score_adj", "0"),
        })
        """,
        str(tier_b.secret),
    ).json
    assert set(found.values()) <= REFUSED, found
    assert tier_b.secret.read_text() == "the secret"
    assert (listing(tier_b.outside), listing(tier_b.folder)) == (["empty", "secret"], ["outside", "workspace"])


@pytest.fixture
def service(tier_b: Arena) -> Iterator[list[socket.socket]]:
    """What a container engine, a session bus or a keyring agent is: a socket with a path, open to this user."""
    opened = []
    kinds = {"stream": socket.SOCK_STREAM, "datagram": socket.SOCK_DGRAM, "packets": socket.SOCK_SEQPACKET}
    for name, kind in kinds.items():
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(str(tier_b.outside / name))
        os.chmod(tier_b.outside / name, 0o777)
        listener.setblocking(False)
        opened.append(listener)
    opened[0].listen()
    opened[2].listen()
    yield opened
    for listener in opened:
        listener.close()


@promise("fs-isolated.tier-b-services")
def test_services_with_a_socket_path_cannot_be_asked_to_do_it(tier_b: Arena, service: list[socket.socket]) -> None:
    """Landlock alone lets a program connect to any of them; a pair of datagram sockets can send to any of them."""
    found = tier_b.attack(
        """
        import socket
        folder = sys.argv[1]
        def connect(kind, path):
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.connect(path)
            return "connected"
        def send(kind, path):
            a, b = socket.socketpair(socket.AF_UNIX, kind)
            a.sendto(b"do it", path)
            return "sent"
        def reconnect(kind, path):
            a, b = socket.socketpair(socket.AF_UNIX, kind)
            a.connect(path)
            return "connected"
        report({f"{how.__name__} {kind}": tried(how, kind, folder + name)
                for how in (connect, send, reconnect)
                for kind, name in ((1, "/stream"), (2, "/datagram"), (3, "/datagram"), (5, "/packets"))})
        """,
        str(tier_b.outside),
    ).json
    assert found.pop("send 5") == "sent"  # to its own other end: the address is not looked at
    assert set(found.values()) <= {"EACCES", "EISCONN"}, found
    for listener in (service[0], service[2]):
        with pytest.raises(BlockingIOError):
            listener.accept()
    with pytest.raises(BlockingIOError):
        service[1].recv(10)


@promise("fs-isolated.tier-b-processes")
def test_other_processes_of_the_same_user_are_out_of_reach(tier_b: Arena) -> None:
    """Signals, memory, limits and priorities of one that runs beside it; and its own `kill(-1)` hits nobody else."""
    user = None if os.getuid() else tier_b.owner
    with subprocess.Popen([PYTHON, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE, user=user) as beside:
        try:
            found = tier_b.attack(
                """
                import ctypes, resource, signal
                pid = int(sys.argv[1])
                libc = ctypes.CDLL(None, use_errno=True)
                def call(function, *arguments):
                    ctypes.set_errno(0)
                    function(*arguments)
                    return errno.errorcode.get(ctypes.get_errno(), "done")
                vector = (ctypes.c_void_p * 2)(ctypes.addressof(ctypes.create_string_buffer(8)), 8)
                fd = os.pidfd_open(pid)
                outcome = {
                    "signal": tried(os.kill, pid, 9),
                    "by pidfd": tried(signal.pidfd_send_signal, fd, 9),
                    "group": tried(os.killpg, os.getpgid(pid), 9),
                    "limits": tried(resource.prlimit, pid, resource.RLIMIT_CPU, (0, 0)),
                    "priority": tried(os.setpriority, os.PRIO_PROCESS, pid, 19),
                    "priority of the user": tried(os.setpriority, os.PRIO_USER, 0, 19),
                    "trace": call(libc.ptrace, 0x4206, pid, 0, 0),
                    "memory": call(libc.process_vm_readv, pid, vector, 1, vector, 1, 0),
                }
                if os.fork() == 0:
                    time.sleep(60)
                os.kill(-1, 9)
                os.waitpid(-1, 0)
                report(outcome)
                """,
                str(beside.pid),
            ).json
            assert set(found.values()) <= {"EPERM", "ESRCH"}, found
            assert beside.poll() is None
        finally:
            beside.kill()


@promise("tree-kill.nested-domain")
def test_a_program_that_confines_itself_further_ends_all_the_same(tier_b: Arena) -> None:
    """A domain within the call's own, with signals closed from inside: that must not close it to the call's end."""
    program = """
        import ctypes, struct
        libc = ctypes.CDLL(None, use_errno=True)
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            attr = struct.pack("=QQQ", 0, 0, 3)
            ruleset = libc.syscall(444, attr, ctypes.c_size_t(24), 0)
            if libc.syscall(446, ruleset, 0) == 0:
                write("confined")
            while True:
                with open("alive", "a") as file:
                    file.write(".")
                time.sleep(0.01)
        while not os.path.exists("confined"):
            time.sleep(0.01)
        report("done")
    """
    result = tier_b.attack(program)
    claimed(result, Guarantee.TREE_KILL)
    assert result.json == "done"
    assert not still_writing(tier_b)


@promise("fs-isolated.shared-memory")
def test_memory_that_all_processes_of_a_user_share_is_closed(tier_b: Arena) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    segment = libc.shmget(0, 4096, 0o1666)
    assert segment >= 0
    try:
        found = tier_b.attack(
            """
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            libc.shmat.restype = ctypes.c_void_p
            attached = libc.shmat(int(sys.argv[1]), None, 0)
            report([attached == ctypes.c_void_p(-1).value, errno.errorcode.get(ctypes.get_errno())])
            """,
            str(segment),
        ).json
    finally:
        libc.shmctl(segment, 0, None)
    assert found == [True, "EPERM"]


@promise("fs-isolated.stale-workspace")
def test_a_workspace_reached_over_a_link_is_not_taken(tier_b: Arena) -> None:
    """Another call could have put the link there: the folder behind it would become writable."""
    (tier_b.folder / "link").symlink_to(tier_b.outside)
    sight = WorkspaceSight(path=str(tier_b.folder / "link"), owner_uid=tier_b.owner, owner_gid=tier_b.owner)
    result = tier_b.run("/bin/true", workspace=sight)
    assert (result.execution.status, result.execution.reason) == (Status.FAILED, Reason.SPAWN_FAILED)


@promise("fs-isolated.stale-workspace")
def test_a_child_started_ahead_is_not_used_for_another_folder_of_that_name(place_b: Arena) -> None:
    """One whose walls stand around the old one; without Landlock there are none, and it goes by the name."""
    plan, output = plan_job(place_b.job("/bin/ls"), host()), Kept()

    async def go() -> tuple[int, str]:
        executor = ProcessExecutor(host(), warm=PoolSize(per_template=1, total=1, refill_after_s=0))
        assert executor.pool is not None
        executor.pool.wish(template_of(plan))
        while not executor.pool.idle:
            await asyncio.sleep(0.005)
        place_b.workspace.rename(place_b.folder / "moved")
        place_b.workspace.mkdir()
        (place_b.workspace / "new").touch()
        place_b.give(place_b.workspace)
        await executor.run(plan, output)
        hits = executor.pool.counts.hits
        await executor.close()
        return hits, output.stdout

    assert asyncio.run(go()) == (0 if plan.landlock is not None else 1, "new\n")


@promise("fs-isolated.granted-folders")
def test_granted_folders_are_readable_and_nothing_more(tier_b: Arena) -> None:
    found = tier_b.attack(
        "report([tried(read, sys.argv[1]), tried(write, sys.argv[1])])",
        str(tier_b.secret),
        read_roots=(str(tier_b.outside),),
    ).json
    assert found == ["the secret", "EACCES"]


@promise("fs-isolated.claim")
def test_where_palyras_state_lies_in_a_granted_folder_nothing_is_claimed(place_b: Arena) -> None:
    from dataclasses import replace

    plan = plan_job(place_b.job("/bin/true"), replace(host(), state_home=str(place_b.workspace / "state")))
    assert Guarantee.FS_ISOLATED not in plan.guarantees
    assert any(note.startswith(("state_visible", "no_landlock")) for note in plan.degraded)


@promise("fs-isolated.claim")
def test_what_is_not_covered_is_said(tier_b: Arena) -> None:
    assert any(note.startswith("file_metadata") for note in tier_b.run("/bin/true").plan.degraded)


@promise("fs-isolated.engine-unconfined")
def test_the_engine_itself_is_not_confined(tier_b: Arena) -> None:
    tier_b.run("/bin/true")
    assert tier_b.secret.read_text() == "the secret"
    with open("/proc/self/status") as file:
        assert "NoNewPrivs:\t0" in file.read()
    os.kill(os.getpid(), 0)
    socket.socket(socket.AF_UNIX).close()


@promise("fs-isolated.ordinary-work")
def test_ordinary_work_still_works(tier_b: Arena) -> None:
    script = """
        set -e
        mkdir -p a/b c && echo hello > a/b/file && mv a/b/file c/ && ln c/file hard && ln -s c/file soft && cp soft copy
        printf '#!/bin/sh\\necho ran\\n' > tool && chmod +x tool && ./tool
        mktemp > /dev/null && cat < /dev/null && head -c 3 /dev/zero | wc -c && mkfifo pipe && rm pipe hard soft
        tar cf all.tar c && rm -r c && tar xf all.tar && cat c/file
        seq 3 | sort -rn | { read x; echo $x; } && echo done > /dev/stderr
    """
    result = tier_b.run("/bin/sh", "-c", script, env=(("PATH", "/usr/bin:/bin"), ("TMPDIR", "/tmp")))
    assert (result.output.stdout, result.output.stderr) == ("ran\n3\nhello\n3\n", "done\n")


@promise("fs-isolated.ordinary-work")
def test_temporary_files_go_to_the_workspace(tier_b: Arena) -> None:
    result = tier_b.run("/bin/mktemp", env=(("PATH", "/usr/bin:/bin"), ("TMPDIR", "/tmp")))
    assert Path(result.output.stdout).parent == tier_b.workspace


@promise("fs-isolated.ordinary-work")
def test_git_python_and_a_compiler_work(tier_b: Arena) -> None:
    env = (("PATH", "/usr/bin:/bin"), ("HOME", str(tier_b.workspace)), ("TMPDIR", "/tmp"), ("LC_ALL", "C.UTF-8"))
    programs = {
        "git": "git init -q . && echo x > f && git add f && git -c user.name=a -c user.email=a@b commit -qm m "
        "&& git log --format=%s",
        "python3": "python3 -c 'import ssl, subprocess as s, threading as t; x = t.Thread(target=print, args=[1]); "
        'x.start(); x.join(); print(s.run(["echo", "2"], capture_output=True, text=True).stdout.strip())\'',
        "gcc": "printf 'int puts(const char *); int main(){ puts(\"3\"); }' > a.c && gcc a.c -o a.out && ./a.out",
        "node": "node -e 'console.log(require(\"os\").cpus().length > 0)'",
        "perl": "perl -e 'use POSIX; print 5'",
    }
    expected = {"git": "m\n", "python3": "1\n2\n", "gcc": "3\n", "node": "true\n", "perl": "5"}
    for name, script in programs.items():
        if shutil.which(name, path="/usr/bin"):
            result = tier_b.run("/bin/sh", "-c", script, env=env)
            assert (name, result.output.stdout) == (name, expected[name]), result.output.stderr


@promise("fs-isolated.granted-toolchain")
def test_the_python_that_runs_this_can_be_granted(tier_b: Arena) -> None:
    """A toolchain below a home folder needs its folders named, as in tier C."""
    roots = tuple(dict.fromkeys(os.path.realpath(p) for p in (sys.prefix, sys.base_prefix)))
    python = os.path.realpath(sys.executable)
    if python.startswith("/usr/"):
        pytest.skip("the tests run in the system's own python")
    assert tier_b.run(python, "-I", "-c", "print(1)", read_roots=roots).output.stdout == "1\n"
