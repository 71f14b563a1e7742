"""One call in a container, with a real engine: what it sees, what it gets, what it cannot do."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import socket
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.errors import Reason, Unenforceable
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import OPEN, Result
from tests.conformance.survivors import Typed
from tests.podman.conftest import BACKEND, IMAGE, RUNTIME, Place, container_host, containers, engine
from tests.promises import promise

pytestmark = pytest.mark.slow


@promise("process-limit.container")
def test_the_planner_takes_it_where_nothing_else_serves(place: Place) -> None:
    host = replace(container_host(), bubblewrap=None)
    if Guarantee.PROCESS_LIMIT not in BACKEND.guarantees(host):
        with pytest.raises(Unenforceable, match="PROCESS_LIMIT"):
            plan_job(place.job("true"), host)
        return
    plan = plan_job(place.job("true"), host)
    assert (plan.backend, plan.executor, plan.road) == (RUNTIME, f"sandbox_tier_c_{RUNTIME}", "container")
    assert place.job("true").needs <= plan.guarantees
    assert IMAGE.removeprefix("sha256:") in str(plan.launcher[-1])


def test_streams_code_and_input_are_the_programs_own(place: Place) -> None:
    result = place.sh("cat; echo err >&2; exit 7", stdin=b"hello\n")
    assert (result.output.stdout, result.output.stderr) == ("hello\n", "err\n")
    assert (result.execution.status, result.execution.exit_code) == (Status.COMPLETED, 7)
    assert result.execution.stdin_bytes == 6
    assert containers() == []


def test_a_streamed_input_ends_with_the_program(place: Place) -> None:
    result = asyncio.run(place.start("head", "-n1", source=Typed([b"one\n"]), stdin_streamed=True))
    assert (result.output.stdout, result.execution.exit_code) == ("one\n", 0)


@pytest.mark.parametrize("code", [0, 1, 125, 126, 127, 137, 255])
def test_every_exit_code_of_a_program_that_ran_is_its_own(place: Place, code: int) -> None:
    ended = place.sh(f"exit {code}").execution
    assert (ended.status, ended.exit_code, ended.reason) == (Status.COMPLETED, code, None)


def test_a_program_that_is_not_in_the_image_never_started(place: Place) -> None:
    for missing in ("palyra-does-not-exist", "/etc/passwd"):
        ended = place.run(missing).execution
        assert (ended.status, ended.reason, ended.exit_code) == (Status.FAILED, Reason.SPAWN_FAILED, None), ended
    ended = place.run("palyra-does-not-exist").execution
    assert "container_image" in (ended.message or "")
    nowhere = place.run("true", cwd=str(place.workspace / "gone" / "deeper")).execution
    assert nowhere.status in (Status.FAILED, Status.COMPLETED)  # engines make a working folder that is missing
    assert containers() == []


def test_the_images_own_entry_point_volumes_and_variables_have_no_say(place: Place) -> None:
    result = place.sh(
        'echo "ran: $*"; echo "[$FROM_IMAGE]"; if ( : > /data/x ) 2>/dev/null; then echo made; fi', "a b", "-c"
    )
    assert result.output.stdout == "ran: a b -c\n[]\n"


def test_every_byte_of_every_argument_arrives(place: Place) -> None:
    every = "".join(chr(c) for c in range(1, 256))
    arguments = (every, "", "-n", "--", "$(id)", "a b\n'c'\"d\"\\", "x" * 4096)
    result = place.sh('for a; do printf "%s" "$a" | sha256sum; done', *arguments)
    import hashlib

    expected = [hashlib.sha256(a.encode()).hexdigest() for a in arguments]
    assert [line.split()[0] for line in result.output.stdout.splitlines()] == expected


def test_the_environment_is_the_plans(place: Place) -> None:
    env = (("PATH", "/bin"), ("HOME", "/home/agent"), ("K", 'it\'s "a" $b\n`c`'))
    said = place.run("env", env=env).output.stdout
    assert 'K=it\'s "a" $b\n`c`\n' in said
    assert "HOME=/tmp\n" in said
    keys = {line.split("=")[0] for line in said.splitlines() if "=" in line}
    assert keys <= {"PATH", "HOME", "K", "HOSTNAME", "container", "TERM"}


@promise("fs-isolated.container")
def test_nothing_outside_the_workspace_is_seen_or_written(place: Place) -> None:
    (place.workspace / "link").symlink_to(place.secret)
    script = """
        cat "$1" link ../outside/secret /proc/1/root"$1" 2>/dev/null && echo seen
        for f in /x /bin/x /etc/x /usr/x ../x /proc/sys/x; do if ( : > $f ) 2>/dev/null; then echo "wrote $f"; fi; done
        ls -A /tmp /root /home 2>/dev/null | grep -v "^/"
        echo mine > made && echo done
    """
    result = place.sh(script, str(place.secret))
    said = result.output.stdout.split()
    assert "seen" not in said
    assert "done" in said
    assert [word for word in said if word == "wrote"] in ([], ["wrote"])  # ../x is the sandbox's own, on its tmpfs
    assert Guarantee.FS_ISOLATED in result.plan.guarantees
    assert (place.workspace / "made").read_text() == "mine\n"
    assert (place.workspace / "made").stat().st_uid == place.owner
    assert sorted(p.name for p in place.folder.iterdir()) == ["outside", "workspace"]
    assert place.secret.read_text() == "the secret"


@promise("fs-isolated.container-volume")
def test_a_volume_below_a_granted_folder_is_not_writable(place: Place) -> None:
    """Engines make only the folder itself read-only: what was mounted below it stayed writable."""
    volume = place.secret.parent / "volume"
    volume.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=777", "none", str(volume)], capture_output=True)
    if made.returncode:
        pytest.skip("no mounts can be made here")
    try:
        script = 'cat "$1/secret"; ( : > "$1/volume/planted" ) 2>/dev/null || echo sealed'
        folder = str(place.secret.parent)
        result = place.sh(script, folder, read_roots=(folder,))
        assert result.output.stdout == "the secretsealed\n"
        assert list(volume.iterdir()) == []
    finally:
        subprocess.run(["umount", str(volume)], check=True)


@promise("fs-isolated.container")
def test_granted_folders_are_read_only(place: Place) -> None:
    result = place.sh(
        'cat "$1"; ( : > "$1" ) 2>/dev/null || echo sealed', str(place.secret), read_roots=(str(place.secret.parent),)
    )
    assert result.output.stdout == "the secretsealed\n"


def accept_one(server: socket.socket) -> None:
    server.accept()[0].close()


@promise("net-isolated.container")
def test_nothing_of_the_network_is_there(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=accept_one, args=(server,), daemon=True).start()
        port = str(server.getsockname()[1])
        reach = 'nc -w 2 127.0.0.1 "$1" < /dev/null && echo connected'
        closed = place.sh(f"grep -c : /proc/net/dev; {reach}; nslookup example.com >/dev/null 2>&1 && echo ok", port)
        assert Guarantee.NET_ISOLATED in closed.plan.guarantees
        assert closed.output.stdout == "1\n"
        shared = place.sh(reach, port, net=OPEN)
        assert Guarantee.NET_ISOLATED not in shared.plan.guarantees
        assert "connected" in shared.output.stdout


@promise("syscall-filter.container")
def test_there_are_no_privileges_and_a_filter(place: Place) -> None:
    script = """
        grep -E "^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):" /proc/self/status | tr -d "\\t"
        unshare -U true 2>/dev/null && echo namespace
        mount -t tmpfs x /tmp 2>/dev/null && echo mounted
        : > own; chmod 4755 own 2>/dev/null && echo runs as its owner
        (umask 0; mknod node p; chmod 755 own) || echo nothing ordinary works
        id -u
    """
    said = place.sh(script).output.stdout.split()
    none = "0000000000000000"
    assert said == [f"CapPrm:{none}", f"CapEff:{none}", f"CapBnd:{none}", "NoNewPrivs:1", "Seccomp:2", str(place.owner)]


@promise("memory-limit-tree.container")
def test_memory_of_the_whole_container_is_bounded_and_named(place: Place) -> None:
    result = place.sh(
        "head -c 400m /dev/zero | tail -c 300m | tail -c 1 | wc -c",
        limits=Limits(memory_bytes=64 << 20, wall_ms=60_000),
    )
    if Guarantee.MEMORY_LIMIT_TREE not in result.plan.guarantees:
        pytest.skip(f"not claimed: {result.plan.degraded}")
    assert result.output.stdout != "1\n"
    assert result.output.stderr or result.execution.reason is Reason.MEMORY_LIMIT


@promise("memory-limit-tree.container")
def test_the_first_process_killed_for_memory_is_named_and_leaves_no_file(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    script = "exec dd if=/dev/zero of=/tmp/fill bs=1M count=200"
    result = place.sh(script, limits=Limits(memory_bytes=64 << 20, scratch_bytes=256 << 20, wall_ms=60_000))
    if Guarantee.MEMORY_LIMIT_TREE not in result.plan.guarantees:
        pytest.skip(f"not claimed: {result.plan.degraded}")
    assert result.execution.exit_code == 137
    assert result.execution.reason in (Reason.MEMORY_LIMIT, None)  # not every engine says why
    assert list(tmp_path.iterdir()) == []  # conmon would tell it where its client was started, through any link


@promise("process-limit.container")
def test_a_fork_bomb_stops_at_the_limit(place: Place) -> None:
    script = "i=0; while [ $i -lt 200 ]; do sleep 20 & i=$((i+1)); done 2>/tmp/err; ps | grep -c sleep"
    result = place.sh(script, limits=Limits(processes=40, wall_ms=60_000))
    if Guarantee.PROCESS_LIMIT not in result.plan.guarantees:
        pytest.skip(f"not claimed: {result.plan.degraded}")
    assert "can't fork" in result.output.stderr or int(result.output.stdout or 0) <= 40, result


@promise("cpu-limit.container")
def test_a_program_that_burns_cpu_is_ended(place: Place) -> None:
    began = time.monotonic()
    ended = place.sh("while :; do :; done", limits=Limits(cpu_ms=1000, wall_ms=60_000)).execution
    assert ended.status is Status.COMPLETED
    assert ended.exit_code not in (0, None)
    assert time.monotonic() - began < 30


def test_files_are_bounded(place: Place) -> None:
    limits = Limits(file_bytes=1 << 20, open_files=64, scratch_bytes=2 << 20, wall_ms=60_000)
    place.sh("yes | head -c 10m > big; yes | head -c 10m > /tmp/big; ulimit -n > n", limits=limits)
    assert (place.workspace / "big").stat().st_size <= 1 << 20
    assert (place.workspace / "n").read_text() == "64\n"


SURVIVOR = "setsid sh -c 'setsid sh -c \"while :; do echo . >> alive; sleep 0.02; done\" &' & sleep 0.5"


def still_writing(place: Place) -> bool:
    before = (place.workspace / "alive").stat().st_size
    time.sleep(0.3)
    return (place.workspace / "alive").stat().st_size > before


@promise("tree-kill.container")
@pytest.mark.parametrize(
    ("rest", "limits", "status"),
    [
        ("", Limits(wall_ms=60_000), Status.COMPLETED),
        ("; sleep 60", Limits(wall_ms=3000), Status.TIMEOUT),
        ("; yes", Limits(output_bytes=1000, wall_ms=60_000), Status.QUOTA_EXCEEDED),
    ],
    ids=["end", "deadline", "quota"],
)
def test_nothing_survives(place: Place, rest: str, limits: Limits, status: Status) -> None:
    result = place.sh(SURVIVOR + rest, limits=limits)
    assert Guarantee.TREE_KILL in result.plan.guarantees
    assert (result.execution.status, result.execution.degraded) == (status, ())
    assert not still_writing(place)
    assert containers() == []


def test_a_program_may_tidy_up_at_the_deadline(place: Place) -> None:
    result = place.sh('trap "echo tidy; exit 0" TERM; sleep 60 & wait', limits=Limits(wall_ms=2500))
    assert (result.execution.status, result.output.stdout) == (Status.TIMEOUT, "tidy\n")


@promise("tree-kill.container")
@pytest.mark.parametrize("after_s", [0, 0.02, 0.1, 0.2, 0.3, 0.5])
def test_cancelling_at_any_moment_leaves_no_container(place: Place, after_s: float) -> None:
    async def go() -> None:
        task = asyncio.create_task(place.start("sleep", "60"))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    before = len(os.listdir("/proc/self/fd"))
    asyncio.run(go())
    assert containers() == []
    external = ["--external"] if RUNTIME == "podman" else []
    assert [line for line in engine("ps", "--all", *external).splitlines()[1:] if "palyra" in line] == []
    assert len(os.listdir("/proc/self/fd")) == before


@promise("tree-kill.container")
def test_eight_calls_at_once_leave_nothing_behind(place: Place) -> None:
    async def go() -> list[Result]:
        return list(await asyncio.gather(*(place.start("sh", "-c", f"echo {n}; exit {n}") for n in range(8))))

    before = len(os.listdir("/proc/self/fd"))
    found = [(r.output.stdout, r.execution.exit_code) for r in asyncio.run(go())]
    assert found == [(f"{n}\n", n) for n in range(8)]
    assert (containers(), len(os.listdir("/proc/self/fd"))) == ([], before)


def test_paths_it_cannot_close_are_said(place: Place) -> None:
    plan = place.plan("true", protected=(str(place.workspace / ".git"),))
    assert any(note.startswith("workspace_open") for note in plan.degraded)


def test_a_folder_name_that_would_be_read_as_an_option_is_refused(place: Place) -> None:
    odd = place.folder / "a,readonly"
    odd.mkdir()
    with pytest.raises(Unenforceable):
        place.plan("true", read_roots=(str(odd),))


def test_what_a_container_does_not_carry_is_refused_before_anything_starts(place: Place) -> None:
    host = replace(container_host(), bubblewrap=None)
    for changes in ({"background": True}, {"own_program": True}, {"own_files": (("/etc/own.py", b""),)}):
        with pytest.raises(Unenforceable, match=f"Tier C is {RUNTIME} here"):
            plan_job(place.job("true", **changes), host)
    assert containers() == []


@pytest.mark.skipif(os.getuid() != 0, reason="only a root engine chooses who runs a container")
def test_a_workspace_of_group_0_gives_no_container_that_group(place: Place) -> None:
    os.chown(place.workspace, 65534, 0)
    sight = WorkspaceSight(path=str(place.workspace), owner_uid=65534, owner_gid=0)
    result = place.sh("id -u; id -g; id -G; : > made", workspace=sight)
    assert result.output.stdout == "65534\n65534\n65534\n"
    assert (place.workspace / "made").stat().st_gid == 65534


NETLINK = """
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
int main(void) {
    for (int protocol = 0; protocol < 40; protocol++)
        printf("%d ", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol) >= 0 ? 0 : errno);
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="there is no compiler for the attack")
def test_of_netlink_a_container_has_what_lists_its_own_interfaces(place: Place) -> None:
    (place.workspace / "netlink.c").write_text(NETLINK)
    built = ["gcc", "-static", "-o", str(place.workspace / "netlink"), str(place.workspace / "netlink.c")]
    subprocess.run(built, check=True, timeout=60)
    assert place.run("./netlink").output.stdout.split() == ["0", *[str(errno.EPROTONOSUPPORT)] * 39]
    shared = place.run("./netlink", net=OPEN).output.stdout.split()
    assert shared == [str(errno.EAFNOSUPPORT)] * 40
    assert place.sh("ip link set lo down 2>/dev/null || echo refused").output.stdout == "refused\n"


def test_an_image_that_is_not_here_is_a_blocker_with_its_fix() -> None:
    from palyra.sandbox.probe import probe

    image = "sha256:" + "0" * 64
    home = os.environ.get("HOME", "")
    host = probe(home=home, state_home="", search_path=(), container_image=image, backend=RUNTIME)
    assert host.container is None
    assert [(b.backend, b.code) for b in host.blockers if b.backend == RUNTIME] == [(RUNTIME, "image")]


def test_limits_are_claimed_from_what_was_read_inside() -> None:
    facts = container_host().container
    assert facts is not None
    shown = "{{.Host.CgroupControllers}}" if RUNTIME == "podman" else "{{.MemoryLimit}} {{.PidsLimit}}"
    said = engine("info", "--format", shown)
    expected = ("memory" in said, "pids" in said) if RUNTIME == "podman" else (said == "true true\n",) * 2
    assert (facts.memory, facts.pids) == expected
