"""`palyra run --learn` with real programs: what it advises is enough, and it advises nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import Cli

LEARN = ("run", "--learn", "--allow-interpreters")


def learned(cli: Cli, *words: str) -> Any:
    return json.loads(cli(*LEARN, "--json", "--", *words).stdout)["output"]["learned"]


def test_what_is_advised_is_enough_and_the_least(cli: Cli) -> None:
    wanted = next((path for path in ("/etc/shells", "/etc/hostname", "/etc/fstab") if os.path.isfile(path)), None)
    if wanted is None:
        pytest.skip("this host has none of these files")
    (cli.workspace / "job.py").write_text(f"print(len(open({wanted!r}).read()))")
    assert learned(cli, "python3", "job.py")["grant"]["read_roots"] == [wanted]
    assert cli("run", "--allow-interpreters", "--", "python3", "job.py").returncode == 1
    done = cli("run", "--allow-interpreters", "--read", wanted, "--", "python3", "job.py")
    assert (done.returncode, done.stdout) == (0, b"%d\n" % len(Path(wanted).read_text()))


def test_grandchildren_threads_and_relative_paths_are_seen(cli: Cli) -> None:
    script = """
import os, subprocess, threading
os.chdir("/")
def read(): open("etc/shells")
def _try(work):
    try: work()
    except OSError: pass
thread = threading.Thread(target=_try, args=(read,)); thread.start(); thread.join()
subprocess.run(["sh", "-c", "cat /etc/login.defs"], stderr=subprocess.DEVNULL)
"""
    (cli.workspace / "job.py").write_text(script)
    missing = [path for path in ("/etc/shells", "/etc/login.defs") if os.path.exists(path)]
    if not missing:
        pytest.skip("this host has neither file")
    assert set(missing) <= set(learned(cli, "python3", "job.py")["read"])


def test_hosts_come_from_the_egress_records(cli: Cli) -> None:
    (cli.workspace / "job.py").write_text(
        "import socket\ntry: socket.getaddrinfo('registry.example.org', 443)\nexcept OSError: pass\n"
    )
    assert learned(cli, "python3", "job.py")["grant"]["allowed_egress_hosts"] == ["registry.example.org"]


def test_streams_exit_codes_and_signals_are_the_programs_own(cli: Cli) -> None:
    done = cli(*LEARN, "--", "sh", "-c", "cat; echo out; exit 7", stdin=b"in ")
    assert (done.returncode, done.stdout) == (7, b"in out\n")
    assert cli(*LEARN, "--", "sh", "-c", "kill -SEGV $$").returncode == 128 + signal.SIGSEGV
    piped = cli(*LEARN, "--", "sh", "-c", "trap '' PIPE; trap - PIPE; (kill -PIPE $$)")
    assert piped.returncode == 128 + signal.SIGPIPE


def test_a_program_that_kills_its_watcher_gains_nothing(cli: Cli) -> None:
    done = cli(*LEARN, "--json", "--", "sh", "-c", "kill -9 $PPID; cat /etc/shadow")
    assert b"root:" not in done.stdout
    assert done.returncode != 0


def test_a_program_that_closes_its_memory_runs_on_and_is_said_to_be_unseen(cli: Cli) -> None:
    (cli.workspace / "job.py").write_text(
        "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        "try: open('/etc/protocols-of-nobody')\nexcept OSError: print('went on')\n"
    )
    done = cli(*LEARN, "--json", "--", "python3", "job.py")
    outcome = json.loads(done.stdout)
    assert (done.returncode, outcome["output"]["stdout"]) == (0, "went on\n")
    assert outcome["output"]["learned"]["problem"] is None


def test_a_refused_program_is_refused_watched_or_not(cli: Cli) -> None:
    done = cli("run", "--learn", "--", "python3", "-V")
    assert (done.returncode, done.stderr.split(b":")[1]) == (126, b" INTERPRETER_DENIED")
    plain = cli("run", "--learn", "--tier", "b", "--", "true")
    assert (plain.returncode, plain.stderr.split(b":")[1]) == (126, b" UNENFORCEABLE")


def test_people_get_flags_and_settings_and_no_text_of_a_policy(cli: Cli) -> None:
    (cli.workspace / "job.py").write_text(
        "import socket\ntry: socket.getaddrinfo('a.example', 1)\nexcept OSError: pass"
    )
    said = cli(*LEARN, "--as", "agent:ci", "--", "python3", "job.py").stderr.decode()
    assert "palyra run --as agent:ci --allow-interpreters --allow-host a.example \\\n    -- python3 job.py" in said
    assert '  allowed_egress_hosts = ["a.example"]' in said
    assert "forbid" not in said, "what one call may do is palyra policy allow's"


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_static_program_is_seen_like_any_other(cli: Cli) -> None:
    source = '#include <fcntl.h>\nint main(void) { return open("/etc/shells", O_RDONLY) < 0 ? 3 : 0; }\n'
    built = subprocess.run(
        ["cc", "-static", "-x", "c", "-", "-o", str(cli.workspace / "static")],
        input=source.encode(),
        capture_output=True,
    )
    if built.returncode or not os.path.exists("/etc/shells"):
        pytest.skip("no static C library, or no such file")
    (cli.workspace / "run.sh").write_text("./static")
    assert "/etc/shells" in learned(cli, "sh", "run.sh")["read"]
