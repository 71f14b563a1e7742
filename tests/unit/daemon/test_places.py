"""Where the daemon listens, and the home it takes."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

from palyra.daemon.places import SOCKET, forget_pointer, open_unix, point_at, take_home


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
