"""A disk that is full, read-only, or closed to us: refused with the cause by name, and sound again afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.command_line import Cli
from tests.faults.conftest import check_said

STORY = """
import json, subprocess, sys
disk, workspace = sys.argv[1], sys.argv[2]

def palyra(*words, home="home", stdin=b""):
    argv = [sys.executable, "-m", "palyra", "--home", f"{disk}/{home}", *words]
    done = subprocess.run(argv, cwd=workspace, input=stdin, capture_output=True)
    print(json.dumps([list(words), done.returncode, done.stdout.decode(), done.stderr.decode()]), flush=True)

def fill(chunk=1 << 16):
    with open(f"{disk}/fill", "ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(chunk))
        except OSError:
            pass
"""
TRIED = """
palyra("run", "--", "echo", "first")
{fails}
palyra("run", "--", "echo", "now")
palyra("call", "palyra.echo", "{{}}")
palyra("secrets", "set", "name", stdin=b"a long secret")
palyra("gc")
palyra("journal", "export", "--output", f"{{disk}}/export.jsonl")
palyra("run", "--", "echo", "new", home="new")
palyra("journal", "verify")
{mends}
palyra("run", "--", "echo", "again")
palyra("secrets", "list", "--json")
palyra("run", "--", "echo", "made", home="new")
palyra("journal", "verify")
"""
REMOUNT = 'subprocess.run(["mount", "-o", "remount,bind,{}", disk], check=True)'
FULL = STORY + TRIED.format(fails="fill()", mends='import os; os.unlink(f"{disk}/fill")')
READ_ONLY = STORY + TRIED.format(fails=REMOUNT.format("ro"), mends=REMOUNT.format("rw"))


@pytest.mark.slow
@pytest.mark.parametrize(("story", "cause"), [(FULL, "full"), (READ_ONLY, "read-only")])
def test_a_disk_that_takes_nothing_refuses_by_name_and_is_sound_afterwards(
    cli: Cli, own_mounts: tuple[str, ...], tmp_path: Path, story: str, cause: str
) -> None:
    import sys

    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=5m,mode=700 none '{disk}' && exec \"$@\""
    argv = [*own_mounts, "sh", "-c", mount, "sh", sys.executable, "-c", story, str(disk), str(cli.workspace)]
    done = subprocess.run(argv, env=cli.environ, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    first, *refused, verified, again, secrets, made, at_last = steps
    assert (first[1:3], again[1:3], made[1:3]) == ([0, "first\n"], [0, "again\n"], [0, "made\n"])
    for words, returncode, stdout, stderr in refused:
        assert returncode not in (0, 1), words
        assert stdout == "", words
        check_said(stderr.encode(), code="JOURNAL_DOWN: " if words[0] in ("run", "call") else "")
    assert all(cause in step[3] for step in (refused[0], refused[2]))
    assert (verified[1], at_last[1]) == (0, 0)
    assert json.loads(secrets[2])["items"] == []


KEPT = (
    STORY
    + """
import os, signal, time
def begin(seconds):
    given = {"command": "sleep", "args": [seconds], "background": True, "lifetime": "detached"}
    palyra("call", "palyra.process.run", json.dumps(given))
begin("2.11"), begin("600.12")
file, until = os.open(f"{disk}/fill", os.O_WRONLY | os.O_CREAT), time.monotonic() + 6
while time.monotonic() < until:  # what is kept in reserve for ends, too
    try:
        os.write(file, bytes(4096))
    except OSError:
        time.sleep(0.0005)
os.unlink(f"{disk}/fill"), os.close(file)
time.sleep(5)
palyra("ps", "--all", "--json")
begin("600.13")
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{name}/cmdline", "rb").read()
    except OSError:
        continue
    if f"{disk}/home".encode() in words and b"palyra.wiring.keeper" in words:
        os.kill(int(name), signal.SIGTERM)
while os.path.exists(f"{disk}/home/run/keeper.sock"):
    time.sleep(0.05)
time.sleep(1)
palyra("ps", "--all", "--json")
palyra("journal", "verify")
"""
)


@pytest.mark.slow
def test_a_keeper_outlives_a_disk_that_was_full_for_a_while(
    cli: Cli, own_mounts: tuple[str, ...], tmp_path: Path
) -> None:
    """What had ended meanwhile was shown as running, could not be stopped, and nothing else could be started, until the
    last process it kept had ended; then all of them were lost."""
    import sys

    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=12m,mode=700 none '{disk}' && exec \"$@\""
    argv = [*own_mounts, "sh", "-c", mount, "sh", sys.executable, "-c", KEPT, str(disk), str(cli.workspace)]
    done = subprocess.run(argv, env=cli.environ, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(step[1], step[3]) for step in steps if step[1]] == []
    listed = [[item["status"] for item in json.loads(steps[at][2])["items"]] for at in (2, 4)]
    assert listed == [["running", "exited"], ["stopped", "stopped", "exited"]]


SERVED = (
    STORY
    + """
import http.client, os, socket, time

class Line(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(f"{disk}/home/run/palyrad.sock")

def ask(path, body=None):
    line = Line("localhost", timeout=60)
    line.request("POST" if body else "GET", path, json.dumps(body) if body else None)
    answer = line.getresponse()
    return answer.status, json.loads(answer.read())

def made():
    return ask("/v1/calls", {"tool": "palyra.echo", "input": {"a": 1}, "workspace": workspace})

def call():
    status, outcome = made()
    print(json.dumps([status, outcome["status"], ask("/healthz")[1]["status"]]), flush=True)

palyra("run", "--", "echo", "first")
argv = [sys.executable, "-m", "palyra", "--home", f"{disk}/home", "serve", "--port", "0", "--quiet"]
daemon = subprocess.Popen(argv, stderr=subprocess.PIPE)
while not os.path.exists(f"{disk}/home/run/palyrad.json"):
    assert daemon.poll() is None, daemon.stderr.read()
    time.sleep(0.05)
call()
for _ in range(100):  # the log had a little room of its own
    fill(4096)
    if made()[0] != 200:
        break
call(), call()
os.unlink(f"{disk}/fill")
while ask("/healthz")[0] != 200:
    time.sleep(0.05)
call(), call()
palyra("journal", "verify")
with open(f"{disk}/home/state/palyra.db", "r+b") as file:
    file.write(bytes(65536))
call()
code = daemon.wait(60)
print(json.dumps([code, daemon.stderr.read().decode()]))
"""
)


@pytest.mark.slow
def test_a_daemon_goes_on_after_a_full_disk_and_ends_after_a_journal_that_failed(
    cli: Cli, own_mounts: tuple[str, ...], tmp_path: Path
) -> None:
    """It answered 503 until it was restarted by hand, and acknowledged calls into a database that was overwritten."""
    import sys

    disk = tmp_path / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=8m,mode=700 none '{disk}' && exec \"$@\""
    argv = [*own_mounts, "sh", "-c", mount, "sh", sys.executable, "-c", SERVED, str(disk), str(cli.workspace)]
    done = subprocess.run(argv, env=cli.environ, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr
    _, first, full, still_full, again, once_more, verified, overwritten, ended = map(
        json.loads, done.stdout.splitlines()
    )
    assert first == [200, "completed", "ok"]
    assert full == still_full == [503, "refused", "disk_full"]
    assert again == once_more == [200, "completed", "ok"]
    assert verified[1] == 0, verified
    assert overwritten == [503, "refused", "journal_failed"]
    assert ended[0] not in (0, None)
    assert "was overwritten or truncated while it was in use" in ended[1]
    assert "Traceback" not in ended[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_state_this_user_may_not_write_is_said_to_be_so(cli: Cli) -> None:
    assert cli("run", "--", "true").returncode == 0
    (cli.home / "state").chmod(0o500)
    try:
        done = cli("run", "--", "echo", "x")
        check_said(done.stderr, code="JOURNAL_DOWN: ")
        assert (done.returncode, done.stdout) == (126, b"")
        assert cli("journal", "verify").returncode == 0
    finally:
        (cli.home / "state").chmod(0o700)
    assert cli("run", "--", "true").returncode == 0
