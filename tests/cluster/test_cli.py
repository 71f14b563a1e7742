"""`palyra cluster` as an operator uses it: a head on loopback, a call on its node, drained, and down again."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.cluster.operating import palyra, told
from tests.postgres import url_of


def free_port() -> int:
    """Below Ray's own ports for workers."""
    for port in range(6500, 7000):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise RuntimeError("no port is free")


def test_a_machine_comes_up_runs_a_call_drains_and_goes_down(home, folder):
    home.mkdir(mode=0o700)
    port = free_port()
    (folder / "work").mkdir()
    (home / "palyra.toml").write_text(
        f"[cluster]\ndatabase = '{url_of(home)}'\nnodes = '127.0.0.1:{port}'\nnode_folder = '{folder}/node'\n"
        f"slots = 2\n[cluster.blobs]\nfolder = '{folder}/blobs'\n"
    )
    up = told(palyra(home, "cluster", "up", "--address", f"127.0.0.1:{port}", "--json"))
    try:
        assert (home / "state" / "ray.token").stat().st_mode & 0o777 == 0o600
        assert palyra(home, "cluster", "up", "--address", f"127.0.0.1:{port}").returncode != 0
        (node,) = told(palyra(home, "cluster", "status", "--json"))["items"]
        assert (node["busy"], node["slots"], node["draining"]) == (0, 2, False)
        given = json.dumps({"command": "mkdir", "args": ["made"]})
        words = ("call", "palyra.process.run", given, "--workspace", str(folder / "work"), "--json")
        outcome = told(palyra(home, *words))
        assert (outcome["success"], outcome["output"]["node"]["node_id"]) == (True, node["node_id"])
        assert (folder / "work" / "made").is_dir()
        explained = told(palyra(home, "sandbox", "explain", "--workspace", str(folder / "work"), "--json", "--", "ls"))
        assert explained["where"] == "a node of the cluster"
        assert len(node["key"]) == 64
        assert told(palyra(home, "cluster", "drain", node["node_id"], "--json"))["running"] == 0
        assert palyra(home, "cluster", "drain", "nobody").returncode == 1
        assert told(palyra(home, "journal", "verify", "--json"))["ok"] is True
    finally:
        assert told(palyra(home, "cluster", "down", "--json")) == {"stopped": True}
    assert not Path(f"/proc/{up['pid']}/cmdline").exists() or not Path(f"/proc/{up['pid']}/cmdline").read_bytes()
    assert told(palyra(home, "cluster", "down", "--json")) == {"stopped": False}
