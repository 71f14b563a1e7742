"""What a short command imports, counted: most of its life is spent on that, and it grows one line at a time.

A ceiling that is too low is raised knowingly, or the new import moves to where it is needed (into a function, or to
`engine/roads`). What libraries bring along depends on their versions, so they have some room; those that these commands
never need are named, because one of them can undo all the rest.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command_line import Cli
from tests.serving import Served

TELL = """
import sys
before = set(sys.modules)
import atexit
told = sys.argv.pop(1)
atexit.register(lambda: open(told, "w").write(" ".join(sorted(set(sys.modules) - before))))
from palyra.cli.entry import main
main()
"""
HEAVY = frozenset(
    "_ssl ast decimal difflib dis email http httpx importlib.metadata importlib.resources jinja2 jsonschema_rs mcp "
    "multiprocessing pkgutil pydantic rich shutil starlette tempfile tokenize tomllib._parser urllib.request wasmtime "
    "xml".split()
)
"""Of those that something stands in for (`cli/light`), what the real ones bring along."""


@pytest.mark.parametrize(
    ("words", "ours", "others"),
    [
        (("--version",), 13, 80),
        (("--help",), 13, 95),
        (("run", "--help"), 16, 95),
        (("run", "--", "true"), 301, 190),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else None,
)
def test_a_short_command_imports_no_more_than_it_needs(cli: Cli, tmp_path: Path, words, ours, others):
    cli("run", "--", "true")  # makes the home and probes the machine
    told = tmp_path / "told"
    command = [sys.executable, "-P", "-c", TELL, str(told), "--home", str(cli.home), *words]
    done = subprocess.run(command, cwd=cli.workspace, env=cli.environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    imported = told.read_text().split()
    palyra = [name for name in imported if name.startswith("palyra")]
    libraries = [name for name in imported if not name.startswith("palyra")]
    measured = {"ast", "dis", "shutil", "tokenize"} if "--help" in words else set()  # click sets text, asks how wide
    assert HEAVY.intersection(imported) - measured == set()
    assert len(palyra) <= ours, palyra
    assert len(libraries) <= others, libraries


@pytest.mark.parametrize("path", ["/healthz", "/mcp"])
def test_a_daemon_brings_mcp_in_when_somebody_asks_for_it(cli: Cli, tmp_path: Path, path: str) -> None:
    """It is as large as the rest of the daemon, and many never speak it."""
    told = tmp_path / "told"
    command = [sys.executable, "-P", "-c", TELL, str(told), "--home", str(cli.home), "--json", "serve", "--port", "0"]
    with subprocess.Popen(command, cwd=cli.workspace, env=cli.environ, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            served = Served(process, json.loads(process.stdout.readline())["listening"])
            assert served.ask("GET", path)[0] == (200 if path == "/healthz" else 401)
        finally:
            process.terminate()
    assert process.returncode == 0
    assert ("mcp" in told.read_text().split()) is (path == "/mcp")
