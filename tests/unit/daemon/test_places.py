"""Where the daemon listens, and the home it takes."""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.config.daemon import DaemonConfig
from palyra.daemon import port_holder
from palyra.daemon.places import SOCKET, forget_pointer, open_tcp, open_unix, point_at, take_home
from palyra.errors import ConfigError


def test_a_home_the_daemon_makes_is_open_to_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    take_home(home).release()
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (home, home / "run")] == [0o700, 0o700]


def test_a_socket_elsewhere_is_found_from_where_it_would_be(tmp_path: Path) -> None:
    take_home(tmp_path / "home").release()
    usual, elsewhere = tmp_path / "home" / "run" / SOCKET, tmp_path / "other.sock"
    with open_unix(elsewhere), socket.socket(socket.AF_UNIX) as line:
        for _ in range(2):
            point_at(tmp_path / "home", elsewhere)
        line.connect(str(usual))
    forget_pointer(tmp_path / "home")
    assert not usual.is_symlink()
    with open_unix(usual):
        point_at(tmp_path / "home", usual)
        forget_pointer(tmp_path / "home")
        assert usual.is_socket(), "the socket itself stays"


def test_a_port_that_is_taken_names_its_holder_and_a_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            open_tcp(replace(DaemonConfig(), host="127.0.0.1", port=port))
    assert f"Port {port} of 127.0.0.1 is taken (process {os.getpid()}, " in caught.value.detail
    named = re.search(r"--port (\d+)", caught.value.hint or "")
    assert named is not None
    assert port < int(named[1]) <= 65535


def test_where_nothing_is_known_of_the_holder_the_port_is_still_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_holder, "_listening", lambda table, port: [])
    assert port_holder.describe_holder(1) == ""


def test_of_the_holder_no_more_than_its_name_is_shown() -> None:
    """Any other word of it may be a secret."""
    words = [sys.executable, "-c", "print('up', flush=True); input()", "hunter2", "--token", "hunter3"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"  # before it has become the program it has no words
        assert port_holder._name(str(process.pid)) == os.path.basename(sys.executable)
        process.kill()
