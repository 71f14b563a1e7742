"""The bill of materials of a package, written by the CycloneDX library: every file with its digest, and what built it.

The same files give the same bytes: the serial number is made from their digests and there is no time in it. The library
is needed for building alone; it lies in the extra `skills`.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID, uuid5

import orjson

from palyra.canon import canonical, sha256_hex
from palyra.skills.project import ProjectError

_SPACE = UUID("6f3b9a1e-6f0b-5b0c-9d0e-1c4a52f6c7a1")
"""Ours, for serial numbers that are made from digests."""


def cyclonedx_sbom(skill_id: str, version: str, files: Mapping[str, bytes]) -> bytes:
    """`skills.bundle.MakeSbom`. Raises ProjectError where the library is not installed."""
    try:
        from cyclonedx.model import HashAlgorithm, HashType
        from cyclonedx.model.bom import Bom
        from cyclonedx.model.component import Component, ComponentType
        from cyclonedx.output.json import JsonV1Dot6
    except ImportError:
        raise ProjectError(
            "Building needs the CycloneDX library, which is not installed.", "pip install 'cyclonedx-python-lib>=11'"
        ) from None
    digests = {path: sha256_hex(files[path]) for path in sorted(files)}
    whole = Component(name=skill_id, version=version, type=ComponentType.APPLICATION, bom_ref=f"{skill_id}@{version}")
    bom = Bom(serial_number=uuid5(_SPACE, canonical(digests).decode()))
    bom.metadata.component = whole
    for path, digest in digests.items():
        hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
        bom.components.add(Component(name=path, type=ComponentType.FILE, bom_ref=f"file:{path}", hashes=hashes))
    bom.register_dependency(whole, bom.components)
    written = orjson.loads(JsonV1Dot6(bom).output_as_string())
    written["metadata"].pop("timestamp")  # the time stands in the signed statements, once
    return canonical(written)
