"""`[cluster]`: the state on a server, and calls on other machines. Needs the extra `palyra[cluster]`.

Not here: using these values (cluster, wiring/cluster).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import field
from urllib.parse import urlsplit

from palyra.config.credentials import SECRET_NAME
from palyra.late import late
from palyra.values import dataclass

_BUCKET = late(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")
_REGION = late(r"[a-z0-9-]{1,64}")
_PREFIX = late(r"(?:[A-Za-z0-9][A-Za-z0-9._-]{0,63}/){0,8}")
_ACCESS_KEY = late(r"[A-Za-z0-9._+=@-]{0,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobsConfig:
    """`[cluster.blobs]`: where workspaces lie by digest, for every machine. A folder, or an S3-compatible store."""

    folder: str = ""
    """A folder that every machine sees. Needed with `cluster.nodes`, unless `endpoint` is set."""
    endpoint: str = ""
    """An S3-compatible store: "https://s3.internal:9000". http:// only for loopback. Addresses are path-style."""
    bucket: str = ""
    """The bucket, which must exist; with `endpoint`."""
    region: str = "us-east-1"
    """The store's region; it is part of what is signed."""
    prefix: str = ""
    """What every object's name begins with: "palyra/blobs/"."""
    access_key: str = ""
    """The key's id. Empty: AWS_ACCESS_KEY_ID of the daemon's environment, with AWS_SECRET_ACCESS_KEY and, if set,
    AWS_SESSION_TOKEN. No other variable is read."""
    secret: str = ""
    """With `access_key`: the name of the vault's secret that is the secret key. Scope it to the tool
    `cluster.blobs`, so that no call may use it. Nodes get it encrypted to their own key."""
    ca_file: str = ""
    """The certificate authorities for the store, as PEM, on every machine. Empty: the system's."""

    @property
    def is_remote(self) -> bool:
        return bool(self.endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """`[cluster]`."""

    database: str = ""
    """A PostgreSQL connection string: "host=db.internal dbname=palyra user=palyra sslmode=verify-full". Never a
    password: a pgpass file, or a certificate. Empty: the state is in the home."""
    nodes: str = ""
    """The address of Ray's head, "10.0.0.1:6379", behind token authentication. Empty: calls run where the daemon is."""
    node_folder: str = "/var/lib/palyra-node"
    """On each node: its key, and the copies of workspaces while calls run in them."""
    lines: bool = True
    """Send orders to a node over a direct connection, to a port it opens on Ray's address for daemons of this cluster
    only: a short call is twice as fast. Where that port cannot be reached, and with false, orders go through Ray."""
    node_keys: tuple[str, ...] = ()
    """Public keys of machines that may be nodes, as `palyra cluster status` shows them. Empty: any that joined Ray."""
    slots: int = 4
    """Calls at once on the node that `palyra cluster up` makes of this machine."""
    segments: str = ""
    """A folder that every daemon sees, for the files that `palyra journal retain --entries-days` seals old entries
    into. Empty: entries are not sealed."""
    blobs: BlobsConfig = field(default_factory=BlobsConfig)


STAYS = {
    "calls with granted hosts": "their credentials and the record of each connection are the daemon's",
    "WASM guests": "what they may ask for (secrets, storage, hosts) is answered by the daemon",
    "background processes": "they outlive their call, and a node forgets a call when it ends",
    "streamed stdin": "its source is a client of the daemon",
    "tiers A and B": "a node offers bubblewrap sandboxes only",
}
"""What is never sent to a node, and why."""
RANGES = {"slots": (1, 1024)}


def complain(config: ClusterConfig) -> tuple[str, str] | None:
    """(key, sentence) about the first setting that cannot be; None when all is well."""
    words = config.database.lower()
    if "password" in words or ("://" in words and "@" in words and ":" in words.split("@", 1)[0].split("://", 1)[1]):
        return "database", "cluster.database holds a password: keep it in a pgpass file."
    if config.nodes and not config.database:
        return "nodes", "cluster.nodes needs cluster.database: nodes answer to one journal."
    if config.nodes and not (config.blobs.folder or config.blobs.endpoint):
        return "blobs", "cluster.nodes needs [cluster.blobs]: a folder that every machine sees, or an endpoint."
    if not config.node_folder.startswith("/"):
        return "node_folder", "cluster.node_folder must be an absolute folder."
    if not all(re.fullmatch("[0-9a-f]{64}", key) for key in config.node_keys):
        return "node_keys", "cluster.node_keys lists public keys: 64 hexadecimal digits each."
    if config.segments and not config.segments.startswith("/"):
        return "segments", "cluster.segments must be an absolute folder."
    complaint = _complain_of_blobs(config.blobs)
    return ("blobs", f"cluster.blobs.{complaint}") if complaint else None


def _complain_of_blobs(blobs: BlobsConfig) -> str:
    if blobs.folder and blobs.endpoint:
        return "endpoint and cluster.blobs.folder are both set: blobs have one place."
    if blobs.folder and not blobs.folder.startswith("/"):
        return "folder must be absolute."
    if not blobs.endpoint:
        return ""
    if not _is_address(blobs.endpoint):
        return "endpoint must be https://HOST[:PORT], or http:// on loopback, without a user, a query or a password."
    if not (_BUCKET.fullmatch(blobs.bucket) and _REGION.fullmatch(blobs.region) and _PREFIX.fullmatch(blobs.prefix)):
        return "bucket, region or prefix has characters it may not have; a prefix is words, each followed by a /."
    if bool(blobs.access_key) != bool(blobs.secret):
        return "access_key and cluster.blobs.secret go together."
    if not _ACCESS_KEY.fullmatch(blobs.access_key) or (blobs.secret and not SECRET_NAME.fullmatch(blobs.secret)):
        return "secret is the name of a secret in the vault, never its value."
    return "ca_file must be absolute." if blobs.ca_file and not blobs.ca_file.startswith("/") else ""


def _is_address(endpoint: str) -> bool:
    try:
        parts = urlsplit(endpoint)
        port = parts.port
    except ValueError:
        return False
    if not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment or port == 0:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname))


def _is_loopback(host: str) -> bool:
    """By its number, or the one name that means it everywhere: any other could be resolved to elsewhere."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
