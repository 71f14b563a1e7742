"""Reads the shape of a WebAssembly module or component without compiling it, and refuses compile bombs.

A 40 KB module can keep a compiler busy for 17 s and a 1 MB one take a gigabyte; both show in counts that cost
microseconds to read. What passes is still compiled in a child with limits. A component is read through to the core
modules inside it.

Rules: every number is bounded by the bytes that are there; nothing is trusted because a header says so; recursion is
bounded. Bytes without the magic are refused here, because wasmtime would parse them as text.
"""

from __future__ import annotations

from dataclasses import field
from typing import Final

from palyra.errors import Reason, Rejected
from palyra.model.wasm import GuestKind, ModuleFacts
from palyra.values import dataclass

MAGIC: Final = b"\0asm"
CORE: Final = b"\x01\0\0\0"
COMPONENT: Final = b"\x0d\0\x01\0"

MAX_BYTES: Final = 64 << 20
MAX_MODULES: Final = 64
MAX_DEPTH: Final = 8
MAX_FUNCTIONS: Final = 200_000
MAX_BODY_BYTES: Final = 1 << 20
MAX_LOCALS: Final = 20_000
"""Of one function; compilers need a few hundred."""
MAX_ALL_LOCALS: Final = 4_000_000
MAX_IMPORTS: Final = 1000
MAX_EXPORTS: Final = 10_000
MAX_TABLES: Final = 16
MAX_MEMORIES: Final = 16

_HINT = "Build the module again with an ordinary tool-chain and optimisation for size."


@dataclass
class _Counts:
    modules: int = 0
    functions: int = 0
    largest_body_bytes: int = 0
    most_locals: int = 0
    all_locals: int = 0
    code_bytes: int = 0
    data_bytes: int = 0
    memories: int = 0
    memory_min_pages: int = 0
    tables: int = 0
    table_min_elements: int = 0
    has_start: bool = False
    imports: list[tuple[str, str]] = field(default_factory=list)
    exports: list[str] = field(default_factory=list)


class _Reader:
    """A cursor over a slice; every read is bounded by its end."""

    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.at, self.end = data, at, end

    def byte(self) -> int:
        if self.at >= self.end:
            raise _bad("ends too early")
        self.at += 1
        return self.data[self.at - 1]

    def number(self, bits: int = 32) -> int:
        """LEB128, never longer than its width needs: a padded one could hide another reading."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= bits + 6:
                raise _bad("holds a number that is too long")
        if value >> bits:
            raise _bad("holds a number that is too large")
        return value

    def part(self, size: int) -> _Reader:
        if size > self.end - self.at:
            raise _bad("claims more bytes than it has")
        inner = _Reader(self.data, self.at, self.at + size)
        self.at += size
        return inner

    def name(self) -> str:
        piece = self.part(self.number())
        try:
            return piece.data[piece.at : piece.end].decode("utf-8")
        except UnicodeDecodeError:
            raise _bad("holds a name that is not UTF-8") from None

    @property
    def left(self) -> int:
        return self.end - self.at


def scan(wasm: bytes) -> ModuleFacts:
    """Raises Rejected(BAD_ARGUMENTS) for what is no module or too large a shape to hand to a compiler."""
    if len(wasm) > MAX_BYTES:
        raise _bad(f"is larger than {MAX_BYTES} bytes")
    kind = _kind(wasm[:8])
    counts = _Counts()
    _module(_Reader(wasm, 0, len(wasm)), counts, depth=0)
    return ModuleFacts(
        kind=kind,
        size_bytes=len(wasm),
        modules=counts.modules,
        functions=counts.functions,
        largest_body_bytes=counts.largest_body_bytes,
        most_locals=counts.most_locals,
        code_bytes=counts.code_bytes,
        data_bytes=counts.data_bytes,
        memories=counts.memories,
        memory_min_pages=counts.memory_min_pages,
        tables=counts.tables,
        table_min_elements=counts.table_min_elements,
        imports=tuple(counts.imports),
        exports=tuple(counts.exports),
        has_start=counts.has_start,
    )


def _kind(head: bytes) -> GuestKind:
    if head == MAGIC + CORE:
        return GuestKind.CORE
    if head == MAGIC + COMPONENT:
        return GuestKind.COMPONENT
    raise _bad("does not begin like a WebAssembly module or component")


def _module(reader: _Reader, counts: _Counts, *, depth: int) -> None:
    kind = _kind(reader.data[reader.at : min(reader.at + 8, reader.end)])
    reader.at += 8
    if depth > MAX_DEPTH:
        raise _bad("nests components too deeply")
    if kind is GuestKind.CORE:
        counts.modules += 1
        _bound(counts.modules, MAX_MODULES, "core modules")
    while reader.left:
        section = reader.byte()
        body = reader.part(reader.number())
        if kind is GuestKind.CORE:
            _CORE_SECTIONS.get(section, _skip)(body, counts, depth)
        elif section in (1, 4):  # a core module, a component
            _module(body, counts, depth=depth + 1)
        elif depth == 0 and section in (10, 11):
            _component_names(body, counts, imports=section == 10)


def _skip(body: _Reader, counts: _Counts, depth: int) -> None: ...


def _imports(body: _Reader, counts: _Counts, depth: int) -> None:
    for _ in range(_bound(body.number(), MAX_IMPORTS, "imports")):
        wanted = body.name(), body.name()
        if depth == 0:
            counts.imports.append(wanted)
        match body.byte():
            case 0:
                body.number()
            case 1:
                _table_type(body, counts)
            case 2:
                _limits(body)  # another module of the component defines it: it is no memory more
            case 3:
                _value_type(body)
                body.byte()
            case 4:
                body.byte()
                body.number()
            case _:
                raise _bad("imports something unknown")


def _tables(body: _Reader, counts: _Counts, depth: int) -> None:
    for _ in range(_bound(body.number(), MAX_TABLES, "tables")):
        if body.left and body.data[body.at] == 0x40:
            raise _bad("gives tables initial values, which is not supported")
        _table_type(body, counts)


def _table_type(body: _Reader, counts: _Counts) -> None:
    _value_type(body)
    counts.tables += 1
    counts.table_min_elements += _limits(body)
    _bound(counts.tables, MAX_TABLES * MAX_MODULES, "tables")


def _memories(body: _Reader, counts: _Counts, depth: int) -> None:
    for _ in range(_bound(body.number(), MAX_MEMORIES, "memories")):
        counts.memories += 1
        counts.memory_min_pages += _limits(body)


def _limits(body: _Reader) -> int:
    flags = body.byte()
    if flags & ~0x07 or flags & 0x06:
        raise _bad("uses shared or 64-bit memories or tables, which are not supported")
    least = body.number()
    if flags & 1:
        body.number()
    return least


def _value_type(body: _Reader) -> None:
    if body.byte() in (0x63, 0x64):  # a typed reference names its type
        body.number(33)


def _exports(body: _Reader, counts: _Counts, depth: int) -> None:
    for _ in range(_bound(body.number(), MAX_EXPORTS, "exports")):
        name = body.name()
        body.byte()
        body.number()
        if depth == 0:
            counts.exports.append(name)


def _start(body: _Reader, counts: _Counts, depth: int) -> None:
    counts.has_start = True


def _code(body: _Reader, counts: _Counts, depth: int) -> None:
    count = body.number()
    counts.functions = _bound(counts.functions + count, MAX_FUNCTIONS, "functions")
    counts.code_bytes += body.left
    for _ in range(count):
        function = body.part(body.number())
        size = _bound(function.left, MAX_BODY_BYTES, "bytes in one function")
        counts.largest_body_bytes = max(counts.largest_body_bytes, size)
        local = 0
        for _ in range(_bound(function.number(), MAX_LOCALS, "groups of locals in one function")):
            local = _bound(local + function.number(), MAX_LOCALS, "locals in one function")
            _value_type(function)
        counts.most_locals = max(counts.most_locals, local)
        counts.all_locals = _bound(counts.all_locals + local, MAX_ALL_LOCALS, "locals")


def _data(body: _Reader, counts: _Counts, depth: int) -> None:
    counts.data_bytes += body.left


_CORE_SECTIONS = {2: _imports, 4: _tables, 5: _memories, 7: _exports, 8: _start, 10: _code, 11: _data}


UNREADABLE: Final = "(a name that cannot be read)"


def _component_names(body: _Reader, counts: _Counts, *, imports: bool) -> None:
    """Names with what stands between them: a description of a kind, or a place in an index space. What is of a kind we
    do not know ends the list with a name that nobody offers; wasmtime tells the rest when it compiles."""
    for _ in range(_bound(body.number(), MAX_IMPORTS if imports else MAX_EXPORTS, "names")):
        name = body.name() if body.byte() in (0, 1) else UNREADABLE
        if imports:
            counts.imports.append((name, ""))
        else:
            counts.exports.append(name)
        if name == UNREADABLE or not (_description(body) if imports else _exported(body)):
            if body.left and imports:
                counts.imports.append((UNREADABLE, ""))
            return


def _description(body: _Reader) -> bool:
    """An `externdesc`: false where its form is not one of those with nothing but indices in it."""
    kind = body.byte()
    if kind == 0 and body.byte() != 0x11:
        return False
    if kind == 3 and body.byte() == 1:  # a fresh resource: nothing follows
        return True
    if kind not in (0, 1, 3, 4, 5):
        return False
    body.number()
    return True


def _exported(body: _Reader) -> bool:
    if body.byte() == 0:
        body.byte()
    body.number()
    return body.byte() == 0 or _description(body)


def _bound(count: int, most: int, what: str) -> int:
    if count > most:
        raise _bad(f"has more than {most} {what}")
    return count


def _bad(why: str) -> Rejected:
    return Rejected(Reason.BAD_ARGUMENTS, f"The module {why}.", _HINT)
