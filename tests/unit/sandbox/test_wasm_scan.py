"""The shape of a module is read from its bytes alone, and compile bombs are refused before any compiler sees them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wasmtime import wat2wasm

from palyra.errors import Reason, Rejected
from palyra.model.wasm import GuestKind, ModuleFacts
from palyra.sandbox.wasm_scan import MAX_FUNCTIONS, MAX_LOCALS, scan
from tests.promises import promise


def wasm(text: str) -> bytes:
    return bytes(wat2wasm(text))


SMALL = wasm(
    """(module (import "a" "b" (func (param i32))) (import "a" "c" (memory 2)) (table 5 10 funcref)
       (func (export "run") (result i32) (local i32 i64 i64) (i32.const 0)) (func $s) (start $s)
       (data (i32.const 0) "abc"))"""
)


def leb(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def section(identifier: int, body: bytes) -> bytes:
    return bytes([identifier]) + leb(len(body)) + body


def core(*sections: bytes) -> bytes:
    return b"\0asm\x01\0\0\0" + b"".join(sections)


def test_a_module_says_what_it_is() -> None:
    assert scan(SMALL) == ModuleFacts(
        kind=GuestKind.CORE,
        size_bytes=len(SMALL),
        modules=1,
        functions=2,
        largest_body_bytes=8,
        most_locals=3,
        code_bytes=12,
        data_bytes=9,
        memories=0,
        memory_min_pages=0,
        tables=1,
        table_min_elements=5,
        imports=(("a", "b"), ("a", "c")),
        exports=("run",),
        has_start=True,
    )


def test_a_component_is_read_through_to_its_modules() -> None:
    facts = scan(wasm("(component (core module (memory 3) (func) (func)) (core module (memory 4)))"))
    assert (facts.kind, facts.modules, facts.memories, facts.memory_min_pages, facts.functions) == (
        GuestKind.COMPONENT,
        2,
        2,
        7,
        2,
    )


def test_a_memory_that_a_module_imports_is_the_one_another_defines() -> None:
    facts = scan(
        wasm(
            """(component (core module $libc (memory (export "memory") 3))
            (core module $python (import "env" "memory" (memory 2)) (func))
            (core module $app (import "env" "memory" (memory 1)) (memory 5)))"""
        )
    )
    assert (facts.memories, facts.memory_min_pages) == (2, 8)


BODY = b"\x00\x0b"


@promise("guest.hostile-module")
@pytest.mark.parametrize(
    ("bomb", "words"),
    [
        pytest.param(core(section(10, leb(MAX_FUNCTIONS + 1))), "functions", id="a claim of many functions"),
        pytest.param(
            core(section(10, leb(1) + leb(6) + b"\x01" + leb(MAX_LOCALS + 1) + b"\x7f\x0b")), "locals", id="many locals"
        ),
        pytest.param(core(section(10, leb(1) + leb(2_000_000) + bytes(2_000_000))), "bytes in one", id="a huge body"),
        pytest.param(core(section(5, leb(17) + b"\x00\x01" * 17)), "memories", id="many memories"),
        pytest.param(core(section(4, leb(17) + b"\x70\x00\x01" * 17)), "tables", id="many tables"),
        pytest.param(core(section(2, leb(1001))), "imports", id="a claim of many imports"),
        pytest.param(core(section(5, leb(1) + b"\x03\x01\x01")), "shared", id="a shared memory"),
        pytest.param(core(b"\x0a\xff\xff\xff\xff\x0f"), "more bytes than it has", id="a lying section size"),
        pytest.param(core(b"\x0a\x80\x80\x80\x80\x80\x80\x00"), "too long", id="a padded number"),
        pytest.param(core(section(10, leb(1) + leb(50) + BODY)), "more bytes", id="a lying body size"),
        pytest.param(b'(module (func (export "run")))', "does not begin", id="text"),
        pytest.param(b"", "does not begin", id="nothing"),
        pytest.param(b"\0asm\x02\0\0\0", "does not begin", id="another version"),
    ],
)
def test_bombs_and_lies_are_refused(bomb: bytes, words: str) -> None:
    with pytest.raises(Rejected) as refused:
        scan(bomb)
    assert refused.value.reason is Reason.BAD_ARGUMENTS
    assert words in refused.value.detail


@promise("guest.hostile-module")
def test_components_cannot_nest_for_ever() -> None:
    inner = b"\0asm\x0d\0\x01\0"
    for _ in range(20):
        inner = b"\0asm\x0d\0\x01\0" + section(4, inner)
    with pytest.raises(Rejected, match="deeply"):
        scan(inner)


@promise("guest.hostile-module")
@given(st.binary(max_size=200))
def test_whatever_follows_the_magic_is_read_or_refused(rest: bytes) -> None:
    for head in (b"\0asm\x01\0\0\0", b"\0asm\x0d\0\x01\0"):
        facts = read(head + rest)
        assert facts is None or facts.size_bytes == len(rest) + 8


@promise("guest.hostile-module")
@given(st.integers(0, len(SMALL) - 1), st.integers(0, 255))
def test_a_flipped_byte_is_read_or_refused(at: int, value: int) -> None:
    read(SMALL[:at] + bytes([value]) + SMALL[at + 1 :])


def read(data: bytes) -> ModuleFacts | None:
    """None where it is refused; nothing else may be raised."""
    with suppress(Rejected):
        return scan(data)
    return None
