"""`[cluster]`: the state on a server, and calls on other machines. Needs `pip install palyra[cluster]`.

Not here: using these values (cluster, wiring/cluster).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """`[cluster]`."""

    database: str = ""
    """PostgreSQL, in libpq's words: "host=db.internal dbname=palyra user=palyra sslmode=verify-full". Never a password:
    a pgpass file, or a certificate. Empty: the state is in the home."""
    nodes: str = ""
    """The address of Ray's head, "10.0.0.1:6379", behind token authentication. Empty: calls run where the daemon is."""
    blobs: str = ""
    """A folder that every machine sees, for workspaces by digest. Wanted with `nodes`."""
    node_folder: str = "/var/lib/palyra-node"
    """On each node: its key, and the copies of workspaces while calls run in them."""
    slots: int = 4
    """Calls at once on the node that `palyra cluster up` makes of this machine."""


RANGES = {"slots": (1, 1024)}


def complain(config: ClusterConfig) -> tuple[str, str] | None:
    """(key, sentence) about the first setting that cannot be; None when all is well."""
    words = config.database.lower()
    if "password" in words or ("://" in words and "@" in words and ":" in words.split("@", 1)[0].split("://", 1)[1]):
        return "database", "cluster.database holds a password: keep it in a pgpass file."
    if config.nodes and not config.database:
        return "nodes", "cluster.nodes needs cluster.database: nodes answer to one journal."
    if config.nodes and not config.blobs.startswith("/"):
        return "blobs", "cluster.nodes needs cluster.blobs: an absolute folder that every machine sees."
    if not config.node_folder.startswith("/"):
        return "node_folder", "cluster.node_folder must be an absolute folder."
    return None
