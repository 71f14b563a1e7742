"""Where the daemon listens, and the home it takes."""

from __future__ import annotations

import stat
from pathlib import Path

from palyra.daemon.places import take_home


def test_a_home_the_daemon_makes_is_open_to_its_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    take_home(home).release()
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (home, home / "run")] == [0o700, 0o700]
