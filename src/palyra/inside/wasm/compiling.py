"""The compiler's child: a module on stdin, the artefact on stdout, or why not on stderr.

Started inside a tier C sandbox with limits of its own, as `python3 -I -S compiling.py FOLDER_OF_WASMTIME`: the module
is foreign data, and a compiler is a large thing to show it to. Exit 0: compiled; 3: refused, one sentence on stderr.
"""

from __future__ import annotations

import os
import sys

REFUSED = 3


def main() -> int:
    here = os.path.abspath(__file__)
    for _ in range(4):
        here = os.path.dirname(here)
    sys.path[:0] = [here, sys.argv[1]]
    from palyra.inside.wasm.component import MAGIC, ComponentRuntime
    from palyra.inside.wasm.core import CoreRuntime, InvalidModule
    from palyra.inside.wasm.engine import EpochTimer, make_engine

    wasm = sys.stdin.buffer.read()
    components = wasm.startswith(MAGIC)
    engine = make_engine(components=components)
    runtime = (ComponentRuntime if components else CoreRuntime)(engine, EpochTimer(engine))
    try:
        artefact = runtime.compile(wasm)
    except InvalidModule as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    sys.stdout.buffer.write(artefact)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # nothing of wasmtime needs taking down, and its threads need not be waited for
