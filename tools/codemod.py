#!/usr/bin/env python3
"""Renames modules, classes, functions and attributes of Palyra as `tools/renames.toml` says.

    codemod.py [--check] [RENAMES]

It rewrites imports and references (by libcst, with scopes), dotted names and paths in strings, pages, Makefile and
configuration, and moves the files and the unit tests that mirror them. It never touches golden files. `--check` changes
nothing and lists where an old name is left. Afterwards `ruff` sorts the imports.

    [modules]                       # a package takes its modules with it; `git mv` moves the files
    "palyra.redact" = "palyra.redaction"
    [names]                         # classes, functions and constants at the top of a module (by its old name)
    "palyra.launch.held:Held" = "PreparedSandbox"
    [attributes]                    # fields and methods: every `.road`, `road=` and its definition
    road = "launch_mode"

Not here: prose that speaks of a thing without its name in the code; that is rewritten by hand.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from libcst.metadata import MetadataWrapper, QualifiedNameProvider, QualifiedNameSource

PROJECT = Path(__file__).parents[1]
SOURCES = ("src", "tests", "bench", "tools", "examples")
PAGES = (
    "*.md",
    "docs/**/*.md",
    "Makefile",
    "pyproject.toml",
    ".importlinter",
    "tools/*.toml",
    "tools/*.sh",
    "deploy/*",
)
UNTOUCHED = ("tests/vectors/", "tools/renames.toml", "tools/codemod.py", "CHANGELOG.md")


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One module or package with all that it holds."""

    old: str
    new: str
    is_package: bool

    def paths(self, root: str) -> tuple[str, str]:
        """Return old and new place below a folder: of the source, or of the unit tests that mirror it."""
        return tuple(f"{root}/{name.removeprefix('palyra.').replace('.', '/')}" for name in (self.old, self.new))  # type: ignore[return-value]

    def test_paths(self) -> tuple[str, str]:
        """Return the unit tests' folder for a package, `test_…` without a suffix for a module."""
        if self.is_package:
            return self.paths("tests/unit")
        return tuple("/test_".join(path.rsplit("/", 1)) for path in self.paths("tests/unit"))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renames:
    """What the file says, longest names first; `modules` has an entry for every single module that moves."""

    moves: tuple[Move, ...]
    modules: Mapping[str, str]
    names: Mapping[str, str]
    attributes: Mapping[str, str]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing, list old names that are left")
    parser.add_argument("renames", nargs="?", type=Path, default=PROJECT / "tools" / "renames.toml")
    args = parser.parse_args(argv)
    renames = read_renames(args.renames)
    if args.check:
        left = list(find_left(renames))
        print("\n".join(left) or "no old name is left")
        return 1 if left else 0
    for path in python_files():
        text = path.read_text(encoding="utf-8")
        write_changed(path, rewrite_text(rewrite_code(text, module_of(path), renames), renames, is_python=True))
    for path in pages():
        write_changed(path, rewrite_text(path.read_text(encoding="utf-8"), renames, is_python=False))
    for move in renames.moves:
        move_module(move)
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["format", "--quiet"], ["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        subprocess.run([*ruff, *words, "."], cwd=PROJECT, check=True)
    return 0


def read_renames(path: Path) -> Renames:
    """Read the file; raise ValueError on a module or a name that does not exist."""
    tables = tomllib.loads(path.read_text(encoding="utf-8"))
    moves, modules = [], {}
    for old, new in sorted(
        tables.get("modules", {}).items()
    ):  # a package before its modules, whose own entries say more
        found = list(modules_below(old))
        if not found and not list(modules_below(new)):
            raise ValueError(f"there is no module {old}")
        modules.update({module: new + module.removeprefix(old) for module in found})
        moves.append(
            Move(old=old, new=new, is_package=not source_of(old).is_file() or source_of(old).name == "__init__.py")
        )
    names = {}
    for place, new in tables.get("names", {}).items():
        module, _, name = place.partition(":")
        if not re.search(
            rf"^(?:async )?(?:def|class) {name}\b|^{name}\b.*=", source_of(module).read_text(), re.MULTILINE
        ):
            raise ValueError(f"{module} does not define {name}")
        names[f"{module}.{name}"] = new
    moves.sort(key=lambda move: -len(move.old))
    return Renames(moves=tuple(moves), modules=modules, names=names, attributes=tables.get("attributes", {}))


def modules_below(name: str) -> Iterator[str]:
    """Yield a module's own name, or those of a package and of all that it holds."""
    path = PROJECT / "src" / Path(*name.split("."))
    if path.with_suffix(".py").is_file():
        yield name
    elif path.is_dir():
        yield name
        for file in path.rglob("*.py"):
            if file.name != "__init__.py" or file.parent != path:
                yield module_of(file)


def source_of(module: str) -> Path:
    path = PROJECT / "src" / Path(*module.split("."))
    return path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py"


def module_of(path: Path) -> str:
    """Return the dotted name of a source file; tests and tools have theirs below the project."""
    relative = path.relative_to(PROJECT)
    parts = relative.parts[1:] if relative.parts[0] == "src" else relative.parts
    return ".".join(Path(*parts).with_suffix("").parts).removesuffix(".__init__")


def python_files() -> list[Path]:
    return [path for folder in SOURCES for path in sorted((PROJECT / folder).rglob("*.py")) if is_ours(path)]


def pages() -> list[Path]:
    return [path for pattern in PAGES for path in sorted(PROJECT.glob(pattern)) if path.is_file() and is_ours(path)]


def is_ours(path: Path) -> bool:
    return not path.relative_to(PROJECT).as_posix().startswith(UNTOUCHED)


def write_changed(path: Path, text: str) -> None:
    if text != path.read_text(encoding="utf-8"):
        path.write_text(text, encoding="utf-8")


# ── code ─────────────────────────────────────────────────────────────────────


def rewrite_code(text: str, module: str, renames: Renames) -> str:
    """Return a Python file with imports of moved modules and references to renamed names changed."""
    if not needs_scopes(text, module, renames):
        return text
    wrapper = MetadataWrapper(cst.parse_module(text))
    return wrapper.visit(References(module, renames)).code


def needs_scopes(text: str, module: str, renames: Renames) -> bool:
    """Return whether a file may hold what replacing dotted names does not reach; parsing every file takes minutes."""
    for move in renames.moves:
        parent, _, last = move.old.rpartition(".")
        if re.search(
            rf"from {re.escape(parent)} import [^\n]*\b{last}\b|from {re.escape(parent)} import \([^)]*\b{last}\b", text
        ):
            return True
    for full in renames.names:
        owner, _, name = full.rpartition(".")
        if re.search(rf"\b{name}\b", text) and (module == owner or owner.rpartition(".")[2] in text):
            return True
    return any(re.search(rf"\b{name}\b", text) for name in renames.attributes)


class References(cst.CSTTransformer):
    """Renames what a file imports, refers to or defines.

    `from palyra.state import mark` becomes an import from the new package; a module whose last part changes is renamed
    where it is used, unless the import gave it another name.
    """

    METADATA_DEPENDENCIES = (QualifiedNameProvider,)

    def __init__(self, module: str, renames: Renames) -> None:
        super().__init__()
        self.module, self.renames = module, renames

    def new_name(self, node: cst.CSTNode) -> str | None:
        """Return the new last part of the name that a node refers to, if it has one."""
        for name in self.get_metadata(QualifiedNameProvider, node, default=set()) or ():
            full = name.name if name.source is QualifiedNameSource.IMPORT else f"{self.module}.{name.name}"
            if full in self.renames.names:
                return self.renames.names[full]
            if full in self.renames.modules and name.source is QualifiedNameSource.IMPORT:
                return self.renames.modules[full].rpartition(".")[2]
        return None

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        new = self.new_name(original_node)
        aliased = {
            name.name.rpartition(".")[2] for name in self.get_metadata(QualifiedNameProvider, original_node, set())
        }
        if new is None or original_node.value not in aliased:  # `import x as y`: y stays
            return updated_node
        return updated_node.with_changes(value=new)

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        old = original_node.attr.value
        new = self.new_name(original_node) or self.renames.attributes.get(old)
        return updated_node if new is None else updated_node.with_changes(attr=cst.Name(new))

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        new = self.renames.attributes.get(original_node.keyword.value) if original_node.keyword else None
        return updated_node if new is None else updated_node.with_changes(keyword=cst.Name(new))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        new = self.new_name(original_node) or self.renames.attributes.get(original_node.name.value)
        return updated_node if new is None else updated_node.with_changes(name=cst.Name(new))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        new = self.new_name(original_node)
        return updated_node if new is None else updated_node.with_changes(name=cst.Name(new))

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        if isinstance(original_node.target, cst.Name) and original_node.target.value in self.renames.attributes:
            return updated_node.with_changes(target=cst.Name(self.renames.attributes[original_node.target.value]))
        return updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        """Rename the string in `setattr(module, "name", …)` and its kind."""
        called = original_node.func.attr if isinstance(original_node.func, cst.Attribute) else original_node.func
        if len(original_node.args) < 2 or not isinstance(called, cst.Name) or "attr" not in called.value:
            return updated_node
        target, name = original_node.args[0].value, original_node.args[1].value
        if not isinstance(name, cst.SimpleString):
            return updated_node
        old = str(name.evaluated_value)
        owners = {one.name for one in self.get_metadata(QualifiedNameProvider, target, set())}
        new = next(
            (self.renames.names[f"{owner}.{old}"] for owner in owners if f"{owner}.{old}" in self.renames.names), None
        )
        new = new or self.renames.attributes.get(old)
        if new is None:
            return updated_node
        renamed = updated_node.args[1].with_changes(value=cst.SimpleString(f'"{new}"'))
        return updated_node.with_changes(args=[updated_node.args[0], renamed, *updated_node.args[2:]])

    def leave_ImportFrom(
        self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom
    ) -> cst.ImportFrom | cst.FlattenSentinel[cst.ImportFrom]:
        """Rename what is imported; split an import whose modules part ways."""
        if isinstance(original_node.names, cst.ImportStar) or original_node.module is None:
            return updated_node
        package = cst.Module([]).code_for_node(original_node.module)
        stay, leave = [], []
        for alias in original_node.names:
            full = f"{package}.{alias.evaluated_name}"
            target = self.renames.modules.get(full)
            new = self.renames.names.get(full) or (target or full).rpartition(".")[2]
            renamed = alias.with_changes(name=cst.Name(new), comma=cst.MaybeSentinel.DEFAULT)
            parent = target.rpartition(".")[0] if target else package
            if target and parent != self.renames.modules.get(package, package):
                leave.append((parent, renamed))
            else:
                stay.append(renamed)
        if not leave and [alias.name.value for alias in stay] == [
            alias.evaluated_name for alias in original_node.names
        ]:
            return updated_node
        lines = [updated_node.with_changes(names=stay, lpar=None, rpar=None)] if stay else []
        for parent, alias in leave:
            lines.append(updated_node.with_changes(module=dotted(parent), names=[alias], lpar=None, rpar=None))
        return lines[0] if len(lines) == 1 else cst.FlattenSentinel(lines)


def dotted(name: str) -> cst.Attribute | cst.Name:
    head, _, tail = name.rpartition(".")
    return cst.Attribute(value=dotted(head), attr=cst.Name(tail)) if head else cst.Name(tail)


# ── text: dotted names, paths, prose ─────────────────────────────────────────


def rewrite_text(text: str, renames: Renames, *, is_python: bool) -> str:
    """Return a text with dotted names and paths changed; in Python, short paths only in comments and docstrings."""
    for full, new in renames.names.items():
        text = re.sub(rf"(?<![\w.]){re.escape(full)}(?!\w)", f"{full.rpartition('.')[0]}.{new}", text)
    for move in renames.moves:
        text = re.sub(rf"(?<![\w.]){re.escape(move.old)}(?!\w)", move.new, text)
        for old, new in (move.paths("palyra"), move.test_paths()):
            text = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w-])", new, text)
            text = re.sub(rf"(?<=src/){re.escape(old)}(?![\w-])", new, text)
    if not is_python:
        return rewrite_prose(text, renames)
    return "".join(rewrite_prose(part, renames) if is_prose else part for is_prose, part in split_prose(text))


def rewrite_prose(text: str, renames: Renames) -> str:
    """Change `launch/held`, `redact/` and, in backticks, names of classes and functions."""
    for move in renames.moves:
        old, new = (path.removeprefix("/") for path in move.paths(""))
        after = r"(?=/[a-z_*])" if "/" not in old else r"(?![\w/-])"
        text = re.sub(rf"(?<![\w/.-]){re.escape(old)}{after}", new, text)
    for full, new in renames.names.items():
        text = re.sub(rf"(?<=`){full.rpartition('.')[2]}(?=[`(.])", new, text)
    return text


def split_prose(text: str) -> Iterator[tuple[bool, str]]:
    """Yield a file's pieces in order, each with whether it is a comment or a triple-quoted string."""
    lines = text.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    at = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_docstring = token.type == tokenize.STRING and token.string.lstrip("rbfuRBFU").startswith('"""')
        if token.type == tokenize.COMMENT or is_docstring:
            begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            yield False, text[at:begin]
            yield True, text[begin:end]
            at = end
    yield False, text[at:]


# ── files ────────────────────────────────────────────────────────────────────


def move_module(move: Move) -> None:
    """Move a module's or package's source and the unit tests that mirror it."""
    suffix = "" if move.is_package else ".py"
    for old, new in (move.paths("src/palyra"), move.test_paths()):
        if (PROJECT / (old + suffix)).exists():
            git_move(PROJECT / (old + suffix), PROJECT / (new + suffix))
    package = (PROJECT / move.paths("src/palyra")[1]).parent
    while package != PROJECT / "src" / "palyra":
        (package / "__init__.py").touch()
        package = package.parent


def git_move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "-C", str(PROJECT), "mv", "-k", str(source), str(target)], check=True)
    if source.is_dir():  # what git does not know, such as caches
        subprocess.run(["rm", "-rf", str(source)], check=True)


def find_left(renames: Renames) -> Iterator[str]:
    """Yield each place where an old module name, old path or old qualified name is still written."""
    old = [name for move in renames.moves for name in (move.old, move.paths("palyra")[0])] + [*renames.names]
    pattern = re.compile("|".join(rf"(?<![\w.-]){re.escape(name)}(?![\w-])" for name in old) or r"(?!)")
    for path in (*python_files(), *pages()):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if pattern.search(line):
                yield f"{path.relative_to(PROJECT)}:{number}: {line.strip()[:120]}"


if __name__ == "__main__":
    sys.exit(main())
