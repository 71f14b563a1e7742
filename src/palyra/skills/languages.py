"""The languages a skill can be written in, and how each is compiled: which programs are looked for, what they are told.

Rules: a recipe's words name files relative to the folder it runs in, so that no path of the machine gets into a module
and the same sources give the same bytes; a recipe needs no network; what is missing is answered with the one command
that installs it.

Not here: looking for programs and running them (wiring/skill_workshop), what a project is (project).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from palyra.skills.world import WIT, WORLD
from palyra.values import dataclass

CORE_FUEL, COMPONENT_FUEL = 10_000_000, 1_000_000_000
MEMORY_BYTES = 64 << 20

ASSEMBLYSCRIPT, COMPONENTIZE_QJS = "assemblyscript@0.28.20", "componentize-qjs@0.4.5"
ZIG, COMPONENTIZE_PY = "ziglang==0.17.0", "componentize-py==0.25.1"


class Language(StrEnum):
    WAT = "wat"
    C = "c"
    RUST = "rust"
    ASSEMBLYSCRIPT = "assemblyscript"
    PYTHON = "python"
    JAVASCRIPT = "javascript"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One way to compile one language. `{source}`, `{target}` and `{stem}` are filled in, and `{NAME}` of a program."""

    tool: str
    """As people call it; it goes into the provenance."""
    programs: tuple[str, ...]
    """All of them must be found; the first is started."""
    arguments: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    made: str = "{target}"
    """Where the module then stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageFacts:
    name: str
    """As people write it."""
    source: str
    """Where the code of a new project stands."""
    sdk: tuple[tuple[str, str], ...]
    """(file of the SDK, place in a project)."""
    recipes: tuple[Recipe, ...]
    """In order of preference. None at all: wasmtime's own assembler."""
    install: str
    """The command that brings the first recipe's programs, typed in the project's folder."""
    fuel: int = CORE_FUEL
    memory_bytes: int = MEMORY_BYTES


_FREESTANDING = ("-O2", "-nostdlib", "-Wl,--no-entry", "-Isdk", "{source}", "-o", "{target}")
_CLANG = Recipe(
    tool="clang",
    programs=("clang", "wasm-ld"),
    arguments=("--target=wasm32", "-ffreestanding", "-Wl,--strip-all", *_FREESTANDING),
)
_ZIG = Recipe(
    tool="zig cc",
    programs=("zig",),
    arguments=("cc", "--target=wasm32-freestanding", "-s", *_FREESTANDING),
    env=(("ZIG_GLOBAL_CACHE_DIR", ".cache"), ("ZIG_LOCAL_CACHE_DIR", ".cache")),
)
_CARGO = Recipe(
    tool="cargo",
    programs=("cargo", "rust-std"),
    arguments=("build", "--release", "--offline", "--quiet", "--target=wasm32-unknown-unknown", "--target-dir=.out"),
    env=(("CARGO_HOME", ".cargo-home"), ("CARGO_INCREMENTAL", "0")),
    made=".out/wasm32-unknown-unknown/release/{crate}.wasm",
)
_ASC = Recipe(
    tool="asc",
    programs=("node", "asc"),
    arguments=("{asc}", "{source}", "-O3", "--runtime", "stub", "--use", "abort=", "-o", "{target}"),
)
_COMPONENTIZE_PY = Recipe(
    tool="componentize-py",
    programs=("componentize-py",),
    arguments=(
        "-d",
        WIT,
        "-w",
        WORLD,
        "componentize",
        "{stem}",
        "--stub-wasi",
        "-p",
        "src",
        "-o",
        "{target}",
    ),
)
_COMPONENTIZE_QJS = Recipe(
    tool="componentize-qjs",
    programs=("node", "componentize-qjs"),
    arguments=(
        "{componentize-qjs}",
        "--wit",
        WIT,
        "--js",
        "{source}",
        "--sync",
        "--stub-wasi",
        "-n",
        WORLD,
        "-o",
        "{target}",
    ),
)
_NPM = "npm install --ignore-scripts --no-audit --no-fund"

LANGUAGES: Mapping[Language, LanguageFacts] = {
    Language.WAT: LanguageFacts(name="WebAssembly text", source="src/main.wat", sdk=(), recipes=(), install=""),
    Language.C: LanguageFacts(
        name="C",
        source="src/main.c",
        sdk=(("palyra.h", "sdk/palyra.h"),),
        recipes=(_CLANG, _ZIG),
        install=f"{{pip}} install {ZIG}",
    ),
    Language.RUST: LanguageFacts(
        name="Rust",
        source="src/lib.rs",
        sdk=(("palyra.rs", "src/palyra.rs"),),
        recipes=(_CARGO,),
        install="rustup target add wasm32-unknown-unknown (on Debian: apt-get install cargo libstd-rust-dev-wasm32)",
    ),
    Language.ASSEMBLYSCRIPT: LanguageFacts(
        name="AssemblyScript",
        source="src/main.ts",
        sdk=(("palyra.ts", "sdk/palyra.ts"), ("json.ts", "sdk/json.ts")),
        recipes=(_ASC,),
        install=f"{_NPM} {ASSEMBLYSCRIPT}",
    ),
    Language.PYTHON: LanguageFacts(
        name="Python",
        source="src/app.py",
        sdk=(("palyra.wit", "sdk/palyra.wit"),),
        recipes=(_COMPONENTIZE_PY,),
        install=f"{{pip}} install {COMPONENTIZE_PY}",
        fuel=COMPONENT_FUEL,
    ),
    Language.JAVASCRIPT: LanguageFacts(
        name="JavaScript",
        source="src/main.js",
        sdk=(("palyra.wit", "sdk/palyra.wit"),),
        recipes=(_COMPONENTIZE_QJS,),
        install=f"{_NPM} {COMPONENTIZE_QJS}",
        fuel=COMPONENT_FUEL,
    ),
}


def command_of(
    recipe: Recipe, *, source: str, target: str, crate: str, found: Mapping[str, str]
) -> tuple[tuple[str, ...], str]:
    """(argv, where the module then stands), from the programs that were found by name."""
    stem = source.rpartition("/")[2].partition(".")[0]
    holes = {**found, "source": source, "target": target, "stem": stem, "crate": crate}
    words = tuple(word.format_map(holes) for word in recipe.arguments)
    return (found[recipe.programs[0]], *words), recipe.made.format_map(holes)
