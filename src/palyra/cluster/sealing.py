"""The blob store's credentials, on their way from a daemon to a node: sealed to a key that only the node has.

They pass through Ray, which keeps and logs what it carries. Rules: the node makes an X25519 key when it starts, holds
it in memory alone, and signs its public half with its own key; a daemon seals to that half and signs the box with the
cluster's key, so a node takes credentials from its daemons only. A box opens on one node, of one start, alone.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from palyra.canon import Json, canonical
from palyra.errors import TrustError
from palyra.signing import PublicKey, SigningKey, dsse_sign, dsse_verify

BOX_TYPE = "application/vnd.palyra.box+json"
LOCK_TYPE = "application/vnd.palyra.lock+json"
_NONCE_BYTES = 12


class Lock:
    """The node's side."""

    def __init__(self, node_id: str, key: SigningKey) -> None:
        self._node_id, self._private = node_id, X25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw()
        told = canonical({"node_id": node_id, "lock": self.public.hex()})
        self.shown: dict[str, Json] = dsse_sign(key, LOCK_TYPE, told)

    def open(self, envelope: object, cluster_key: PublicKey) -> Mapping[str, Any]:
        told = _payload(envelope, cluster_key, BOX_TYPE)
        if (told.get("node_id"), told.get("lock")) != (self._node_id, self.public.hex()):
            raise TrustError("The box is for another node.")
        try:
            ephemeral, sealed = (base64.b64decode(str(told.get(name)), validate=True) for name in ("from", "sealed"))
            shared = self._private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            cipher = AESGCM(_derive(shared, ephemeral, self.public))
            opened = orjson.loads(cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._node_id.encode()))
        except (ValueError, InvalidTag) as error:
            raise TrustError("The box cannot be opened.") from error
        if not isinstance(opened, dict):
            raise TrustError("The box holds something unexpected.")
        return opened


def seal(value: Mapping[str, Json], shown: object, *, node_id: str, node_key: PublicKey, key: SigningKey) -> bytes:
    """A box for the node that showed this lock."""
    told = _payload(shown, node_key, LOCK_TYPE)
    if told.get("node_id") != node_id:
        raise TrustError("The lock belongs to another node.")
    try:
        lock = bytes.fromhex(str(told.get("lock")))
        private = X25519PrivateKey.generate()
        ephemeral = private.public_key().public_bytes_raw()
        shared = private.exchange(X25519PublicKey.from_public_bytes(lock))
    except ValueError as error:
        raise TrustError("The lock is not a key.") from error
    nonce = os.urandom(_NONCE_BYTES)
    sealed = nonce + AESGCM(_derive(shared, ephemeral, lock)).encrypt(nonce, canonical(dict(value)), node_id.encode())
    box: dict[str, Json] = {
        "node_id": node_id,
        "lock": lock.hex(),
        "from": base64.b64encode(ephemeral).decode("ascii"),
        "sealed": base64.b64encode(sealed).decode("ascii"),
    }
    return canonical(dsse_sign(key, BOX_TYPE, canonical(box)))


def _derive(shared: bytes, ephemeral: bytes, lock: bytes) -> bytes:
    return HKDF(algorithm=SHA256(), length=32, salt=ephemeral + lock, info=b"palyra-box/v1").derive(shared)


def _payload(envelope: object, key: PublicKey, kind: str) -> Mapping[str, Any]:
    payload_type, payload = dsse_verify(envelope, key)
    if payload_type != kind:
        raise TrustError("The envelope holds an unexpected payload.")
    value = orjson.loads(payload)
    if not isinstance(value, dict):
        raise TrustError("The envelope holds an unexpected payload.")
    return value
