"""The bill of materials: CycloneDX 1.6 in JSON, listing every other file of the package with its digest.

`check_sbom` reads any CycloneDX writer's file and holds it against the files. `write_sbom` writes the least one that
says so, the same bytes for the same files: no random serial number, no time.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from palyra.canon import canonical, sha256_hex
from palyra.skills.findings import Finding, SkillRefused

FILE = "sbom.cdx.json"
MANIFEST = "skill.toml"
SPEC_VERSIONS = frozenset({"1.5", "1.6", "1.7"})
MAX_BYTES = 4 << 20


def write_sbom(skill_id: str, version: str, files: Mapping[str, bytes]) -> bytes:
    """`files` are all others of the package."""
    components = [
        {
            "type": "file",
            "bom-ref": f"file:{path}",
            "name": path,
            "hashes": [{"alg": "SHA-256", "content": sha256_hex(files[path])}],
        }
        for path in sorted(files)
    ]
    subject = {"type": "application", "bom-ref": f"{skill_id}@{version}", "name": skill_id, "version": version}
    return canonical(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {"component": subject},
            "components": components,
            "dependencies": [{"ref": subject["bom-ref"], "dependsOn": [c["bom-ref"] for c in components]}],
        }
    )


def check_sbom(data: bytes, files: Mapping[str, bytes], *, skill_id: str, version: str) -> None:
    """Every file of the package but itself is a `file` component with its digest, and no other file is named."""
    if len(data) > MAX_BYTES:
        raise _bad(f"is larger than {MAX_BYTES} bytes")
    try:
        bom = orjson.loads(data)
        kind, spec_version = bom["bomFormat"], str(bom["specVersion"])
        subject = (bom["metadata"]["component"]["name"], bom["metadata"]["component"]["version"])
        listed = [(str(c["name"]), _digest(c)) for c in bom["components"] if c["type"] == "file"]
    except (KeyError, TypeError, ValueError):
        raise _bad("is not a CycloneDX bill in JSON that lists files with SHA-256 digests") from None
    if kind != "CycloneDX" or spec_version not in SPEC_VERSIONS:
        raise _bad("is not in CycloneDX format, version 1.5 to 1.7")
    if subject != (skill_id, version):
        raise _bad("is about another skill or version")
    wanted = [(path, sha256_hex(content)) for path, content in files.items() if path != FILE]
    if sorted(listed) != sorted(wanted):
        raise _bad("does not list exactly the package's files with their digests")


def _digest(component: Mapping[str, object]) -> str:
    hashes = component["hashes"]
    if not isinstance(hashes, list):
        raise TypeError("hashes are a list")
    found = [str(one["content"]) for one in hashes if one["alg"] == "SHA-256"]
    if len(found) != 1:
        raise ValueError("a file has exactly one SHA-256")
    return found[0]


def _bad(why: str) -> SkillRefused:
    return SkillRefused(Finding.SBOM, f"{FILE} {why}.", "Build the package again with palyra skills build.")
