"""The domain imports nothing that touches the world, and no module outgrows its limit.

Which package may import which is checked by import-linter (`.importlinter`).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "palyra"
MAX_LINES = 800
PURE = """
    palyra.errors palyra.canon palyra.signing palyra.attest palyra.model.* palyra.protocol.* palyra.policy.*
    palyra.budget.* palyra.approvals.* palyra.guard.* palyra.sandbox.* palyra.egress.* palyra.redact.*
    palyra.journal.* palyra.skills.* palyra.artifacts.* palyra.tokens.* palyra.config.*
""".split()
ADAPTERS = """
    *.store *.store.* *.dial *.load palyra.egress.fetch palyra.egress.server.* palyra.guard.look* palyra.sandbox.probe*
""".split()
"""Modules inside those packages that do touch the world."""
IMPURE = frozenset(
    """
    asyncio concurrent ctypes fcntl glob http importlib logging multiprocessing random resource secrets select selectors
    shutil signal socket sqlite3 subprocess sys tempfile threading time urllib.request wasmtime
    """.split()
)
PURE_CALLS_OF_OS = frozenset("fspath path strerror".split())
MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


def is_pure(name: str) -> bool:
    return any(fnmatchcase(name, one) for one in PURE) and not any(fnmatchcase(name, one) for one in ADAPTERS)


def find_impure(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports or calls that reaches the world."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names if {alias.name, alias.name.split(".")[0]} & IMPURE)
            case ast.ImportFrom(module=str(module)) if {module, module.split(".")[0]} & IMPURE:
                yield module
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in PURE_CALLS_OF_OS:
                yield f"os.{name}"
            case ast.Call(func=ast.Name(id="open" | "print" | "input" | "exec" | "eval" as name)):
                yield f"{name}()"


@pytest.mark.parametrize("path", [path for path in MODULES if is_pure(name_of(path))], ids=name_of)
def test_a_module_of_the_domain_touches_nothing(path: Path) -> None:
    assert list(find_impure(ast.parse(path.read_text(encoding="utf-8")))) == []


def test_no_module_is_longer_than_its_limit() -> None:
    assert [name_of(path) for path in MODULES if len(path.read_text(encoding="utf-8").splitlines()) > MAX_LINES] == []


@pytest.mark.parametrize("code", ["import time", "from http.client import HTTPException", "os.getpid()", "open('x')"])
def test_an_import_or_a_call_that_reaches_the_world_is_found(code: str) -> None:
    assert list(find_impure(ast.parse(code)))
