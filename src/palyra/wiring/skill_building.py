"""`palyra skills build` as one callable: a project's folder in, a signed package out. The command line, the builder and
the console call the same.

Same sources and same toolchain, same bytes: the time in the statements is the newest of the sources' times unless
another is given, and nothing else of the moment gets in. The package is written whole, beside its place, then renamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from palyra.canon import Json, sha256_hex
from palyra.signing import SigningKey
from palyra.skills.bundle import Provenance, open_parcel, pack
from palyra.skills.project import MANIFEST, RECIPE, TESTS, Project, ProjectError
from palyra.state.whole import write_whole
from palyra.values import dataclass
from palyra.version import __version__
from palyra.wiring.skill_sbom import cyclonedx_sbom
from palyra.wiring.skill_workshop import Compiled, Workshop, load_project

DIST = "dist"
KeyFinder = Callable[[str], SigningKey]
"""Publisher → its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    path: Path
    project: Project
    payload_sha256: str
    size_bytes: int
    key: SigningKey
    compiled: Compiled

    def as_json(self) -> dict[str, Json]:
        manifest = self.project.manifest
        return {
            "skill_id": manifest.skill_id,
            "version": manifest.version,
            "publisher": manifest.publisher,
            "file": str(self.path),
            "payload_sha256": self.payload_sha256,
            "size_bytes": self.size_bytes,
            "key_id": self.key.key_id,
            "toolchain": self.compiled.tool,
            "modules": {path: sha256_hex(data) for path, data in sorted(self.compiled.modules.items())},
        }


async def build_project(
    folder: Path, workshop: Workshop, find_key: KeyFinder, *, at_unix_ms: int | None = None
) -> Built:
    """Raises ProjectError, SkillRefused, StateError, Rejected. `at_unix_ms`: as SOURCE_DATE_EPOCH says."""
    project = load_project(folder)
    key = find_key(project.manifest.publisher)
    compiled = await workshop.compile(project, folder)
    when = _time_of(folder, project) if at_unix_ms is None else at_unix_ms
    package = pack_project(project, compiled, key, at_unix_ms=when)
    path = folder / DIST / project.artifact_name
    write_built(path, package)
    return Built(
        path=path,
        project=project,
        payload_sha256=open_parcel(package).payload_sha256,
        size_bytes=len(package),
        key=key,
        compiled=compiled,
    )


def pack_project(project: Project, compiled: Compiled, key: SigningKey, *, at_unix_ms: int) -> bytes:
    provenance = Provenance(
        language=project.language.value,
        toolchain=compiled.tool,
        sources=tuple((path, sha256_hex(data)) for path, data in sorted(_sources(project).items())),
        extra={"palyra": __version__, **({"tool_sha256": compiled.tool_sha256} if compiled.tool_sha256 else {})},
    )
    files = {**compiled.modules, **project.assets}
    return pack(project.manifest, files, key, at_unix_ms=at_unix_ms, provenance=provenance, make_sbom=cyclonedx_sbom)


def _sources(project: Project) -> dict[str, bytes]:
    return {path: data for path, data in project.files.items() if not path.startswith(TESTS)}


def _time_of(folder: Path, project: Project) -> int:
    paths: Sequence[str] = (MANIFEST, RECIPE, *(source for _, source in project.sources))
    return max((folder / path).stat().st_mtime_ns for path in paths) // 1_000_000


def write_built(path: Path, data: bytes) -> None:
    """Where everybody may read it; the folder for it is made, and is no link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.is_symlink():
        raise ProjectError(f"{path.parent} is a link.", "Remove it: build output is written there.")
    write_whole(path, data, mode=0o644)
