"""Who may sign what: publishers with the keys that were pinned for them.

Rules: a key counts for the publishers it was pinned for and no other; a weak key never becomes one (signing.PublicKey
refuses it); a revoked key, or a key of a revoked publisher, verifies nothing from then on, whatever it signed before; a
key outside its validity verifies nothing new. Nothing is pinned because somebody presented it: taking a publisher on
first use is its own act, and only where the publisher has no key yet. A rotation is signed by the key it retires.

Not here: where pins are kept (skills/store/pins), signatures of packages (bundle).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import field

import orjson

from palyra.canon import Json, canonical
from palyra.errors import TrustError
from palyra.signing import PublicKey, SigningKey, dsse_sign, dsse_verify
from palyra.skills.findings import Finding, SkillRefused
from palyra.values import dataclass

ROTATION_TYPE = "application/vnd.palyra.key-rotation+json"
_PEM = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----")
_SPKI = bytes.fromhex("302a300506032b6570032100")
MAX_SKEW_MS = 300_000
"""How far a signature may lie in the future: clocks differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedKey:
    key: PublicKey
    valid_from_unix_ms: int = 0
    valid_until_unix_ms: int | None = None
    revoked_unix_ms: int | None = None
    replaced_by: str = ""
    """The key id that a rotation named: this one signs nothing new."""

    @property
    def key_id(self) -> str:
        return self.key.key_id

    def as_json(self) -> dict[str, Json]:
        return {
            "key_id": self.key_id,
            "public_key": base64.b64encode(self.key.raw).decode("ascii"),
            "valid_from_unix_ms": self.valid_from_unix_ms,
            "valid_until_unix_ms": self.valid_until_unix_ms,
            "revoked_unix_ms": self.revoked_unix_ms,
            "replaced_by": self.replaced_by or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """Every pinned key, by publisher."""

    publishers: Mapping[str, tuple[PinnedKey, ...]] = field(default_factory=dict)

    def keys_of(self, publisher: str) -> tuple[PinnedKey, ...]:
        return self.publishers.get(publisher, ())

    def find(self, publisher: str, key_id: str) -> PinnedKey | None:
        return next((one for one in self.keys_of(publisher) if one.key_id == key_id), None)

    def may_sign(self, publisher: str, key_id: str, *, at_unix_ms: int, signed_unix_ms: int) -> PublicKey:
        """The key for a new package of this publisher, or `SkillRefused`."""
        pinned = self.find(publisher, key_id)
        if pinned is None:
            raise self._unknown(publisher, key_id)
        check_not_revoked(publisher, pinned)
        if pinned.replaced_by:
            raise SkillRefused(
                Finding.TRUST_EXPIRED, f"Key {key_id} of {publisher} was replaced by {pinned.replaced_by}."
            )
        until = pinned.valid_until_unix_ms
        check_in_time(publisher, pinned, at_unix_ms)
        if signed_unix_ms > at_unix_ms + MAX_SKEW_MS or (until is not None and signed_unix_ms > until):
            raise SkillRefused(
                Finding.TRUST_EXPIRED, "The package says it was signed in the future, or after its key expired."
            )
        return pinned.key

    def still_counts(self, publisher: str, key_id: str) -> PublicKey:
        """The key of a package that was taken before: not revoked. Its time may be over, what it signed stands."""
        pinned = self.find(publisher, key_id)
        if pinned is None:
            raise self._unknown(publisher, key_id)
        check_not_revoked(publisher, pinned)
        return pinned.key

    def _unknown(self, publisher: str, key_id: str) -> SkillRefused:
        if self.keys_of(publisher):
            return SkillRefused(
                Finding.TRUST_KEY_CHANGED,
                f"Key {key_id} is not one of the keys pinned for {publisher}.",
                f"If {publisher} has a new key, verify it through another channel, then: palyra skills trust add "
                f"{publisher} KEY",
            )
        return SkillRefused(
            Finding.TRUST_UNKNOWN,
            f"The publisher {publisher} is not trusted here.",
            f"palyra skills trust add {publisher} KEY with a key from another channel, or trust this one on first use: "
            "palyra skills install FILE --tofu",
        )


def check_not_revoked(publisher: str, pinned: PinnedKey) -> None:
    if pinned.revoked_unix_ms is not None:
        raise SkillRefused(
            Finding.TRUST_REVOKED,
            f"Key {pinned.key_id} of {publisher} was revoked.",
            "palyra skills trust list shows when; a new key is pinned with palyra skills trust add.",
        )


def check_in_time(publisher: str, pinned: PinnedKey, at_unix_ms: int) -> None:
    until = pinned.valid_until_unix_ms
    if not pinned.valid_from_unix_ms <= at_unix_ms or (until is not None and at_unix_ms > until):
        raise SkillRefused(Finding.TRUST_EXPIRED, f"Key {pinned.key_id} of {publisher} is outside its validity.")


def parse_public_key(text: str) -> PublicKey:
    """Base64 or hex of the 32 bytes, or PEM as openssl writes it; `SkillRefused` for a weak one."""
    stripped = text.strip()
    if "PRIVATE KEY" in stripped:
        raise SkillRefused(
            Finding.TRUST_WEAK_KEY, "This is a private key, which must stay with its owner.", "Ask for the public one."
        )
    if stripped.startswith(_PEM[0]) and stripped.endswith(_PEM[1]):
        stripped = "".join(stripped.removeprefix(_PEM[0]).removesuffix(_PEM[1]).split())
    try:
        raw = bytes.fromhex(stripped) if len(stripped) == 64 else base64.b64decode(stripped, validate=True)
        raw = raw.removeprefix(_SPKI) if len(raw) == len(_SPKI) + 32 else raw
    except (ValueError, binascii.Error):
        raise SkillRefused(
            Finding.TRUST_WEAK_KEY,
            "This is not a public key.",
            "Give the 32 bytes of an Ed25519 public key in base64 or hex, or a file that holds them.",
        ) from None
    return sound_key(raw)


def sound_key(raw: bytes) -> PublicKey:
    try:
        return PublicKey(raw)
    except TrustError as error:
        raise SkillRefused(Finding.TRUST_WEAK_KEY, f"The key cannot be trusted: {error}") from None


# ── rotation ──


def sign_rotation(publisher: str, old: SigningKey, new: PublicKey, *, at_unix_ms: int) -> bytes:
    """A statement by the old key that the new one signs for the publisher from now on."""
    statement = {
        "publisher": publisher,
        "old_key_id": old.key_id,
        "new_public_key": base64.b64encode(new.raw).decode("ascii"),
        "at_unix_ms": at_unix_ms,
    }
    return canonical(dsse_sign(old, ROTATION_TYPE, canonical(statement)))


def read_rotation(data: bytes, trust: Trust, *, at_unix_ms: int) -> tuple[str, PinnedKey, PublicKey]:
    """(publisher, the key that is retired, the new one) of a rotation that holds, or `SkillRefused`."""
    try:
        envelope = orjson.loads(data)
        key_id = envelope["signatures"][0]["keyid"]
        claimed = orjson.loads(base64.b64decode(envelope["payload"]))["publisher"]
    except (orjson.JSONDecodeError, binascii.Error, KeyError, IndexError, TypeError):
        raise _bad_rotation("it is not a signed statement") from None
    pinned = trust.find(str(claimed), str(key_id))
    if pinned is None:
        raise _bad_rotation("its signer is not a key of that publisher")
    check_not_revoked(str(claimed), pinned)
    check_in_time(str(claimed), pinned, at_unix_ms)  # else an old key that was stolen would name its own successor
    if pinned.replaced_by:
        raise _bad_rotation("the key that signed it was already replaced")
    try:
        kind, payload = dsse_verify(envelope, pinned.key)
    except TrustError as error:
        raise _bad_rotation(str(error)) from None
    value = orjson.loads(payload)
    if kind != ROTATION_TYPE or not isinstance(value, dict) or canonical(value) != payload:
        raise _bad_rotation("it is another kind of statement")
    if set(value) != {"publisher", "old_key_id", "new_public_key", "at_unix_ms"} or value["old_key_id"] != key_id:
        raise _bad_rotation("it does not say exactly what a rotation says")
    if type(value["at_unix_ms"]) is not int or value["at_unix_ms"] > at_unix_ms + MAX_SKEW_MS:
        raise _bad_rotation("its time is in the future")
    return str(value["publisher"]), pinned, parse_public_key(str(value["new_public_key"]))


def _bad_rotation(why: str) -> SkillRefused:
    return SkillRefused(
        Finding.TRUST_ROTATION, f"The rotation cannot be accepted: {why}.", "It is signed by the key that it retires."
    )
