"""The peers beside us, each doing the bare work: start `true`, capture both pipes, wait.

They run without policy, journal and signature, so a ratio against them is against less work. Peers from a registry
live in an environment of their own under .make/peers, made on first use from requirements/peers.txt; one that cannot
be had is reported as missing.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.harness import Contender, timed

PROJECT = Path(__file__).parents[1]
PEERS = PROJECT / ".make" / "peers"
PAGE, PAGES = 4096, 1024
SANDBOX = (
    "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
    "--ro-bind", "/usr", "/usr",
    "--ro-bind-try", "/bin", "/bin",
    "--ro-bind-try", "/lib", "/lib",
    "--ro-bind-try", "/lib64", "/lib64",
    "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
)  # fmt: skip


def find_program(name: str) -> str:
    found = shutil.which(name, path="/usr/local/bin:/usr/bin:/bin")
    if found is None:
        raise FileNotFoundError(f"{name} is not on this machine")
    return found


def run_popen(argv: list[str]) -> int:
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={}
    ) as child:
        child.communicate()
        return child.returncode


def check_exit(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"a peer's program ended with {code}")


def bare_popen() -> Contender:
    argv = [find_program("true")]
    return Contender(name="bare Popen", run=timed(lambda: run_popen(argv), check_exit))


@contextmanager
def popen_between_syncs(folder: Path) -> Iterator[Contender]:
    """The same, with a page made durable before the program runs and another after it, in a file that need not grow."""
    argv, page = [find_program("true")], os.urandom(PAGE)
    with open(folder / "between-syncs", "wb", buffering=0) as file:
        file.write(bytes(PAGE * PAGES))
        os.fsync(file)
        places = iter(range(1 << 30))

        def sync() -> None:
            os.pwrite(file.fileno(), page, next(places) % PAGES * PAGE)
            os.fsync(file)

        def run() -> int:
            sync()
            code = run_popen(argv)
            sync()
            return code

        yield Contender(name="Popen, two fsyncs", run=timed(run, check_exit))


@contextmanager
def bare_asyncio() -> Iterator[Contender]:
    """The same through asyncio's subprocess transport, on a loop that stays open between rounds."""
    argv = [find_program("true")]

    async def spawn() -> int:
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        child = await asyncio.create_subprocess_exec(*argv, stdin=null, stdout=pipe, stderr=pipe, env={})
        await child.communicate()
        return child.returncode or 0

    with asyncio.Runner() as runner:
        until_done = runner.get_loop().run_until_complete
        yield Contender(name="bare asyncio", run=timed(lambda: until_done(spawn()), check_exit))


def cold_bwrap() -> Contender:
    """The least that can be called a sandbox: new namespaces, system folders read-only, a private /tmp."""
    name = "cold bwrap true"
    try:
        argv = [find_program("bwrap"), *SANDBOX, "--", find_program("true")]
        check_exit(run_popen(argv))
    except (OSError, RuntimeError) as error:
        return Contender(name=name, run=None, why_missing=str(error))
    return Contender(name=name, run=timed(lambda: run_popen(argv), check_exit))


@contextmanager
def worker(name: str, script: str, *words: str) -> Iterator[Contender]:
    """A peer under the peers' own python: asked by a line, it does the work, times it and answers in nanoseconds."""
    try:
        argv = [install_peers(), str(PROJECT / "bench" / script), *words]
        pipe = subprocess.PIPE
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, bufsize=1)
    except (OSError, subprocess.SubprocessError) as error:
        yield Contender(name=name, run=None, why_missing=f"could not be installed ({type(error).__name__})")
        return

    with process:
        try:
            ask_worker(process)
        except (OSError, RuntimeError) as error:
            yield Contender(name=name, run=None, why_missing=f"it does not start on this machine: {error}")
        else:
            yield Contender(name=name, run=lambda: ask_worker(process))


def ask_worker(process: subprocess.Popen[str]) -> int:
    """Ask a worker for one round; return the nanoseconds it answers."""
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write("run\n")
        answer = process.stdout.readline()
    except OSError:  # the worker ended and left its reason in the pipe
        answer = process.stdout.readline()
    if not answer.strip().isdigit():
        raise RuntimeError(f"its worker answered {answer!r}")
    return int(answer)


def sandlock() -> AbstractContextManager[Contender]:
    """Landlock and seccomp by the sandlock library."""
    return worker("sandlock", "sandlock_worker.py", find_program("true"))


def install_peers() -> str:
    """The python of the peers' environment, made on first use."""
    python = PEERS / "bin" / "python"
    lock = PROJECT / "requirements" / "peers.txt"
    done = PEERS / ".ready"
    if not done.is_file() or done.read_text(encoding="utf-8") != lock.read_text(encoding="utf-8"):
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(PEERS)], **quiet)  # type: ignore[call-overload]
        install = [str(python), "-m", "pip", "install", "--require-hashes", "--requirement", str(lock)]
        subprocess.run(install, **quiet)  # type: ignore[call-overload]
        done.write_text(lock.read_text(encoding="utf-8"), encoding="utf-8")
    return str(python)
