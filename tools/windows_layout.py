"""The structures and numbers of the Windows backend, compared with what the Windows headers of mingw-w64 say.

    python tools/windows_layout.py --check    # headers, the recorded numbers and our ctypes agree; exit 1 where not
    python tools/windows_layout.py --write    # record the headers' numbers again

The headers are asked through the compiler: a file of constants is compiled to assembler and read back, so nothing has
to run. As root on Debian and its kin the compiler is installed where it is missing. The recorded numbers are what the
unit tests compare with, on machines without that compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from palyra.launch._os import _jobobject as layout
from palyra.sandbox import jobobject

COMPILER = "x86_64-w64-mingw32-gcc"
PACKAGE = "gcc-mingw-w64-x86-64"
RECORD = Path(__file__).parents[1] / "tests" / "vectors" / "windows_layout.json"
LIMITS = {
    "JOB_OBJECT_LIMIT_PROCESS_TIME": jobobject.PROCESS_TIME,
    "JOB_OBJECT_LIMIT_ACTIVE_PROCESS": jobobject.ACTIVE_PROCESS,
    "JOB_OBJECT_LIMIT_PROCESS_MEMORY": jobobject.PROCESS_MEMORY,
    "JOB_OBJECT_LIMIT_JOB_MEMORY": jobobject.JOB_MEMORY,
    "JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION": jobobject.DIE_ON_UNHANDLED_EXCEPTION,
    "JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE": jobobject.KILL_ON_JOB_CLOSE,
    "JOB_OBJECT_UILIMIT_ALL": jobobject.UI_ALL,
    "WAIT_TIMEOUT": 0x102,
}


def ours() -> dict[str, int]:
    """What ctypes makes of our declarations on this machine."""
    facts = {**layout.CONSTANTS, **LIMITS}
    for name, kind in layout.STRUCTURES.items():
        facts[f"sizeof({name})"] = ctypes.sizeof(kind)
        for field in kind._fields_:
            place = getattr(kind, field[0])
            facts[f"offsetof({name}, {field[0]})"] = place.offset
            facts[f"sizeof((({name} *)0)->{field[0]})"] = place.size
    return facts


def of_headers() -> dict[str, int]:
    expressions = list(ours())
    lines = ["#define _WIN32_WINNT 0x0A00", "#include <stddef.h>", "#include <windows.h>"]
    # One more than each, because compilers write a zero in another way.
    lines += [f"const unsigned long long fact_{at} = ({text}) + 1;" for at, text in enumerate(expressions)]
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "facts.c", Path(folder) / "facts.s"
        source.write_text("\n".join(lines) + "\n")
        subprocess.run([COMPILER, "-S", "-O0", "-o", made, source], check=True)
        found = re.findall(r"fact_(\d+):\s*\.quad\s+(\d+)", made.read_text())
    return {expressions[int(at)]: int(value) - 1 for at, value in found}


def ensure_compiler() -> None:
    if shutil.which(COMPILER):
        return
    if os.getuid() != 0 or not shutil.which("apt-get"):
        sys.exit(f"palyra: install {PACKAGE} first")
    print(f"palyra: installing {PACKAGE} …", file=sys.stderr)
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", PACKAGE]
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    if subprocess.run(install, env=env, capture_output=True).returncode:
        subprocess.run(["apt-get", "update", "-qq"], env=env, check=True)
        subprocess.run(install, env=env, check=True, stdout=subprocess.DEVNULL)


def differences(one: dict[str, int], other: dict[str, int]) -> list[str]:
    return [
        f"{name}: {one.get(name)} and {other.get(name)}" for name in one | other if one.get(name) != other.get(name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--check", action="store_true")
    what.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    ensure_compiler()
    headers = of_headers()
    if arguments.write:
        RECORD.write_text(json.dumps(headers, indent=1, sort_keys=True) + "\n")
    recorded = json.loads(RECORD.read_text())
    wrong = [f"headers and ours: {d}" for d in differences(headers, ours())]
    wrong += [f"headers and the record: {d}" for d in differences(headers, recorded)]
    for line in wrong:
        print(f"  ✗ {line}")
    print(f"palyra: {len(headers)} facts of the Windows headers compared, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
