"""Tells whoever manages services (systemd's `Type=notify`) how the daemon stands. Without one it does nothing.

The name of the socket is a word of the environment that the manager set; the daemon starts nothing with its own
environment, so no child can speak in its name.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

READY, STOPPING = "READY=1", "STOPPING=1"


def tell_manager(word: str) -> None:
    place = os.environ.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    address = "\0" + place[1:] if place.startswith("@") else place
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as line:
        line.sendto(word.encode(), address)
