#!/usr/bin/env python3
"""Exports of a fresh installation, checked by other people's tools: securesystemslib, in-toto-attestation, Go's sumdb.

    standards.py CHECKER_PYTHON

CHECKER_PYTHON is an interpreter with requirements/standards.txt; `go` and Debian's golang-golang-x-mod-dev are taken
from the system (as root they are installed). What is missing is said and makes the exit code 1; nothing is skipped
silently. Every file is then changed in one place, and must not hold any more.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CHECKS = PROJECT / "tests" / "standards"
CALLS = 140
GO_PACKAGES = ("golang-go", "golang-golang-x-mod-dev")


def main(checker: str) -> int:
    with tempfile.TemporaryDirectory(prefix="palyra-standards-") as name:
        folder = Path(name)
        vkey = make_exports(folder)
        problems = [*check_bundle(checker, folder, vkey), *check_log(folder, vkey)]
    for problem in problems:
        print(f"  ✗ {problem}")
    return 1 if problems else 0


def make_exports(folder: Path) -> str:
    """280 entries, so that there is a full tile and a partial one."""
    from palyra import Palyra
    from palyra.state.db import read_home

    home = folder / "home"
    with Palyra.open(home=str(home)) as palyra:
        run = palyra.run(principal="agent:standards", workspace=".")
        calls = [run.call("palyra.echo", {"n": number}).call_id for number in range(CALLS)]
    for words in (
        ("export", "--format", "dsse", "--output", str(folder / "bundle.jsonl")),
        ("export", "--format", "tiles", "--output", str(folder / "log")),
        ("prove", calls[3], "--output", str(folder / "proof.json")),
    ):
        argv = [sys.executable, "-m", "palyra", "--home", str(home), "journal", *words, "--quiet"]
        subprocess.run(argv, check=True)
    return read_home(home).verifier.vkey


def check_bundle(checker: str, folder: Path, vkey: str) -> list[str]:
    bundle = folder / "bundle.jsonl"
    argv = [checker, str(CHECKS / "check_bundle.py"), str(bundle), vkey]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        return [f"securesystemslib, in-toto-attestation: {done.stderr.strip().splitlines()[-1]}"]
    print(f"  securesystemslib and in-toto-attestation accept {done.stdout.strip()}")
    lines = bundle.read_text().splitlines()
    value = json.loads(lines[7])
    value["payload"] = json.loads(lines[8])["payload"]
    bundle.write_text("\n".join([*lines[:7], json.dumps(value), *lines[8:]]))
    if subprocess.run(argv, capture_output=True).returncode == 0:
        return ["securesystemslib accepts a payload under another's signature"]
    return []


def check_log(folder: Path, vkey: str) -> list[str]:
    if shutil.which("go") is None or not Path("/usr/share/gocode/src/golang.org/x/mod/sumdb").is_dir():
        if os.geteuid() == 0 and shutil.which("apt-get"):
            argv = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *GO_PACKAGES]
            subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if shutil.which("go") is None:
            return [f"Go's sumdb: not installed, so not checked; install {' and '.join(GO_PACKAGES)}"]
    program = folder / "check_log"
    env = os.environ | {"GO111MODULE": "off", "GOPATH": "/usr/share/gocode", "GOCACHE": str(folder / "go")}
    built = subprocess.run(
        ["go", "build", "-o", str(program), str(CHECKS / "check_log.go")], env=env, capture_output=True, text=True
    )
    if built.returncode:
        return [f"Go's sumdb: {built.stderr.strip()}"]
    argv = [str(program), str(folder / "log"), str(folder / "proof.json"), vkey]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        return [f"Go's sumdb: {done.stdout.strip()}"]
    print(f"  Go's sumdb note and tlog accept {done.stdout.strip()}, their tiles and a proof")
    return [f"Go's sumdb accepts {name} after an edit" for name in edited(argv, folder)]


def edited(argv: list[str], folder: Path) -> list[str]:
    """The files whose change goes unnoticed."""
    unnoticed = []
    for name in ("log/checkpoint", "log/tile/0/000", "log/tile/entries/001.p/24", "proof.json"):
        path = folder / name
        data = path.read_bytes()
        at = len(data) // 2
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        if subprocess.run(argv, capture_output=True).returncode == 0:
            unnoticed.append(name)
        path.write_bytes(data)
    return unnoticed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
