"""The assembler's child: WebAssembly text on stdin, the module on stdout, or why not on stderr.

Started inside a tier C sandbox like the compiler's child, because the text of a skill may be foreign. Exit 0: done;
3: refused, with the assembler's words on stderr.
"""

from __future__ import annotations

import os
import sys

REFUSED = 3


def main() -> int:
    sys.path[:0] = [sys.argv[1]]
    from wasmtime import WasmtimeError, wat2wasm

    try:
        wasm = bytes(wat2wasm(sys.stdin.buffer.read().decode("utf-8")))
    except (UnicodeDecodeError, WasmtimeError) as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    sys.stdout.buffer.write(wasm)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing of wasmtime needs taking down
