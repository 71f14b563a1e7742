"""Touches: a home's run folder. Is there a daemon for this home, and would it decide by the same configuration?

The daemon leaves a note of where it listens and which configuration it read. Rules: nothing is asked of a daemon whose
note is missing, whose configuration is another one by now, which does not answer, or is another user's (the note may be
older than the last start of the machine, and the socket's name anybody's since): then the home is opened here.
"""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

from palyra.config.load import SYSTEM_FILE
from palyra.wiring.peers import is_believed

NOTE = "palyrad.json"
_MAX_BYTES = 65_536
_CONNECT_S = 2.0


Stamp = list[object] | None


def config_stamp(home: Path, named: str | None = None) -> Stamp:
    """Which file is the configuration, and which state of it; None where there is none. `named`: by hand, so nobody
    else would read that one: its stamp is like no other. To be taken before the file is read."""
    for path in (home / "palyra.toml", SYSTEM_FILE) if named is None else (Path(named),):
        try:
            found = path.stat()
        except OSError:
            continue
        stamp = [str(path.absolute()), found.st_mtime_ns, found.st_size]
        return stamp if named is None else [*stamp, "named"]
    return None


def write_note(home: Path, *, socket_path: Path, url: str, config: Stamp) -> None:
    note = {"pid": os.getpid(), "socket": str(socket_path), "url": url, "config": config, "home": _identity(home)}
    fresh = home / "run" / f".{NOTE}.{os.getpid()}"
    fresh.write_text(json.dumps(note))
    fresh.rename(home / "run" / NOTE)


def read_note(home: Path) -> dict[str, object] | None:
    try:
        with (home / "run" / NOTE).open("rb") as file:
            found = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None
    # A home that was copied brings the note along, and would be served by the daemon of the one it was copied from.
    return found if isinstance(found, dict) and found.get("home") == _identity(home) else None


def _identity(home: Path) -> list[int]:
    found = home.stat()
    return [found.st_dev, found.st_ino]


def decides_by_older(home: Path) -> bool:
    """Whether a daemon is up that read its configuration before it was last changed: what was taken out of it since,
    agents still get from that daemon."""
    note = read_note(home)
    config = note.get("config") if note is not None else None
    named = str(config[0]) if isinstance(config, list) and config[3:] == ["named"] else None
    return note is not None and config != config_stamp(home, named) and _answers(home, note) is not None


def find_socket(home: Path) -> str | None:
    """Of a daemon that is up and would decide as this process would."""
    note = read_note(home)
    return _answers(home, note) if note is not None and note.get("config") == config_stamp(home) else None


def _answers(home: Path, note: dict[str, object]) -> str | None:
    path = str(note.get("socket"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_CONNECT_S)
            probe.connect(path)
            return path if is_believed(probe, path, owner_uid=home.stat().st_uid) else None
    except OSError:
        return None
