"""Runs under the peers' own python: a line in, one sandboxed start of the program, the nanoseconds out."""

from __future__ import annotations

import sys
import time

from sandlock import Sandbox  # type: ignore[import-not-found]  # installed in the peers' environment alone

SYSTEM_FOLDERS = ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"]


def main(program: str) -> None:
    sandbox = Sandbox(fs_readable=SYSTEM_FOLDERS, fs_writable=["/tmp"], clean_env=True)
    for _ in sys.stdin:
        start = time.perf_counter_ns()
        result = sandbox.run([program])
        took = time.perf_counter_ns() - start
        print(took if result.success else "failed", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
