"""The peer srt (npm @anthropic-ai/sandbox-runtime): a node process that sets up bubblewrap and proxies for one command.

Installed by npm below .make/peers-npm on first use. It asks for ripgrep and socat of the system: as root on Debian and
its kin what is missing is installed; for anyone else srt is reported as missing, with what it says itself.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence

from bench.harness import Contender, timed
from bench.peers import PROJECT, check_exit, find_program

PACKAGE = "@anthropic-ai/sandbox-runtime@0.0.78"
SYSTEM = {"rg": "ripgrep", "socat": "socat"}
FOLDER = PROJECT / ".make" / "peers-npm"


def start_true() -> Contender:
    """`true` without network, as the other peers start it."""
    name = "srt"
    try:
        argv = [*install([]), "-c", find_program("true")]
        tried = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError) as error:
        return Contender(name=name, run=None, why_missing=f"could not be installed ({type(error).__name__})")
    if tried.returncode != 0:
        return Contender(name=name, run=None, why_missing=what_it_says(tried.stderr))
    return Contender(name=name, run=timed(lambda: subprocess.run(argv, capture_output=True).returncode, check_exit))


def run_with_host(words: Sequence[str], host: str) -> str:
    """What a program prints that may reach one host through srt's proxies; RuntimeError when it cannot."""
    argv = [*install([host]), "-c", shlex.join(words)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(what_it_says(done.stderr))
    return done.stdout


def what_it_says(stderr: str) -> str:
    return f"it says: {(stderr.strip().splitlines() or ['nothing, and does not start'])[0]}"


def install(hosts: Sequence[str]) -> list[str]:
    """The words before a command: it reaches `hosts` and writes below /tmp alone."""
    program, settings = FOLDER / "node_modules" / ".bin" / "srt", FOLDER / f"settings-{len(hosts)}.json"
    _install_system()
    if not program.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        npm = ["npm", "install", "--prefix", str(FOLDER), "--ignore-scripts", "--no-audit", "--no-fund", PACKAGE]
        subprocess.run(npm, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300)
    files = {"denyRead": [], "allowWrite": ["/tmp"], "denyWrite": []}
    network = {"allowedDomains": list(hosts), "deniedDomains": []}
    settings.write_text(json.dumps({"network": network, "filesystem": files}), encoding="utf-8")
    return [str(program), "--settings", str(settings)]


def _install_system() -> None:
    missing = [package for program, package in SYSTEM.items() if shutil.which(program) is None]
    if not missing or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing]
    for words in (install, ["apt-get", "update", "-qq"], install):  # a fresh machine's package lists may be old
        done = subprocess.run(words, env=environ, capture_output=True, timeout=300)
        if words is install and done.returncode == 0:
            return
