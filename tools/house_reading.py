"""Reads a Python package with `ast`: its modules, their sizes and imports, and which of them touch the world.

Nothing of the package is imported or run. Not here: what is allowed (house.py) and how it looks (house_drawing.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

# What counts as touching the world: importing one of these modules …
IO_MODULES = frozenset(
    "aiofiles anyio asyncio concurrent ctypes fcntl glob http.client http.server httpcore httpx "
    "importlib.resources multiprocessing platformdirs pty random requests resource secrets select "
    "selectors shutil signal socket socketserver sqlite3 subprocess tempfile termios threading trio "
    "urllib.request urllib3 uvicorn wasmtime webbrowser".split()
)
# … using a half-pure one for more than these names …
IO_HALF = {
    "os": frozenset("PathLike fspath path sep linesep pathsep devnull strerror".split()),
    "sys": frozenset("version_info maxsize byteorder implementation modules".split()),
    "time": frozenset({"struct_time"}),
}
# … or calling one of these.
IO_METHODS = frozenset(
    "exists expanduser getenv is_dir is_file is_symlink isdir isfile iterdir lstat mkdir now read_bytes read_text "
    "readlink realpath rglob today touch unlink utcnow uuid1 uuid4 write_bytes write_text".split()
)
IO_CALLS = frozenset({"open", "print", "input", "exec", "eval", "__import__"})
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
LOOP = (ast.For, ast.AsyncFor, ast.While, ast.comprehension)
BRANCH = (*LOOP, ast.If, ast.IfExp, ast.BoolOp, ast.ExceptHandler, ast.match_case)


@dataclass(frozen=True)
class Function:
    where: str
    lines: int
    paths: int
    typed: bool


@dataclass(frozen=True)
class Module:
    name: str
    inner: str  # the name within the package drawn: 'egress.rules'; '.' for the package itself
    lines: int
    code: int  # lines on which code begins
    public: tuple[str, ...]
    documented: bool
    world: tuple[str, ...]  # why it is not pure; empty when it is
    functions: tuple[Function, ...]


@dataclass(frozen=True, order=True)
class Edge:
    source: str
    target: str
    kind: str  # 'run' at import, 'lazy' inside a function, 'type' under TYPE_CHECKING


def read_package(root: Path, skip: list[str]) -> tuple[dict[str, Module], set[Edge]]:
    """Every module below `root`, and who imports whom. Raises SyntaxError: what cannot be read cannot be judged."""
    top = root
    while (top.parent / "__init__.py").is_file():  # absolute imports begin at the outermost package
        top = top.parent
    known: dict[str, tuple[Path, str]] = {}
    for path in sorted(root.rglob("*.py")):
        file = path.parent if path.name == "__init__.py" else path.with_suffix("")
        name, inner = (".".join(file.relative_to(base).parts) for base in (top.parent, root))
        if not matches(inner, skip):
            known[name] = (path, inner or ".")
    modules: dict[str, Module] = {}
    edges: set[Edge] = set()
    for name, (path, inner) in known.items():
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path))
        modules[name] = read_module(name, inner, text, tree)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for node, kind in walk(tree):
            named = (narrow if narrow in known else wide for narrow, wide in import_targets(node, package))
            edges |= {Edge(name, target, kind) for target in named}
    return modules, {e for e in edges if e.target in modules and e.target != e.source}


def read_module(name: str, inner: str, text: str, tree: ast.Module) -> Module:
    return Module(
        name=name,
        inner=inner,
        lines=len(text.splitlines()),
        code=len({n.lineno for n in ast.walk(tree) if isinstance(n, ast.stmt | ast.expr)}),
        public=tuple(public_names(tree)),
        documented=ast.get_docstring(tree) is not None,
        world=tuple(sorted({r for node, kind in walk(tree) if kind != "type" for r in io_reasons(node)})),
        functions=tuple(read_functions(tree, inner)),
    )


def walk(tree: ast.AST, kind: str = "run") -> Iterator[tuple[ast.AST, str]]:
    """Every node, with how an import there would happen: run, lazy or type."""
    for child in ast.iter_child_nodes(tree):
        inner = kind
        if isinstance(child, (*FUNCTION, ast.Lambda)) and kind == "run":
            inner = "lazy"
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            inner = "type"
        yield child, inner
        yield from walk(child, inner)


def import_targets(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """What an import statement may name: (module.name, module), relative ones made absolute; the first known counts."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        parents = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
        base = ".".join([*parents, *([node.module] if node.module else [])])
        yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def io_reasons(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    match node:
        case ast.Import():
            names = [alias.name for alias in node.names]
            # Under another name the attributes below would not be seen.
            yield from (f"{a.name} as {a.asname}" for a in node.names if a.name in IO_HALF and a.asname)
        case ast.ImportFrom(module=str(module), level=0):
            names = [module]
            if module in IO_HALF:
                yield from (f"{module}.{a.name}" for a in node.names if a.name not in IO_HALF[module])
        case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in IO_HALF:
            if name not in IO_HALF[owner]:
                yield f"{owner}.{name}"
        case ast.Call(func=ast.Attribute(attr=name)) if name in IO_METHODS:
            yield f".{name}()"
        case ast.Call(func=ast.Name(id=name)) if name in IO_CALLS:
            yield f"{name}()"
    yield from (n for n in names if {n, n.partition(".")[0]} & IO_MODULES)


def public_names(tree: ast.Module) -> list[str]:
    """`__all__` when it is a literal, else the top-level names without a '_'."""
    names: list[str] = []
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List(elts=all_) | ast.Tuple(elts=all_)):
                return [str(e.value) for e in all_ if isinstance(e, ast.Constant)]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.append(name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.append(name)
    return [n for n in names if not n.startswith("_")]


def read_functions(node: ast.AST, where: str) -> Iterator[Function]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from read_functions(child, f"{where}.{child.name}")
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from read_functions(child, where)
        elif isinstance(child, FUNCTION):
            arguments = [*child.args.posonlyargs, *child.args.args, *child.args.kwonlyargs]
            bare = [a for a in arguments if a.annotation is None and a.arg not in {"self", "cls"}]
            yield Function(
                where=f"{where}.{child.name}",
                lines=(child.end_lineno or child.lineno) - child.lineno + 1,
                paths=1 + sum(isinstance(n, BRANCH) for n in ast.walk(child)),
                typed=child.returns is not None and not bare,
            )


def matches(name: str, patterns: list[str]) -> bool:
    """Whether a dotted name fits a pattern; 'model.*' takes in 'model' itself."""
    return any(fnmatch(n, p) for n in (name, name + ".") for p in patterns)
