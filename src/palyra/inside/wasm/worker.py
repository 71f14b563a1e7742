"""The jailed worker: runs guests of one module, one call at a time, and asks the engine for everything else.

Started inside a tier C sandbox by path as `python3 -I -S worker.py FOLDER_OF_WASMTIME LAYER`: no network, no workspace,
no secrets; frames come on stdin and go to stdout. It is told a module as the engine compiled it, then calls. It ends
when stdin does. The engine trusts nothing of it: a guest that escapes wasmtime owns this process and nothing more.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    here = os.path.abspath(__file__)
    for _ in range(4):
        here = os.path.dirname(here)
    sys.path[:0] = [here, sys.argv[1]]
    from palyra.inside.wasm.serving import serve

    serve(0, 1, layer=sys.argv[2])


if __name__ == "__main__":
    main()
