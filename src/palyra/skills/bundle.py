"""The package `.palyra-skill`: `SKL1`, a bounded header, the signed statements, and the canonical ZIP they are about.

Order of reading, each step before the next: 1 the header's bounds · 2 three statements, each one line · 3 a key pinned
for the publisher they name, and its signature under every one · 4 the digest of the exact ZIP bytes, one subject for
all · 5 the ZIP, strictly · 6 manifest, SBOM and provenance against the files. Nothing of the ZIP is parsed before 4.

The digest of the ZIP bytes is the skill's payload digest: approvals, records and the life cycle name it.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace

from palyra.canon import Json, sha256_hex
from palyra.errors import TrustError
from palyra.signing import PublicKey, SigningKey, dsse_verify
from palyra.skills.archive import MAX_ARCHIVE_BYTES, read_zip, write_zip
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.manifest import SkillManifest, parse_manifest
from palyra.skills.manifest_text import write_manifest
from palyra.skills.sbom import FILE as SBOM_FILE
from palyra.skills.sbom import MANIFEST, check_sbom, write_sbom
from palyra.skills.statements import (
    PAYLOAD_TYPE,
    Binding,
    Provenance,
    Statements,
    check_statements,
    parse_lines,
    provenance_of,
    sign_statements,
    statement_of,
)
from palyra.skills.trust import Trust, sound_key
from palyra.values import dataclass

MAGIC = b"SKL1"
MAX_HEADER_BYTES = 1 << 20
MAX_BYTES = 8 + MAX_HEADER_BYTES + MAX_ARCHIVE_BYTES
EXTENSION = ".palyra-skill"
_HINT = "Fetch the package again, or have its publisher build it again."

MakeSbom = Callable[[str, str, Mapping[str, bytes]], bytes]
"""(skill id, version, every other file) → the SBOM's bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    """A package that was read whole: its signature holds, and its parts fit each other."""

    manifest: SkillManifest
    files: Mapping[str, bytes]
    payload_sha256: str
    binding: Binding
    key: PublicKey
    bundle: bytes
    """The signed statements as they stood in the package."""
    provenance: Mapping[str, Json]

    @property
    def digests(self) -> dict[str, str]:
        return {path: sha256_hex(data) for path, data in sorted(self.files.items())}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parcel:
    """A package's two halves and who it says signed it; nothing of it is believed yet."""

    bundle: bytes
    archive: bytes
    envelopes: tuple[Mapping[str, Json], ...]
    claimed: Binding
    claimed_key: PublicKey

    @property
    def payload_sha256(self) -> str:
        return sha256_hex(self.archive)


# ── writing ──


def pack(
    manifest: SkillManifest,
    files: Mapping[str, bytes],
    key: SigningKey,
    *,
    at_unix_ms: int,
    provenance: Provenance | None = None,
    make_sbom: MakeSbom = write_sbom,
) -> bytes:
    """The signed package of these modules and assets. Same input, same bytes.

    `files` are `modules/*.wasm` and `assets/*`; the manifest's text, its digests and the SBOM are written here.
    """
    whole = stage(manifest, files, make_sbom=make_sbom)
    return seal(write_zip(whole), key, at_unix_ms=at_unix_ms, provenance=provenance)


def stage(manifest: SkillManifest, files: Mapping[str, bytes], *, make_sbom: MakeSbom = write_sbom) -> dict[str, bytes]:
    """All members of a package, not yet archived; refuses what could never be read again."""
    digests = tuple((path, sha256_hex(files[path])) for path in sorted(files))
    text = write_manifest(replace(manifest, integrity=digests))
    whole = {MANIFEST: text, **files}
    whole[SBOM_FILE] = make_sbom(manifest.skill_id, manifest.version, whole)
    check_members(whole)
    return whole


def seal(archive: bytes, key: SigningKey, *, at_unix_ms: int, provenance: Provenance | None = None) -> bytes:
    """An archive with statements about it, signed anew by `key`."""
    files = read_zip(archive)
    manifest = check_members(files)
    binding = Binding(
        skill_id=manifest.skill_id,
        version=manifest.version,
        publisher=manifest.publisher,
        key_id=key.key_id,
        signed_unix_ms=at_unix_ms,
    )
    bundle = sign_statements(manifest, files, sha256_hex(archive), binding, key, provenance or Provenance())
    return join(bundle, archive)


def resign(parcel: Parcel, key: SigningKey, *, at_unix_ms: int) -> bytes:
    """The same archive under statements by another key; what was said of its making is said again."""
    said = provenance_of(statement_of(parcel.envelopes[1]))
    return seal(parcel.archive, key, at_unix_ms=at_unix_ms, provenance=said)


def join(bundle: bytes, archive: bytes) -> bytes:
    if len(bundle) > MAX_HEADER_BYTES:
        raise SkillRefused(Finding.HEADER, f"The statements are larger than {MAX_HEADER_BYTES} bytes.")
    return MAGIC + struct.pack("<I", len(bundle)) + bundle + archive


# ── reading ──


def read(data: bytes, trust: Trust, *, at_unix_ms: int) -> Skill:
    """The skill in a package that a pinned key of its publisher signed, or `SkillRefused`."""
    parcel = open_parcel(data)
    claimed = parcel.claimed
    key = trust.may_sign(
        claimed.publisher, claimed.key_id, at_unix_ms=at_unix_ms, signed_unix_ms=claimed.signed_unix_ms
    )
    return read_parcel(parcel, key)


def read_again(data: bytes, trust: Trust) -> Skill:
    """The same for a package that was taken before: its key may have run out since, not been revoked."""
    parcel = open_parcel(data)
    return read_parcel(parcel, trust.still_counts(parcel.claimed.publisher, parcel.claimed.key_id))


def read_untrusted(data: bytes) -> Skill:
    """By the key that the package itself names: whole and in one piece, but by whom is not said."""
    parcel = open_parcel(data)
    return read_parcel(parcel, parcel.claimed_key)


def open_parcel(data: bytes) -> Parcel:
    """1, 2 — bounds and lines; the claims in them decide only which key is asked."""
    if len(data) < 8 or data[:4] != MAGIC:
        raise SkillRefused(Finding.HEADER, "This is not a skill package.", _HINT)
    (length,) = struct.unpack_from("<I", data, 4)
    if length > MAX_HEADER_BYTES or 8 + length > len(data) or len(data) - 8 - length > MAX_ARCHIVE_BYTES:
        raise SkillRefused(Finding.HEADER, "The package's header does not match its length, or is too large.", _HINT)
    bundle, archive = data[8 : 8 + length], data[8 + length :]
    envelopes = parse_lines(bundle)
    first = statement_of(envelopes[0])
    claimed, raw = Binding.claimed(first)
    return Parcel(bundle=bundle, archive=archive, envelopes=envelopes, claimed=claimed, claimed_key=sound_key(raw))


def read_parcel(parcel: Parcel, key: PublicKey) -> Skill:
    """3 to 6 with the key that was found for it."""
    if key != parcel.claimed_key or key.key_id != parcel.claimed.key_id:
        raise SkillRefused(Finding.SIGNER, "The package names a different key from the pinned one.", _HINT)
    payloads = tuple(_verified(envelope, key) for envelope in parcel.envelopes)
    statements = check_statements(payloads, parcel.payload_sha256, parcel.claimed)
    files = read_zip(parcel.archive)
    manifest = check_members(files)
    statements.check_files(manifest, files)
    return Skill(
        manifest=manifest,
        files=files,
        payload_sha256=parcel.payload_sha256,
        binding=parcel.claimed,
        key=key,
        bundle=parcel.bundle,
        provenance=statements.provenance,
    )


def _verified(envelope: Mapping[str, Json], key: PublicKey) -> bytes:
    try:
        kind, payload = dsse_verify(envelope, key)
    except TrustError as error:
        raise SkillRefused(Finding.SIGNATURE, f"A statement's signature is not valid: {error}", _HINT) from None
    if kind != PAYLOAD_TYPE:
        raise SkillRefused(Finding.BUNDLE, "An envelope does not hold an in-toto statement.", _HINT)
    return payload


def check_manifest_text(bundle: bytes, text: bytes, *, payload_sha256: str, key_id: str) -> SkillManifest:
    """A manifest that is kept beside its statements, as they were signed by that key about that payload. What a person
    is shown of a skill is what will run, also where its files are gone."""
    envelope = parse_lines(bundle)[0]
    claimed, raw = Binding.claimed(statement_of(envelope))
    key = sound_key(raw)
    statement = statement_of(envelope)
    subject = [{"name": f"{claimed.skill_id}-{claimed.version}.zip", "digest": {"sha256": payload_sha256}}]
    _verified(envelope, key)
    said = statement["predicate"].get("manifest_sha256")
    if key.key_id != key_id or statement.get("subject") != subject or said != sha256_hex(text):
        raise SkillRefused(Finding.SWAPPED, "The stored manifest is not the one that was signed.", _HINT)
    return parse_manifest(text)


def check_members(files: Mapping[str, bytes]) -> SkillManifest:
    """6 — the manifest of a set of files that is one whole package."""
    for path in files:
        folder, _, name = path.partition("/")
        if path not in (MANIFEST, SBOM_FILE) and (folder not in ("modules", "assets") or not name):
            raise SkillRefused(Finding.ARCHIVE_MEMBERS, f"A package has no place for {path[:80]!r}.", _HINT)
    for path in (MANIFEST, SBOM_FILE):
        if path not in files:
            raise SkillRefused(Finding.ARCHIVE_MEMBERS, f"The package has no {path}.", _HINT)
    manifest = parse_manifest(files[MANIFEST])
    if write_manifest(manifest) != files[MANIFEST]:
        raise SkillRefused(Finding.MANIFEST_ENCODING, "skill.toml is not in its one canonical form.", _HINT)
    modules = {path for path in files if path.startswith("modules/")}
    if set(manifest.modules) != modules:
        raise SkillRefused(
            Finding.ARCHIVE_MEMBERS, "The modules in the package are not exactly those its tools name.", _HINT
        )
    content = {path: sha256_hex(data) for path, data in files.items() if path not in (MANIFEST, SBOM_FILE)}
    if dict(manifest.integrity) != content:
        raise SkillRefused(
            Finding.INTEGRITY, "[integrity] of skill.toml does not list exactly the package's files.", _HINT
        )
    check_sbom(files[SBOM_FILE], files, skill_id=manifest.skill_id, version=manifest.version)
    return manifest


def public_text(key: PublicKey) -> str:
    return base64.b64encode(key.raw).decode("ascii")


__all__ = [
    "EXTENSION",
    "MAX_BYTES",
    "Binding",
    "Parcel",
    "Provenance",
    "Skill",
    "Statements",
    "check_manifest_text",
    "check_members",
    "join",
    "open_parcel",
    "pack",
    "public_text",
    "read",
    "read_again",
    "read_parcel",
    "read_untrusted",
    "resign",
    "seal",
    "stage",
]
