"""The attempts of `doctor --prove` can fail: outside a sandbox most of them succeed and say so."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

from palyra.inside import escapes


def test_without_a_sandbox_the_attempts_succeed(tmp_path: Path) -> None:
    """The negative control: a check that cannot fail proves nothing."""
    workspace = tmp_path / "workspace"
    (workspace / ".git" / "hooks").mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0palyra-{os.getpid()}")
        abstract.listen()
        given = {
            "secret": str(secret),
            "state_home": str(tmp_path),
            "home": str(tmp_path),
            "port": server.getsockname()[1],
            "abstract": f"palyra-{os.getpid()}",
        }
        argv = ["/usr/bin/python3", "-I", "-S", str(escapes.__file__), json.dumps(given)]
        done = subprocess.run(argv, cwd=workspace, capture_output=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    possible = {name for name, result in found.items() if result != escapes.HELD}
    assert {
        "read a secret outside",
        "list the state folder",
        "list the home folder",
        "write beside the workspace",
        "plant a hook",
        "rename a protected folder away",
        "reach a port of this machine",
        "reach an abstract socket",
        "call io_uring",
        "open a netlink socket",
    } <= possible
    assert os.geteuid() != 0 or "change an interface" in possible
    left = [folder for folder in ("/", "/usr", "/etc", "/var", "/home") if os.path.lexists(f"{folder}/palyra-new")]
    assert left == [], "the attempts take away what they made"
