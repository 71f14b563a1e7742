"""The three in-toto statements of a package, all about one subject: the SHA-256 of its exact ZIP bytes.

The skill's manifest (`urn:palyra:skill:v1`: files with digests, capabilities, tools) · SLSA provenance v1, how the
modules were built · a reference to the CycloneDX bill. Each repeats skill, version, publisher, key and time, so that
none can be taken from one package into another. Statements and envelopes are canonical JSON, one a line, in this order.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

import orjson

from palyra.canon import Json, canonical, sha256_hex
from palyra.signing import SigningKey, dsse_sign
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.manifest import PUBLISHER, SKILL_ID, SkillManifest
from palyra.skills.sbom import FILE as SBOM_FILE
from palyra.skills.version import is_version
from palyra.values import dataclass

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
SKILL_TYPE = "urn:palyra:skill:v1"
PROVENANCE_TYPE = "https://slsa.dev/provenance/v1"
SBOM_TYPE = "urn:palyra:cyclonedx-reference:v1"
ORDER = (SKILL_TYPE, PROVENANCE_TYPE, SBOM_TYPE)
BUILD_TYPE = "urn:palyra:skill-build:v1"
_KEY_ID = re.compile(r"[0-9a-f]{16}")
_HINT = "Have the publisher build the package again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What every statement of a package repeats."""

    skill_id: str
    version: str
    publisher: str
    key_id: str
    signed_unix_ms: int

    def as_json(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def claimed(cls, statement: Mapping[str, Json]) -> tuple[Binding, bytes]:
        """What the first statement says of itself, and the key it names; believed only once that key verified it."""
        try:
            said = statement["predicate"]
            found = cls(**{name: said[name] for name in cls.__slots__})
            raw = base64.b64decode(said["public_key"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error):
            raise _bad("the first statement does not say whose package this is") from None
        texts = (found.skill_id, found.version, found.publisher, found.key_id)
        if not all(isinstance(text, str) for text in texts) or type(found.signed_unix_ms) is not int:
            raise _bad("the first statement does not say whose package this is")
        if not PUBLISHER.fullmatch(found.publisher) or not SKILL_ID.fullmatch(found.skill_id):
            raise _bad("the name of the publisher or the skill is not valid")
        if not is_version(found.version) or found.signed_unix_ms < 0 or not _KEY_ID.fullmatch(found.key_id):
            raise _bad("its version, time or key is not valid")
        return found, raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How the modules were built, as far as the builder says."""

    builder_id: str = "urn:palyra:skills-build"
    language: str = ""
    toolchain: str = ""
    sources: tuple[tuple[str, str], ...] = ()
    """(path, sha256) of what was built."""
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statements:
    skill: Mapping[str, Json]
    provenance: Mapping[str, Json]
    sbom: Mapping[str, Json]

    def check_files(self, manifest: SkillManifest, files: Mapping[str, bytes]) -> None:
        """What was signed about the files is what they are."""
        said = self.skill
        if (said["skill_id"], said["version"], said["publisher"]) != (
            manifest.skill_id,
            manifest.version,
            manifest.publisher,
        ):
            raise SkillRefused(Finding.SWAPPED, "skill.toml is not the manifest that was signed.", _HINT)
        if said["files"] != _files(files) or said["manifest_sha256"] != sha256_hex(files["skill.toml"]):
            raise SkillRefused(Finding.SWAPPED, "The signed list of files is not what the package holds.", _HINT)
        if said["capabilities"] != manifest.capabilities.as_json() or said["tools"] != [t.id for t in manifest.tools]:
            raise SkillRefused(Finding.SWAPPED, "The signed capabilities are not those of skill.toml.", _HINT)
        built = self.provenance["runDetails"]["byproducts"]
        if built != _modules(files):
            raise SkillRefused(Finding.PROVENANCE, "The provenance is not about exactly these modules.", _HINT)
        if self.sbom["sha256"] != sha256_hex(files[SBOM_FILE]) or self.sbom["file"] != SBOM_FILE:
            raise SkillRefused(Finding.SBOM, f"{SBOM_FILE} is not the one that was signed.", _HINT)


# ── writing ──


def sign_statements(
    manifest: SkillManifest,
    files: Mapping[str, bytes],
    payload_sha256: str,
    binding: Binding,
    key: SigningKey,
    provenance: Provenance,
) -> bytes:
    predicates = (
        _skill(manifest, files, binding, key),
        _provenance(files, binding, provenance),
        {**binding.as_json(), "file": SBOM_FILE, "format": "CycloneDX", "sha256": sha256_hex(files[SBOM_FILE])},
    )
    subject = [{"name": f"{binding.skill_id}-{binding.version}.zip", "digest": {"sha256": payload_sha256}}]
    lines = []
    for kind, predicate in zip(ORDER, predicates, strict=True):
        statement = {"_type": STATEMENT_TYPE, "subject": subject, "predicateType": kind, "predicate": predicate}
        lines.append(canonical(dsse_sign(key, PAYLOAD_TYPE, canonical(statement))) + b"\n")
    return b"".join(lines)


def _skill(manifest: SkillManifest, files: Mapping[str, bytes], binding: Binding, key: SigningKey) -> dict[str, Json]:
    return {
        **binding.as_json(),
        "public_key": base64.b64encode(key.public.raw).decode("ascii"),
        "manifest_sha256": sha256_hex(files["skill.toml"]),
        "files": _files(files),
        "capabilities": manifest.capabilities.as_json(),
        "tools": [tool.id for tool in manifest.tools],
    }


def _provenance(files: Mapping[str, bytes], binding: Binding, said: Provenance) -> dict[str, Json]:
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {**binding.as_json(), "language": said.language, "toolchain": said.toolchain},
            "internalParameters": dict(said.extra),
            "resolvedDependencies": [{"name": path, "digest": {"sha256": sha}} for path, sha in said.sources],
        },
        "runDetails": {"builder": {"id": said.builder_id}, "byproducts": _modules(files)},
    }


def provenance_of(statement: Mapping[str, Json]) -> Provenance:
    """What a provenance statement says of a build, to be said again by another signer."""
    try:
        built = statement["predicate"]["buildDefinition"]
        asked = built["externalParameters"]
        return Provenance(
            builder_id=str(statement["predicate"]["runDetails"]["builder"]["id"]),
            language=str(asked["language"]),
            toolchain=str(asked["toolchain"]),
            sources=tuple((str(one["name"]), str(one["digest"]["sha256"])) for one in built["resolvedDependencies"]),
            extra={str(name): str(value) for name, value in built["internalParameters"].items()},
        )
    except (KeyError, TypeError, AttributeError):
        raise _bad("its provenance does not say how it was built", Finding.STATEMENT) from None


def _files(files: Mapping[str, bytes]) -> list[Json]:
    return [{"path": path, "sha256": sha256_hex(data), "size": len(data)} for path, data in sorted(files.items())]


def _modules(files: Mapping[str, bytes]) -> list[Json]:
    return [
        {"name": path, "digest": {"sha256": sha256_hex(data)}}
        for path, data in sorted(files.items())
        if path.startswith("modules/")
    ]


# ── reading ──


def parse_lines(bundle: bytes) -> tuple[Mapping[str, Json], ...]:
    """Three canonical lines. A line more, a key twice or another spelling is refused: it is covered by no signature."""
    lines = bundle.split(b"\n")
    if len(lines) != len(ORDER) + 1 or lines[-1]:
        raise _bad("its statements are not exactly three lines")
    found = []
    for line in lines[:-1]:
        envelope = _canonical_object(line)
        if envelope is None:
            raise _bad("a line of its statements is not canonical JSON")
        found.append(envelope)
    return tuple(found)


def statement_of(envelope: Mapping[str, Json]) -> Mapping[str, Json]:
    try:
        found = orjson.loads(base64.b64decode(envelope["payload"], validate=True))
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise _bad("an envelope does not hold a statement") from None
    if not isinstance(found, dict):
        raise _bad("an envelope does not hold a statement")
    return found


def check_statements(payloads: Sequence[bytes], payload_sha256: str, claimed: Binding) -> Statements:
    """4 — all of this package and no other; from here on they are what a trusted key said."""
    predicates = []
    subject = [{"name": f"{claimed.skill_id}-{claimed.version}.zip", "digest": {"sha256": payload_sha256}}]
    for kind, payload in zip(ORDER, payloads, strict=True):
        statement = _strict(payload)
        if statement.get("_type") != STATEMENT_TYPE or statement.get("predicateType") != kind:
            raise _bad("its statements are not the three expected ones, in order", Finding.STATEMENT)
        if statement.get("subject") != subject:
            raise _bad("a statement is about other bytes than these", Finding.SUBJECT)
        predicates.append(statement["predicate"])
    skill, provenance, sbom = predicates
    try:
        repeated = provenance["buildDefinition"]["externalParameters"]
        built = provenance["runDetails"]["byproducts"]
        bound = all(
            said.get(name) == value for said in (skill, repeated, sbom) for name, value in claimed.as_json().items()
        )
        whole = {"files", "capabilities", "tools", "manifest_sha256"} <= set(skill) and {"file", "sha256"} <= set(sbom)
    except (KeyError, TypeError, AttributeError):
        raise _bad("a statement lacks required fields", Finding.STATEMENT) from None
    if not bound or not whole or not isinstance(built, list):
        raise _bad("its statements do not all name the same skill, version, publisher, key and time", Finding.SUBJECT)
    return Statements(skill=skill, provenance=provenance, sbom=sbom)


def _strict(payload: bytes) -> Mapping[str, Json]:
    statement = _canonical_object(payload)
    if statement is None or set(statement) != {"_type", "subject", "predicateType", "predicate"}:
        raise _bad("a statement is not canonical", Finding.STATEMENT)
    return statement


def _canonical_object(data: bytes) -> dict[str, Json] | None:
    try:
        value = orjson.loads(data)
        return value if isinstance(value, dict) and canonical(value) == data else None
    except (ValueError, RecursionError):
        return None


def _bad(why: str, finding: Finding = Finding.BUNDLE) -> SkillRefused:
    return SkillRefused(finding, f"The package is not sound: {why}.", _HINT)
