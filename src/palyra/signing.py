"""Ed25519 keys, DSSE envelopes and C2SP signed notes, all over bytes.

Rules: a public key that exists is sound (canonical, on the curve, not of small order: OpenSSL accepts the others,
and under a small-order key one signature fits many messages); a check returns or raises `TrustError`, it never
answers "maybe"; a private key shows itself nowhere and does not travel by pickle.

Not here: what is signed (attest, journal/checkpoint), where keys lie on disk (state/keyfile), who is trusted (skills).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

from palyra.errors import TrustError
from palyra.values import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_PKCS8 = bytes.fromhex("302e020100300506032b657004220420")
_PEM = ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----")
_NOTE_ED25519 = b"\x01"
_SIGNATURE_BYTES = 64
MAX_NOTE_CHARS = 1 << 16
MAX_NOTE_SIGNATURES = 32
MAX_PAYLOAD_BYTES = 1 << 24


# ── keys ─────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class PublicKey:
    raw: bytes

    def __post_init__(self) -> None:
        _check_point(self.raw)

    @property
    def key_id(self) -> str:
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def verify(self, signature: bytes, data: bytes) -> None:
        from cryptography.exceptions import InvalidSignature

        try:
            _openssl_key(self.raw).verify(signature, data)
        except InvalidSignature as error:
            raise TrustError(f"The signature is not by key {self.key_id} over these bytes.") from error


class SigningKey:
    """A private key. `seed` is the secret itself: it goes into the key file and nowhere else."""

    def __init__(self, seed: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        if len(seed) != 32:
            raise TrustError(f"An Ed25519 seed has 32 bytes, not {len(seed)}.")
        self.seed = seed
        made = Ed25519PrivateKey.from_private_bytes(seed)
        self.sign: Callable[[bytes], bytes] = made.sign
        self._public = made.public_key

    @classmethod
    def generate(cls) -> SigningKey:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_seed(cls, seed: bytes) -> SigningKey:
        return cls(seed)

    def hasten(self) -> None:
        """Sign by libsodium from now on: the very same bytes (RFC 8032 leaves no choice) in little more than half the
        time. For who signs often: loading it takes longer than some hundred signatures save."""
        hastened = _sodium_sign(self.seed + self.public.raw)
        if hastened(self.public.raw) == self.sign(self.public.raw):  # what signs otherwise is not let near a journal
            self.sign = hastened

    @cached_property
    def public(self) -> PublicKey:
        return PublicKey(self._public().public_bytes_raw())

    @cached_property
    def key_id(self) -> str:
        return self.public.key_id

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a private key cannot be pickled")


def _sodium_sign(pair: bytes) -> Callable[[bytes], bytes]:
    """`pair` is the seed and the public key."""
    from nacl.bindings import crypto_sign

    try:  # what that calls, without the copy of what was signed and three calls on the way
        from nacl._sodium import ffi, lib  # type: ignore[import-not-found]

        new, octets, buffer, sign = ffi.new, ffi.typeof("unsigned char[]"), ffi.buffer, lib.crypto_sign
    except (ImportError, AttributeError):
        return lambda data: crypto_sign(data, pair)[:_SIGNATURE_BYTES]

    def signature(data: bytes) -> bytes:
        signed = new(octets, _SIGNATURE_BYTES + len(data))  # of this call alone: others sign meanwhile
        if sign(signed, ffi.NULL, data, len(data), pair) != 0:
            raise RuntimeError("libsodium did not sign")
        return bytes(buffer(signed, _SIGNATURE_BYTES))

    return signature


def write_pem(key: SigningKey) -> str:
    """PKCS #8, as openssl writes it. Ed25519's is one fixed prefix and the seed."""
    return "\n".join((_PEM[0], _b64(_PKCS8 + key.seed), _PEM[1], ""))


def parse_pem(text: str) -> SigningKey:
    lines = text.split("\n")
    if len(lines) != 4 or (lines[0], lines[2]) != _PEM or lines[3]:
        raise TrustError("This is not an unencrypted Ed25519 private key in PEM form.")
    der = _unb64(lines[1], "the key file")
    if len(der) != 48 or not der.startswith(_PKCS8):
        raise TrustError("The key file does not hold an Ed25519 key.")
    return SigningKey(der[len(_PKCS8) :])


LOCKED_PEM = b"-----BEGIN ENCRYPTED PRIVATE KEY-----"


def write_locked_pem(key: SigningKey, passphrase: bytes) -> str:
    """Encrypted PKCS #8, for a key file that is worth nothing without its passphrase."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not passphrase:
        raise TrustError("A passphrase must not be empty.")
    return (
        Ed25519PrivateKey.from_private_bytes(key.seed)
        .private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(passphrase),
        )
        .decode("ascii")
    )


def parse_locked_pem(text: str, passphrase: bytes) -> SigningKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        found = serialization.load_pem_private_key(text.encode("ascii"), passphrase)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise TrustError("The passphrase does not open this key file.") from error
    if not isinstance(found, Ed25519PrivateKey):
        raise TrustError("The key file does not hold an Ed25519 key.")
    return SigningKey(found.private_bytes_raw())


@lru_cache(maxsize=256)
def _check_point(raw: bytes) -> None:
    """RFC 8032 decoding without its last step, then the order: the y of 2P, 4P, 8P follow from y alone."""
    if len(raw) != 32:
        raise TrustError(f"An Ed25519 public key has 32 bytes, not {len(raw)}.")
    packed = int.from_bytes(raw, "little")
    y, sign = packed & (1 << 255) - 1, packed >> 255
    if y >= _P:
        raise TrustError("The public key is not in canonical form.")
    x2 = _x_squared(y)
    if pow(x2, (_P - 1) // 2, _P) not in (0, 1):
        raise TrustError("The public key is not a point of the curve.")
    if x2 == 0 and sign:
        raise TrustError("The public key is not in canonical form.")
    for _ in range(3):
        y2, x2 = y * y % _P, _x_squared(y)
        y = (y2 + x2) * pow(2 + x2 - y2, -1, _P) % _P
    if y == 1:
        raise TrustError("The public key is a point of small order.")


def _x_squared(y: int) -> int:
    """-x² + y² = 1 + d·x²·y², solved for x². The divisor is never 0, because -1/d is not a square."""
    return (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P


@lru_cache(maxsize=64)
def _openssl_key(raw: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(raw)


# ── DSSE ─────────────────────────────────────────────────────────────────────


def dsse_sign(key: SigningKey, payload_type: str, payload: bytes) -> dict[str, Any]:
    signature = key.sign(_pae(payload_type, payload))
    return {
        "payloadType": payload_type,
        "payload": _b64(payload),
        "signatures": [{"keyid": key.key_id, "sig": _b64(signature)}],
    }


def dsse_verify(envelope: object, key: PublicKey) -> tuple[str, bytes]:
    """Payload type and payload of an envelope that `key` signed; exactly one signature, no key more or less."""
    fields = _exactly(envelope, ("payloadType", "payload", "signatures"), "The envelope")
    signatures = fields["signatures"]
    if not isinstance(signatures, (list, tuple)) or len(signatures) != 1:
        raise TrustError("The envelope does not carry exactly one signature.")
    signature = _exactly(signatures[0], ("keyid", "sig"), "The envelope's signature")
    if signature["keyid"] != key.key_id:
        raise TrustError(f"The envelope is signed by key {signature['keyid']!s:.40}, not by {key.key_id}.")
    payload_type = fields["payloadType"]
    if not isinstance(payload_type, str) or not payload_type.isascii():
        raise TrustError("The envelope's payload type is not a plain string.")
    payload = _unb64(fields["payload"], "the envelope's payload")
    key.verify(_unb64(signature["sig"], "the envelope's signature"), _pae(payload_type, payload))
    return payload_type, payload


def _pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding: lengths keep a type from flowing into a payload."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


# ── signed notes ─────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NoteVerifier:
    """A named public key, as a signed note names it."""

    name: str
    key: PublicKey

    def __post_init__(self) -> None:
        # isprintable is false for every Unicode space but the plain one, and for lone surrogates.
        if not 0 < len(self.name) <= 256 or not self.name.isprintable() or set(self.name) & set("+ "):
            raise TrustError("A note's key name is printable text without spaces and plus signs.")

    @property
    def hint(self) -> bytes:
        """The four bytes that tell a verifier which of its keys a line is for."""
        return hashlib.sha256(self.name.encode() + b"\n" + _NOTE_ED25519 + self.key.raw).digest()[:4]

    @property
    def vkey(self) -> str:
        return f"{self.name}+{self.hint.hex()}+{_b64(_NOTE_ED25519 + self.key.raw)}"


class NoteSigner:
    def __init__(self, name: str, key: SigningKey) -> None:
        self.name = name
        self.verifier = NoteVerifier(name, key.public)
        self._key = key
        self._hint = self.verifier.hint
        self._line = f"\u2014 {name} "

    @property
    def vkey(self) -> str:
        return self.verifier.vkey

    def sign(self, text: str) -> str:
        """`text` ends with a newline; what comes back is the whole note."""
        if text[-1:] != "\n":
            raise TrustError("A note's text ends with a newline.")
        signature = binascii.b2a_base64(self._hint + self._key.sign(text.encode()))  # which ends its line itself
        return f"{text}\n{self._line}{signature.decode('ascii')}"

    def line(self, text: str) -> str:
        """The signature alone, to stand under a note that somebody else signed first."""
        return self.sign(text)[len(text) + 1 :]


def parse_vkey(text: str) -> NoteVerifier:
    name, _, rest = text.partition("+")
    hint, _, encoded = rest.partition("+")
    raw = _unb64(encoded, "the verifier key")
    if raw[:1] != _NOTE_ED25519:
        raise TrustError("The verifier key is not of type Ed25519.")
    verifier = NoteVerifier(name, PublicKey(raw[1:]))
    if verifier.hint.hex() != hint:
        raise TrustError("The verifier key's checksum does not match its name and key.")
    return verifier


def open_note(note: str, verifiers: Sequence[NoteVerifier]) -> tuple[str, tuple[NoteVerifier, ...]]:
    """The signed text and which of `verifiers` signed it: at least one, and none of them wrongly."""
    text, lines = _split_note(note)
    known = {(verifier.name, verifier.hint): verifier for verifier in verifiers}
    signed: list[NoteVerifier] = []
    for line in lines:
        parts = line.split(" ")
        if len(parts) != 3 or parts[0] != "\u2014":
            raise TrustError("The note has a malformed signature line.")
        raw = _unb64(parts[2], "a note's signature")
        verifier = known.get((parts[1], raw[:4]))
        if verifier is None:
            continue
        if verifier in signed:
            raise TrustError(f"The note is signed twice by {verifier.name}.")
        verifier.key.verify(raw[4:], text.encode())
        signed.append(verifier)
    if not signed:
        raise TrustError("The note is signed by none of the known keys.")
    return text, tuple(signed)


def _split_note(note: str) -> tuple[str, list[str]]:
    if len(note) > MAX_NOTE_CHARS:
        raise TrustError("The note is too long.")
    if any(character < " " and character != "\n" for character in note) or "\x7f" in note:
        raise TrustError("The note holds a control character.")
    text, gap, signatures = note.rpartition("\n\n")
    if not gap or not signatures.endswith("\n"):
        raise TrustError("The note has no signatures.")
    lines = signatures[:-1].split("\n")
    if len(lines) > MAX_NOTE_SIGNATURES:
        raise TrustError("The note has too many signatures.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TrustError("The note is not valid Unicode.") from error
    return text + "\n", lines


# ── bytes ────────────────────────────────────────────────────────────────────


def _b64(data: bytes) -> str:
    return binascii.b2a_base64(data, newline=False).decode("ascii")


def _unb64(text: object, what: str) -> bytes:
    """Canonical base64 only: otherwise one signature has many spellings, and copies cannot be compared."""
    if not isinstance(text, str) or len(text) > MAX_PAYLOAD_BYTES * 4 // 3 + 4:
        raise TrustError(f"There is no usable base64 in {what}.")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise TrustError(f"There is no valid base64 in {what}.") from error
    if _b64(data) != text:
        raise TrustError(f"The base64 in {what} is not canonical.")
    return data


def _exactly(value: object, names: tuple[str, ...], what: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or set(value) != set(names):
        raise TrustError(f"{what} does not have exactly the fields {', '.join(names)}.")
    return value
