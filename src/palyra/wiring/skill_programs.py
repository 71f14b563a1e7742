"""Which programs of a toolchain are on this machine, and which folders they need to see.

Looked for in the project's own node_modules, beside the Python that runs Palyra (where `pip install ziglang` puts it),
then along the caller's PATH. Nothing is started to find out: rustup's stand-ins are followed by its settings file.

Rules: what a sandbox is shown follows from where the caller's programs are. A program of the project's own opens its
node_modules and nothing else, wherever its links or its first line point: the project may be a stranger's.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from palyra.sandbox.view import SYSTEM, is_within
from palyra.skills.languages import Recipe

WASM_TARGET = "wasm32-unknown-unknown"


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where programs are looked for, in order."""

    own: str
    """The project's node_modules; empty where it has none, or a link in its place."""
    folders: tuple[Path, ...]

    @classmethod
    def of(cls, project: Path, path: Sequence[str]) -> Shelf:
        """`path`: the caller's PATH."""
        modules = os.path.join(os.path.realpath(project), "node_modules")
        own = modules if os.path.isdir(modules) and not os.path.islink(modules) else ""
        first = (Path(own, ".bin"),) if own else ()
        rest = (Path(folder) for folder in path if os.path.isabs(folder))
        return cls(own, (*first, Path(sys.executable).parent, *rest))

    def find_recipe(self, recipes: Sequence[Recipe]) -> tuple[Recipe, dict[str, str]] | None:
        """The first recipe all of whose programs are there, with where they are."""
        for recipe in recipes:
            found = {name: path for name in recipe.programs if (path := self.find(name))}
            if len(found) == len(recipe.programs):
                return recipe, found
        return None

    def find(self, name: str) -> str:
        match name:
            case "zig":
                wheels = "lib/python*/site-packages/ziglang/zig"
                return self._first(folder / "zig" for folder in self.folders) or self._first(
                    path for folder in self.folders for path in folder.parent.glob(wheels)
                )
            case "cargo":
                return self._first(_behind_rustup(folder / "cargo") for folder in self.folders)
            case "rust-std":
                cargo = self.find("cargo")
                std = Path(cargo).resolve().parents[1] / "lib" / "rustlib" / WASM_TARGET if cargo else None
                return str(std) if std is not None and std.is_dir() else ""
        return self._first(folder / name for folder in self.folders)

    def roots(self, programs: Mapping[str, str], user_home: str) -> tuple[str, ...]:
        """The folders a sandbox has to show, beside the system's own, for these programs to start."""
        roots: set[str] = set()
        for program in filter(os.path.isfile, programs.values()):  # a library's folder lies within its program's
            if self._is_own(program):
                roots.add(self.own)
                continue
            for path in (program, os.path.realpath(program), *_interpreter(program)):
                roots |= _root(path, user_home)
        return tuple(sorted(root for root in roots if os.path.isdir(root)))

    def _is_own(self, path: str) -> bool:
        return bool(self.own) and is_within(path, self.own)

    def _first(self, candidates: Iterable[Path | None]) -> str:
        for path in candidates:
            if path is None or not path.is_file() or not os.access(path, os.X_OK):
                continue
            if self._is_own(str(path)) and not self._is_own(os.path.realpath(path)):
                continue  # a link of the project's that leads out of it
            return str(path)
        return ""


def _behind_rustup(cargo: Path) -> Path | None:
    """The toolchain's own cargo: rustup's stand-in would look for its settings in a home that a sandbox has not."""
    if os.path.basename(os.path.realpath(cargo)) != "rustup":
        return cargo
    home = cargo.parents[2] / ".rustup"
    try:
        chosen = tomllib.loads((home / "settings.toml").read_text("utf-8"))["default_toolchain"]
    except (OSError, ValueError, KeyError):
        return None
    return home / "toolchains" / str(chosen) / "bin" / "cargo"


def _interpreter(program: str) -> tuple[str, ...]:
    """What a script's first line names, where it is and where it really is."""
    with open(program, "rb") as file:
        line = file.readline(256)
    if not line.startswith(b"#!"):
        return ()
    path = os.fsdecode(line[2:].strip().split(b" ")[0])
    return (path, os.path.realpath(path))


def _root(program: str, user_home: str) -> set[str]:
    if any(is_within(program, folder) for folder in SYSTEM):
        return set()
    folder = os.path.dirname(program)
    whole = os.path.dirname(folder) if os.path.basename(folder) in ("bin", ".bin") else folder
    return {folder if user_home and is_within(user_home, whole) else os.path.realpath(whole)}
