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


def config_stamp(home: Path) -> list[object] | None:
    """Which file is the configuration, and which state of it; None where there is none."""
    for path in (home / "palyra.toml", SYSTEM_FILE):
        try:
            found = path.stat()
        except OSError:
            continue
        return [str(path), found.st_mtime_ns, found.st_size]
    return None


def write_note(home: Path, *, socket_path: Path, url: str, config_file: str | None) -> None:
    """`config_file`: one that was named by hand; nobody else would read that one."""
    stamp = [config_file] if config_file is not None else config_stamp(home)
    note = {"pid": os.getpid(), "socket": str(socket_path), "url": url, "config": stamp}
    fresh = home / "run" / f".{NOTE}.{os.getpid()}"
    fresh.write_text(json.dumps(note))
    fresh.rename(home / "run" / NOTE)


def read_note(home: Path) -> dict[str, object] | None:
    try:
        with (home / "run" / NOTE).open("rb") as file:
            found = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def find_socket(home: Path) -> str | None:
    """Of a daemon that is up and would decide as this process would."""
    note = read_note(home)
    if note is None or note.get("config") != config_stamp(home):
        return None
    path = str(note.get("socket"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_CONNECT_S)
            probe.connect(path)
            return path if is_believed(probe, path, owner_uid=home.stat().st_uid) else None
    except OSError:
        return None
