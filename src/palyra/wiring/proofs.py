"""Touches: HOME/proof.json. The newest proof of the sandbox, signed by the installation; read at each start.

A proof that is not signed by this installation, or was made on another host, before the last boot, with another
launcher file or in another profile, counts for nothing: a home that was copied to a machine of the same kernel brings
no proof along. Of the calls that are made here it speaks for those of its own profile (sandbox/proven).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from palyra.canon import Json
from palyra.errors import TrustError, Unenforceable
from palyra.model.host import HostFacts
from palyra.sandbox.probe_trial import read_file
from palyra.signing import PublicKey, dsse_verify

if TYPE_CHECKING:
    from palyra.sandbox.proven import Proven

PAYLOAD_TYPE = "application/vnd.palyra.proof+json"
_NAME = "proof.json"
_MAX_BYTES = 1 << 20


def write_proof(root: Path, envelope: dict[str, object]) -> None:
    from palyra.state.whole import write_whole

    write_whole(root / _NAME, orjson.dumps(envelope))


def seen_of(host: HostFacts) -> Json:
    """This machine since it was booted, and the launcher's very file. OSError where that is gone."""
    if host.bubblewrap is None:
        return None
    file = os.stat(host.bubblewrap.path)
    boot = read_file("/proc/sys/kernel/random/boot_id").strip()
    return [boot, *(str(part) for part in (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns))]


def current_proof(root: Path, key: PublicKey, host: HostFacts, *, version: str) -> Proven | None:
    """What attestations may refer to, while the proof is ours and fits this host and profile."""
    try:
        with (root / _NAME).open("rb") as stream:
            data = stream.read(_MAX_BYTES)
        seen = seen_of(host)
    except OSError:
        return None
    from palyra.sandbox.proof import fingerprint_of, parse_proof, proven_by  # a home without one needs nothing of it

    try:
        kind, payload = dsse_verify(orjson.loads(data), key)
        proof = parse_proof(orjson.loads(payload))
        fits = proof.fingerprint == fingerprint_of(host, version=version, seen=seen)
    except (TrustError, ValueError, Unenforceable):
        return None
    return proven_by(proof, host) if kind == PAYLOAD_TYPE and proof.holds and fits else None
