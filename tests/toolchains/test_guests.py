"""Guests in other languages, built here and run by the jailed worker: `make test-toolchains`.

What builds them is installed on first use below .make, from requirements/toolchains.txt and by npm. Guests in text form
need none of it and run in every `make test`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from palyra.canon import sha256_hex
from palyra.config.tool_call import WasmRuntimeConfig
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.outcome import Execution, Status
from palyra.model.wasm import GuestKind, HostAnswer, WasmLimits, WasmPlan
from palyra.sandbox.wasm_scan import scan
from palyra.wiring.guests import GuestHouse
from tests.conformance.arena import host, require

pytestmark = pytest.mark.skipif(not os.environ.get("PALYRA_TOOLCHAINS"), reason="make test-toolchains")

PROJECT = Path(__file__).parents[2]
SDK = PROJECT / "src" / "palyra" / "sdk"
GUESTS = Path(__file__).parent / "guests"
PYTHONS, NODES = PROJECT / ".make" / "toolchains", PROJECT / ".make" / "toolchains-npm"
PACKAGES = ("assemblyscript@0.28.20", "componentize-qjs@0.4.5")


def run_tool(*argv: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run([str(word) for word in argv], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]


def python_tools() -> Path:
    """The folder of programs."""
    if not (PYTHONS / ".ready").exists():
        run_tool(sys.executable, "-m", "venv", "--clear", PYTHONS)
        lock = PROJECT / "requirements" / "toolchains.txt"
        run_tool(PYTHONS / "bin" / "pip", "install", "--quiet", "--require-hashes", "--requirement", lock)
        (PYTHONS / ".ready").touch()
    return PYTHONS / "bin"


def node_tool(name: str) -> list[str | Path]:
    node = shutil.which("node")
    if node is None or shutil.which("npm") is None:
        pytest.skip("there is no node here")
    program = NODES / "node_modules" / ".bin" / name
    if not program.exists():
        NODES.mkdir(parents=True, exist_ok=True)
        run_tool("npm", "install", "--prefix", NODES, "--ignore-scripts", "--no-audit", "--no-fund", *PACKAGES)
    return [node, program]


def build_c(target: Path) -> None:
    zig = [python_tools() / "python", "-m", "ziglang", "cc", "--target=wasm32-freestanding"]
    run_tool(*zig, "-O2", "-nostdlib", "-Wl,--no-entry", f"-I{SDK}", GUESTS / "echo.c", "-o", target)


def build_assemblyscript(target: Path) -> None:
    options = ("-O", "--runtime", "stub", "--use", "abort=")
    run_tool(*node_tool("asc"), "echo.ts", *options, "-o", target, cwd=GUESTS)


def build_python(target: Path) -> None:
    tool = python_tools() / "componentize-py"
    source = target.parent / "source"
    source.mkdir()
    shutil.copy(GUESTS / "echo.py", source / "app.py")
    options = ("--stub-wasi", "-p", source, "-o", target)
    run_tool(tool, "-d", SDK / "palyra.wit", "-w", "skill", "componentize", "app", *options)


def build_javascript(target: Path) -> None:
    options = ("--sync", "--stub-wasi", "-n", "skill", "-o", target)
    run_tool(*node_tool("componentize-qjs"), "--wit", SDK / "palyra.wit", "--js", GUESTS / "echo.js", *options)


COMPONENT = WasmLimits(fuel=1_000_000_000)
LANGUAGES = [build_c, build_assemblyscript, build_python, build_javascript]


@pytest.mark.parametrize("build", LANGUAGES, ids=lambda build: build.__name__.removeprefix("build_"))
def test_an_echo_is_built_scanned_compiled_and_answers(build: Callable[[Path], None], tmp_path: Path) -> None:
    require(Tier.C)
    target = tmp_path / "guest.wasm"
    build(target)
    guest = target.read_bytes()
    facts = scan(guest)

    async def answer(operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        return HostAnswer()

    async def work() -> tuple[Execution, bytes | None]:
        executor = ProcessExecutor(host())
        house = GuestHouse(executor, host(), WasmRuntimeConfig(), tmp_path / "compiled", spare=0)
        plan = WasmPlan(
            module_sha256=sha256_hex(guest),
            guest=facts.kind,
            memories=max(1, facts.memories),
            skill_id="acme.echo",
            tool_id="acme.echo.run",
            input=b'{"n":[1,2.5,null,"x"]}',
            wasm=COMPONENT if facts.kind is GuestKind.COMPONENT else WasmLimits(),
        )
        try:
            return await house.run(plan, guest, answer)
        finally:
            await house.close()
            await executor.close()

    execution, output = asyncio.run(work())
    assert (execution.status, execution.message, execution.exit_code) == (Status.COMPLETED, None, 0)
    assert (output or b"").replace(b" ", b"") == b'{"n":[1,2.5,null,"x"]}'
