"""Guests as WebAssembly text, and a gate that keeps what it was asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from wasmtime import wat2wasm

from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import Bounds, Grants, GuestCall, Refused


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
