"""Runs under the peers' own python: a line in, so many calls of an echo by extism, the nanoseconds out.

The plugin is compiled once; every call has a fresh instance, as ours has.
"""

from __future__ import annotations

import sys
import time

from extism.extism import CompiledPlugin, Plugin  # type: ignore[import-not-found]  # installed in the peers' environment alone
from wasmtime import wat2wasm

INPUT = b'{"text":"' + b"x" * 53 + b'"}'
ECHO = wat2wasm("""(module
  (import "extism:host/env" "input_length" (func $length (result i64)))
  (import "extism:host/env" "input_offset" (func $offset (result i64)))
  (import "extism:host/env" "output_set" (func $output (param i64 i64)))
  (memory (export "memory") 1)
  (func (export "run") (result i32) (call $output (call $offset) (call $length)) (i32.const 0)))""")


def main(count: int) -> None:
    compiled = CompiledPlugin({"wasm": [{"data": bytes(ECHO)}], "timeout_ms": 10_000})
    for _ in sys.stdin:
        start = time.perf_counter_ns()
        answers = [bytes(Plugin(compiled).call("run", INPUT)) for _ in range(count)]
        took = time.perf_counter_ns() - start
        print(took if answers == [INPUT] * count else "failed", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
