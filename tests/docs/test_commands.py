"""The commands in the documentation are run, page by page, in a home and a folder of their own.

A line of an `sh` or `console` fence is a command. It must end as the page says (`# exit 126`), else with 0; what may
end otherwise is in `ENDS`, what is not run here is in `NOT_RUN`, each with its reason.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXIT = re.compile(r"#.*\bexit (\d+)\b(?! where)")
PROMPT = "$ "
SHARE = 0.6
"""At least so much of them is run."""

NOT_RUN = {
    r"^make ": "make itself runs these tests",
    r"--allow-host example.org .*curl": "goes to the network",
    r"^curl --unix-socket": "needs a daemon: tests/e2e",
    r"^(palyra serve|palyra console)": "needs a daemon: tests/e2e",
    r"^(npm|pip|claude|echo) ": "another program's command",
    r"^palyra (run|call) .*\bnpm install": "goes to the network, with a package manager",
    r"^palyra run .*\bpip3 install": "goes to the network, with a package manager",
    r"^jq ": "the end of a pipe",
    r"^palyra hook ": "writes an agent's settings: tests/e2e",
    r"acme\.greet": "needs a compiler: make test-toolchains",
    r"01J…": "needs an id of a call that waits: tests/e2e/test_approvals.py",
    r"^palyra call palyra.process.run .*git.*fetch": "waits for a person: tests/e2e/test_approvals.py",
}
ENDS = {
    "palyra policy diff ./policies": {0, 1},
    "palyra policy replay ./policies --since 7d": {0, 1},
    "palyra run --as agent:demo -- rm x": {0, 126},
    "palyra run --learn --allow make -- make test": {2, 126, 127},
    "palyra run --learn --allow-interpreters -- bash -c 'cat /etc/hostname'": {0, 1},
}


def commands_of(page: Path) -> list[str]:
    lines = []
    for fence in FENCE.findall(page.read_text(encoding="utf-8")):
        shown = [line for line in fence.replace("\\\n", " ").splitlines() if line.strip()]
        prompted = [line for line in shown if line.startswith(PROMPT)]  # then the rest is what it says
        lines += [line.removeprefix(PROMPT).strip() for line in prompted or shown]
    return [line.replace(".venv/bin/palyra", "palyra") for line in lines if not line.startswith("#")]


def why_not(command: str) -> str | None:
    return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, command)), None)


def expected(command: str) -> set[int]:
    said = EXIT.search(command)
    bare = re.sub(r"\s+#.*", "", command).strip()
    return ENDS.get(bare) or ({int(said[1])} if said else {0})


@pytest.fixture
def place(workspace: Path, home: Path, tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A small project, and `palyra` on the path with a home of this page's."""
    (workspace / "token.txt").write_text("a-token-that-is-long-enough")
    (workspace / "x").touch()
    (workspace / "policies").mkdir()
    (workspace / "policies" / "local.cedar").write_text(
        '@id("local.no-shred")\nforbid (principal, action == Action::"tool::execute", resource)\n'
        'when { context has effective_program && context.effective_program == "shred" };\n'
    )
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    for path in (workspace, workspace / "x"):  # a root engine runs programs as somebody else
        path.chmod(0o1777 if path.is_dir() else 0o666)
    programs = tmp_path / "bin"
    programs.mkdir()
    shim = programs / "palyra"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m palyra "$@"\n')
    shim.chmod(0o755)
    search = f"{programs}:{os.environ['PATH']}"
    variables = {"PALYRA_HOME": str(home), "PYTHONPATH": str(PROJECT / "src"), "PATH": search, "NO_COLOR": "1"}
    return workspace, os.environ | variables


def last_call(workspace: Path, environ: dict[str, str]) -> str:
    argv = [sys.executable, "-m", "palyra", "journal", "tail", "--json"]
    done = subprocess.run(argv, cwd=workspace, env=environ, capture_output=True, check=True)
    predicates = [item["entry"]["predicate"] for item in json.loads(done.stdout)["items"]]
    return str(next(one["call_id"] for one in reversed(predicates) if "call_id" in one))


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(why_not(command) is None for command in commands_of(page))],
    ids=lambda page: str(page.relative_to(PROJECT)),
)
def test_every_command_on_a_page_does_what_the_page_says(page: Path, place: tuple[Path, dict[str, str]]) -> None:
    workspace, environ = place
    for shown in commands_of(page):
        if why_not(shown) is not None:
            continue
        command = shown
        if "CALL_ID" in shown:
            first = subprocess.run(["palyra", "run", "--", "true"], cwd=workspace, env=environ, capture_output=True)
            assert first.returncode == 0
            command = shown.replace("CALL_ID", last_call(workspace, environ))
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=workspace,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
        )
        said = (done.stdout + done.stderr).decode(errors="replace")
        assert done.returncode in expected(command), (command, done.returncode, said[-1500:])
        assert "Traceback" not in said, (command, said[-1500:])


def test_most_commands_are_run() -> None:
    every = [command for page in PAGES for command in commands_of(page)]
    run = [command for command in every if why_not(command) is None]
    assert len(run) / len(every) >= SHARE


def test_every_reason_for_not_running_is_needed() -> None:
    every = [command for page in PAGES for command in commands_of(page)]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, command) for command in every)] == []
