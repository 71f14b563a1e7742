"""Guests as WebAssembly text, and a gate that keeps what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from wasmtime import wat2wasm

from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import Bounds, EndKind, Grants, GuestCall, Refused


def wasm(text: str) -> bytes:
    return bytes(wat2wasm(text))


def module(*functions: str, body: str, memory: str = '(memory (export "memory") 1)') -> bytes:
    """A guest that imports the named host functions as $name and whose run is `body`."""
    imports = "".join(
        f'(import "{abi.HOST}" "{name}" (func ${name} {"(param" + " i32" * abi.FUNCTIONS[name] + ")"} (result i32)))'
        for name in functions
    )
    return wasm(f'(module {imports} {memory} (func (export "run") (result i32) {body}))')


ECHO = module(
    "input-len",
    "input-read",
    "output",
    body="""(drop (call $input-read (i32.const 0) (call $input-len)))
            (call $output (i32.const 0) (call $input-len))""",
)
LOOP = module(body="(loop $again (br $again)) (i32.const 0)")

TOO_FAR = [
    pytest.param(LOOP, EndKind.OUT_OF_FUEL, "fuel of 10000000", id="infinite loop"),
    pytest.param(
        wasm('(module (func $s (loop $again (br $again))) (start $s) (func (export "run") (result i32) i32.const 0))'),
        EndKind.OUT_OF_FUEL,
        "fuel",
        id="infinite loop in the start function",
    ),
    pytest.param(
        wasm('(module (func $f (call $f)) (func (export "run") (result i32) (call $f) (i32.const 0)))'),
        EndKind.TRAPPED,
        "stack overflow",
        id="recursion",
    ),
    pytest.param(
        module(body="(loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)"),
        EndKind.MEMORY,
        "1048576 bytes of memory",
        id="memory growth",
    ),
    pytest.param(
        module(body="(i32.const 0)", memory='(memory (export "memory") 17)'),
        EndKind.MEMORY,
        "memory minimum size of 17 pages exceeds memory limits",
        id="memory declared beyond the limit",
    ),
    pytest.param(
        wasm('(module (table 2000 funcref) (func (export "run") (result i32) (i32.const 0)))'),
        EndKind.MEMORY,
        "table minimum size of 2000 elements exceeds table limits",
        id="huge table",
    ),
    pytest.param(module(body="(unreachable)"), EndKind.TRAPPED, "unreachable", id="trap"),
    pytest.param(
        module("http-count", body="(loop $again (drop (call $http-count)) (br $again)) (i32.const 0)"),
        EndKind.QUOTA,
        "10000 host calls",
        id="host-call storm",
    ),
    pytest.param(
        module(
            "log",
            body="(loop $again (drop (call $log (i32.const 0) (i32.const 0) (i32.const 9))) (br $again)) (i32.const 0)",
        ),
        EndKind.QUOTA,
        "100 log lines",
        id="log flood",
    ),
    pytest.param(
        module("output", body="(call $output (i32.const 0) (i32.const 5000))"),
        EndKind.QUOTA,
        "output is larger than 4096 bytes",
        id="output beyond the bound",
    ),
]
"""Each way too far, how it ends and what is said; within `bounds()`."""


@dataclass
class Asked:
    """Answers from a table; what is not in it is refused as absent."""

    answers: dict[tuple[str, str], bytes] = field(default_factory=dict)
    asked: list[tuple[str, str, bytes]] = field(default_factory=list)

    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        self.asked.append((operation, name, payload))
        if (operation, name) not in self.answers:
            raise Refused(abi.ABSENT)
        return self.answers[operation, name]


def bounds(
    *,
    fuel: int = 10_000_000,
    memory_bytes: int = 1 << 20,
    wall_ms: int = 5_000,
    host_calls: int = 10_000,
    host_bytes: int = 1 << 20,
    log_lines: int = 100,
    output_bytes: int = 4096,
) -> Bounds:
    return Bounds(
        fuel=fuel,
        memory_bytes=memory_bytes,
        table_elements=1000,
        wall_ms=wall_ms,
        host_calls=host_calls,
        host_bytes=host_bytes,
        log_lines=log_lines,
        output_bytes=output_bytes,
    )


def call(
    given: bytes = b"{}", *, within: Bounds | None = None, grants: Grants | None = None, gate: Asked | None = None
) -> GuestCall:
    return GuestCall(input=given, bounds=within or bounds(), grants=grants or Grants(), gate=gate or Asked())
