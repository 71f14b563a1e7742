"""Mutation testing: small wrongs put into the rooms that decide, one at a time; the room's own tests must notice each.

    python tools/mutate.py [--rooms guard …] [--modules paths …] [--each N] [--seed N] [--seconds S] [--jobs N]

A mutant is one change of one expression (a comparison, `and`/`or`, a `not`, a constant, a bound, a raise or a call that
is left out). It is compiled in memory by an import hook in a fork of its own, which runs the module's own test file
first, then the room's other tests, its property tests last, and stops at the first failure. What no test notices has
survived: it is printed with its place, and is a missing promise, or a change that means nothing. The latter stand in
tools/mutate_equivalent.toml with their reason and are not tried.

Sampled by a seed, so that a score can be made again; the sample is spread over the modules. Nothing on disk changes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib.abc
import importlib.machinery
import json
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

PROJECT = Path(__file__).parents[1]
SOURCE = PROJECT / "src"
EQUIVALENT = PROJECT / "tools" / "mutate_equivalent.toml"
ROOMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "guard": (
        tuple("command environ escapes facts files gitline options paths programs sedscript texts wrappers".split()),
        tuple(
            f"tests/unit/guard/test_{name}.py"
            for name in (
                "command escapes wrappers gitline programs options holes facts files paths environ sedscript texts"
            ).split()
        ),
    ),
    "policy": (
        tuple("bundle cedar clauses compare decide reach request slices verdict".split()),
        ("tests/unit/policy",),
    ),
    "egress": (
        tuple("asked hosts preflight rules terms watch".split()),
        tuple(
            f"tests/unit/egress/test_{name}.py"
            for name in (
                "rules rules_attacks terms hosts preflight preflight_attacks preflight_tables asked watch conversation "
                "server"
            ).split()
        ),
    ),
}
CPU_S = 120
"""Beyond it a mutant is endless, and whoever waited would notice: counted as noticed."""
PATIENCE_S = 900
"""A busy machine may need so long; what still runs then could not be told, and counts as survived."""
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    room: str
    module: str
    number: int
    line: int
    what: str
    text: str

    @property
    def key(self) -> tuple[str, str, str]:
        return f"{self.room}/{self.module}.py", self.text, self.what


# ── mutants ──────────────────────────────────────────────────────────────────


class Mutator(ast.NodeTransformer):
    """Counts every place where something could be wrong; at `chosen`, makes it so."""

    def __init__(self, chosen: int = -1) -> None:
        self.chosen = chosen
        self.found: list[tuple[int, str]] = []

    def _here(self, node: ast.AST, what: str) -> bool:
        self.found.append((getattr(node, "lineno", 0), what))
        return len(self.found) - 1 == self.chosen

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for at, operator in enumerate(node.ops):
            other = SWAPS.get(type(operator))
            if other is not None and self._here(node, f"{type(operator).__name__} → {other.__name__}"):
                node.ops[at] = other()  # type: ignore[call-overload]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        if self._here(node, f"{type(node.op).__name__} → {SWAPS[type(node.op)].__name__}"):
            node.op = SWAPS[type(node.op)]()  # type: ignore[assignment]
        for at in range(len(node.values)):
            if len(node.values) > 1 and self._here(node, f"operand {at + 1} left out"):
                node.values = node.values[:at] + node.values[at + 1 :]
                break
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = SWAPS.get(type(node.op))
        if other is not None and self._here(node, f"{type(node.op).__name__} → {other.__name__}"):
            node.op = other()  # type: ignore[assignment]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return node.operand if isinstance(node.op, ast.Not) and self._here(node, "not left out") else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        self.generic_visit(node)
        if self._here(node, "branches swapped"):
            node.body, node.orelse = node.orelse, node.body
        return node

    def visit_If(self, node: ast.If) -> ast.AST:
        self.generic_visit(node)
        if self._here(node, "if never"):
            node.test = ast.Constant(value=False)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bool):
            return ast.Constant(value=not node.value) if self._here(node, f"{node.value} → {not node.value}") else node
        if isinstance(node.value, int):
            return ast.Constant(value=node.value + 1) if self._here(node, f"{node.value} + 1") else node
        if isinstance(node.value, str) and 0 < len(node.value) <= 16 and " " not in node.value:
            return ast.Constant(value=node.value[1:] or "¬") if self._here(node, f"{node.value!r} changed") else node
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and isinstance(node.value, ast.Call) and self._here(node, "returns None"):
            node.value = ast.Constant(value=None)
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return ast.Pass() if self._here(node, "raise left out") else node  # its sentence is not mutated

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):
            return node  # a docstring
        self.generic_visit(node)
        return ast.Pass() if isinstance(node.value, ast.Call) and self._here(node, "call left out") else node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [self.visit(part) for part in node.body]  # not its decorator: frozen and slots decide nothing
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        exported = isinstance(node.targets[0], ast.Name) and node.targets[0].id == "__all__"
        return node if exported else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [self.visit(part) for part in node.body]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node  # sentences for people

    def visit_Import(self, node: ast.Import) -> ast.AST:
        return node

    visit_ImportFrom = visit_Import  # type: ignore[assignment]


def mutants_of(room: str, module: str) -> list[Mutant]:
    text = path_of(room, module).read_text(encoding="utf-8")
    lines = text.splitlines()
    mutator = Mutator()
    mutator.visit(ast.parse(text))
    return [
        Mutant(room=room, module=module, number=number, line=line, what=what, text=lines[line - 1].strip())
        for number, (line, what) in enumerate(mutator.found)
    ]


def equivalents() -> dict[tuple[str, str, str], str]:
    """Why a change means nothing, by module, line and change. A line is named by its text, so that none goes astray."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))["mutant"]
    return {(row["module"], row["line"], row["change"]): row["why"] for row in rows}


def path_of(room: str, module: str) -> Path:
    return SOURCE / "palyra" / room / f"{module}.py"


# ── one mutant in a process of its own ───────────────────────────────────────


class Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, mutant: Mutant) -> None:
        self._name = f"palyra.{mutant.room}.{mutant.module}"
        self._path = path_of(mutant.room, mutant.module)
        tree = ast.parse(self._path.read_text(encoding="utf-8"))
        changed = ast.fix_missing_locations(Mutator(mutant.number).visit(copy.deepcopy(tree)))
        self._code = compile(changed, str(self._path), "exec")

    def find_spec(
        self, fullname: str, path: object, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin=str(self._path))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(self._code, module.__dict__)


class Order:
    """A plugin for pytest: the module's own file first, property tests last."""

    def __init__(self, own: str) -> None:
        self._own = own

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: (item.get_closest_marker("hypothesis") is not None, str(item.path) != self._own))


def start(mutant: Mutant | None, tests: list[str]) -> int:
    """The process that tries it: 0 when no test noticed. None runs the tests on the code as it is."""
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        try:
            if mutant is not None:
                sys.meta_path.insert(0, Hook(mutant))
            import pytest

            quick = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
            code = int(pytest.main([*quick, *tests], plugins=[Order(tests[0])]))
        except BaseException:  # noqa: BLE001  # a mutant that cannot even be imported is noticed too
            code = 1
        os._exit(0 if code == 0 else 1)
    return pid


def ended(pid: int, since: float) -> str | None:
    """survived, killed or untold; None while it runs."""
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
    if time.monotonic() - since <= PATIENCE_S:
        return None
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "untold"


def tests_for(room: str, module: str) -> list[str]:
    """Its own file first: most mutants end there."""
    places = [PROJECT / place for place in ROOMS[room][1] if (PROJECT / place).exists()]
    own = PROJECT / "tests" / "unit" / room / f"test_{module}.py"
    files = sorted({file for place in places for file in (place.rglob("test_*.py") if place.is_dir() else [place])})
    return [str(file) for file in ([own] if own.exists() else []) + [file for file in files if file != own]]


# ── the score ────────────────────────────────────────────────────────────────


def choose(rooms: list[str], modules: list[str], each: int, seed: int) -> list[Mutant]:
    chance = random.Random(seed)
    chosen: list[Mutant] = []
    harmless = equivalents()
    for room in rooms:
        for module in ROOMS[room][0]:
            if path_of(room, module).exists() and module in (modules or [module]):
                found = [mutant for mutant in mutants_of(room, module) if mutant.key not in harmless]
                chosen += chance.sample(found, min(each, len(found)))
    chance.shuffle(chosen)  # a time-box then cuts every module alike
    return chosen


def run(mutants: list[Mutant], seconds: float, jobs: int) -> Iterator[tuple[Mutant, str]]:
    deadline = time.monotonic() + seconds
    waiting = list(reversed(mutants))
    under_way: dict[int, tuple[Mutant, float]] = {}
    while under_way or (waiting and time.monotonic() < deadline):
        while waiting and len(under_way) < jobs and time.monotonic() < deadline:
            mutant = waiting.pop()
            under_way[start(mutant, tests_for(mutant.room, mutant.module))] = (mutant, time.monotonic())
        for pid, (mutant, since) in list(under_way.items()):
            if (result := ended(pid, since)) is not None:
                del under_way[pid]
                yield mutant, result
        time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rooms", nargs="*", default=list(ROOMS), choices=list(ROOMS))
    parser.add_argument("--modules", nargs="*", default=[], help="these alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--each", type=int, default=12, help="mutants of each module")
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", type=Path, help="results as JSON")
    given = parser.parse_args()
    os.chdir(PROJECT)
    sys.path[:0] = [str(SOURCE), str(PROJECT), str(PROJECT / "tools")]
    import cedarpy
    import cryptography
    import pytest

    assert all((cedarpy, cryptography, pytest))  # imported once here, for every fork
    for room in given.rooms:  # otherwise every mutant would seem to be noticed
        if os.waitstatus_to_exitcode(os.waitpid(start(None, tests_for(room, "")), 0)[1]) != 0:
            print(f"the tests of {room} fail without any mutant")
            return 1
    came: dict[str, Counter[str]] = {room: Counter() for room in given.rooms}
    survivors = []
    chosen = choose(given.rooms, given.modules, given.each, given.seed)
    for mutant, result in run(chosen, given.seconds, given.jobs):
        came[mutant.room][result] += 1
        if result != "killed":
            survivors.append(mutant)
            place = f"{mutant.room}/{mutant.module}.py:{mutant.line}"
            print(f"{result:8}  {place}  {mutant.what}  |  {mutant.text}", flush=True)
    for room, counts in came.items():
        total, caught = counts.total(), counts["killed"]
        print(f"{room:8} {caught}/{total} noticed ({100 * caught / total if total else 0:.0f} %)")
    if given.write:
        rows = [f"{one.room}/{one.module}.py:{one.line} {one.what}" for one in survivors]
        given.write.write_text(json.dumps({"rooms": came, "survived": sorted(rows)}, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
