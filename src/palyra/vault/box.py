"""The vault's envelope: each value under a key of its own, each such key under the master key, all of it bound.

AES-256-GCM throughout. What a secret is bound to (the vault, its name, version, scope, host) is authenticated with both
layers, so nothing can be moved, renamed, rebound or put back from an older version without the master key. Wrong keys
and changed bytes are one error, without a word about which.

Not here: where the master key comes from (keys), the file (store).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
from collections.abc import Mapping

from palyra.canon import Json, canonical
from palyra.errors import StateError

KEY_BYTES = 32
_NONCE_BYTES = 12


class VaultBroken(StateError):
    """The vault cannot be trusted: another key, or bytes that were changed."""


def seal(master: bytes, value: bytes, *, bound: Mapping[str, Json]) -> dict[str, str]:
    own = os.urandom(KEY_BYTES)
    return {
        "key": _encrypt(master, own, _about(bound, "key")),
        "value": _encrypt(own, value, _about(bound, "value")),
    }


def unseal(master: bytes, sealed: Mapping[str, Json], *, bound: Mapping[str, Json]) -> bytes:
    own = _decrypt(master, sealed.get("key"), _about(bound, "key"))
    return _decrypt(own, sealed.get("value"), _about(bound, "value"))


def mac(master: bytes, content: Mapping[str, Json]) -> str:
    """Over everything the file says: an entry that is missing is noticed too."""
    own = hmac.new(master, b"palyra-vault/v1/mac", hashlib.sha256).digest()
    return hmac.new(own, canonical(content), hashlib.sha256).hexdigest()


def same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


def _about(bound: Mapping[str, Json], part: str) -> bytes:
    return canonical({"palyra-vault": 1, "part": part, "bound": dict(bound)})


def _encrypt(key: bytes, data: bytes, about: bytes) -> str:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # most homes have no vault

    nonce = os.urandom(_NONCE_BYTES)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, data, about)).decode("ascii")


def _decrypt(key: bytes, text: Json, about: bytes) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        raw = base64.b64decode(str(text), validate=True)
        return AESGCM(key).decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], about)
    except (InvalidTag, ValueError):
        raise VaultBroken(
            "The vault cannot be opened: its key is not the right one, or the file was changed.",
            "Restore the vault folder of the home from one backup, key and file together.",
        ) from None
