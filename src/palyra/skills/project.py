"""A skill's project as a value: build.toml, skill.toml and the files beside them.

Rules: build.toml names one source for every module of skill.toml and nothing more; sources lie in the project, by plain
relative paths; skill.toml is without digests, which building adds. The reader of a project is given whole files: what
is too large, a link or hidden never gets here.

Not here: reading the disk (wiring/skill_workshop), compiling (languages), recorded inputs (recorded).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping

from palyra.errors import PalyraError
from palyra.skills.languages import Language
from palyra.skills.manifest import SkillManifest, parse_manifest
from palyra.values import dataclass

MANIFEST, RECIPE = "skill.toml", "build.toml"
ASSETS, TESTS, MODULES = "assets/", "tests/", "modules/"
LEFT_OUT = frozenset({"dist", "node_modules", "target"})
"""Folders that are made from the project and are no part of it."""
KEPT = frozenset({".cargo"})
"""Of hidden names: where cargo is told of sources that lie in the project."""
MAX_FILES, MAX_BYTES = 1000, 64 << 20
_CRATE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,100}")
_SOURCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,63}){0,5}")


class ProjectError(PalyraError):
    """The project cannot be built or tested as it stands."""

    def __init__(self, detail: str, hint: str | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    language: Language
    sources: tuple[tuple[str, str], ...]
    """(module in the package, its source in the project), sorted."""
    manifest: SkillManifest
    files: Mapping[str, bytes]

    @property
    def assets(self) -> dict[str, bytes]:
        return {path: data for path, data in self.files.items() if path.startswith(ASSETS)}

    @property
    def crate(self) -> str:
        """What cargo calls the module it makes; empty where no Cargo.toml says it."""
        try:
            cargo = tomllib.loads(self.files.get("Cargo.toml", b"").decode("utf-8"))
            name = cargo.get("lib", {}).get("name") or cargo["package"]["name"]
        except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, KeyError, TypeError, AttributeError):
            return ""
        return name.replace("-", "_") if isinstance(name, str) and _CRATE.fullmatch(name) else ""

    @property
    def artifact_name(self) -> str:
        return f"{self.manifest.skill_id}-{self.manifest.version}.palyra-skill"


def no_project(missing: str, where: str) -> ProjectError:
    return ProjectError(
        f"There is no {missing} {where}, so this is not a skill project.",
        "palyra skills new PUBLISHER.NAME makes one; palyra skills build DIR builds another folder.",
    )


def parse_project(files: Mapping[str, bytes]) -> Project:
    """Raises ProjectError, or SkillRefused for a bad skill.toml."""
    for name in (MANIFEST, RECIPE):
        if name not in files:
            raise no_project(name, "here")
    manifest = parse_manifest(files[MANIFEST])
    if manifest.integrity:
        raise ProjectError("skill.toml already has [integrity].", "Remove that table: building writes it.")
    language, modules = _parse_recipe(files[RECIPE])
    if set(modules) != set(manifest.modules):
        raise ProjectError(
            f"build.toml makes {', '.join(sorted(modules)) or 'nothing'}, not {', '.join(manifest.modules)}.",
            "Give every module of skill.toml one line under [modules] of build.toml.",
        )
    for module, source in sorted(modules.items()):
        if source not in files:
            raise ProjectError(f"The source {source} of {module} is missing.", "Fix [modules] of build.toml.")
    project = Project(language=language, sources=tuple(sorted(modules.items())), manifest=manifest, files=files)
    if language is Language.RUST and (len(modules) != 1 or not project.crate):
        raise ProjectError(
            "A project in Rust makes one module, of the package that its Cargo.toml names.",
            "Keep one line under [modules] of build.toml, and name under [package] of Cargo.toml.",
        )
    return project


def _parse_recipe(text: bytes) -> tuple[Language, dict[str, str]]:
    try:
        found = tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ProjectError(f"build.toml is not TOML: {str(error)[:160]}.") from None
    unknown = sorted(set(found) - {"language", "modules"})
    if unknown:
        raise ProjectError(f"build.toml has the unknown key {unknown[0][:80]!r}.", "It has language and [modules].")
    try:
        language = Language(found.get("language", ""))
    except ValueError:
        names = ", ".join(Language)
        raise ProjectError("build.toml names no language that can be built.", f"language is one of {names}.") from None
    modules = found.get("modules", {})
    if not isinstance(modules, dict):
        raise ProjectError("[modules] of build.toml is not a table.")
    for module, source in modules.items():
        if not isinstance(source, str) or not _SOURCE.fullmatch(source):
            raise ProjectError(f"[modules] of build.toml: the source of {module[:80]!r} is not a path in the project.")
    return language, modules
