"""The commands in the documentation are run, page by page, in a home and a folder of their own.

A line of an `sh` or `console` fence is a command. It must end as the page says (`# exit 126`), else with 0; what may
end otherwise is in `ENDS`. Lines below a `$` command are its output: each must be printed, in that order, where `…` is
any text and `01J…` an id. A daemon that a page starts serves the rest of that page. What another test types from the
same page is in `ELSEWHERE`, what nobody runs is in `NOT_RUN`, each with its reason; docs/testing.md states the share.
Python of the README is run as well.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
README = PROJECT / "README.md"
PAGES = [README, *sorted((PROJECT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CEDAR = re.compile(r"^```cedar\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXIT = re.compile(r"#.*\bexit (\d+)\b(?! where)")
EXTRA = re.compile(r"(?:palyra|'\.)\[([a-z,-]+)\]")
PROMPT = "$ "
FOLLOWS = "/console/v1/events"
"""Goes on until it is ended."""

ELSEWHERE = {
    r"\bacme\.greet\b(?!.*\bnpm )": "tests/e2e/test_write_a_skill.py",  # from the page itself, in a project it edits
}
NOT_RUN = {
    r"--allow-host example\.org .*curl": "goes to the network; with a host on loopback: tests/e2e/test_egress.py",
    r"\bnpm install left-pad": "goes to a registry; with one on loopback: tests/e2e/test_egress.py",
    r"\bpip3 install": "goes to a registry; with one on loopback: tests/e2e/test_egress.py",
    r"^npm install": "goes to a registry; what it brings is there from the lock: tests/e2e/test_write_a_skill.py",
    r"^pip install": "goes to a registry; that the extra exists is tested here, that it installs by make test-package",
    r"^(claude|codex) ": "another product's command; what it would start: tests/e2e/test_mcp.py",
}
IN_FORCE = {"docs/guide/approvals.md"}
"""Pages whose first policy is in force while their commands run."""
ENDS = {
    "palyra policy diff ./policies": {0, 1},
    "palyra policy replay ./policies --since 7d": {0, 1},
    "palyra run --as agent:demo -- rm x": {0, 126},
    "palyra run --learn --allow-interpreters -- bash -c 'cat /etc/hostname'": {0, 1},
    """palyra call palyra.process.run '{"command": "rm", "args": ["notes.txt"]}' --as agent:demo""": {75},
}


def steps_of(page: Path) -> list[tuple[str, list[str]]]:
    """Each command of a page with the lines of output that the page shows below it."""
    steps: list[tuple[str, list[str]]] = []
    for fence in FENCE.findall(page.read_text(encoding="utf-8")):
        lines = [line for line in fence.replace("\\\n", " ").replace("|\n", "| ").splitlines() if line.strip()]
        has_prompts = any(line.startswith(PROMPT) for line in lines)
        for line in lines:
            if not has_prompts or line.startswith(PROMPT):
                steps.append((line.removeprefix(PROMPT).strip().replace(".venv/bin/palyra", "palyra"), []))
            else:
                steps[-1][1].append(line)
    return [(command, shown) for command, shown in steps if not command.startswith("#")]


def commands_of(page: Path) -> list[str]:
    return [command for command, _ in steps_of(page)]


def missing_lines(shown: list[str], printed: str) -> list[str]:
    """The lines a page shows that the command does not print, or prints in another order."""
    rest = iter(printed.splitlines())
    patterns = [re.escape(line).replace("01J…", "[0-9A-Z]{26}").replace("…", ".*") for line in shown]
    return [
        line for line, pattern in zip(shown, patterns, strict=True) if not any(map(re.compile(pattern).fullmatch, rest))
    ]


def why_not(command: str) -> str | None:
    every = (ELSEWHERE | NOT_RUN).items()
    return next((reason for pattern, reason in every if re.search(pattern, command)), None)


def expected(command: str) -> set[int]:
    said = EXIT.search(command)
    bare = re.sub(r"\s+#.*", "", command).strip()
    return ENDS.get(bare) or ({int(said[1])} if said else {0})


@dataclass
class Reader:
    """Who types a page's commands: a folder, a home, and what was started on the way."""

    workspace: Path
    environ: dict[str, str]
    last: int = 0
    asked: int = 0
    refused: str = ""
    """The call that the last refusal offered to allow."""
    daemons: list[subprocess.Popen[str]] = field(default_factory=list)

    def type(self, command: str) -> tuple[int, str]:
        if command.startswith("palyra serve"):
            return self.serve(), ""
        place = PROJECT if command.startswith("make ") else self.workspace
        words = ["timeout", "2"] * (FOLLOWS in command) + ["bash", "-c", f"(exit {self.last}); {self.fill(command)}"]
        environ = {key: value for key, value in self.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
        piped = subprocess.run(
            words, cwd=place, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
        )
        self.last = piped.returncode
        said = (piped.stdout + piped.stderr).decode(errors="replace")
        offered = re.search(r"^allow: palyra policy allow (\w+)$", said, re.MULTILINE)
        self.refused = offered[1] if offered else self.refused
        return self.last, said

    def serve(self) -> int:
        """As it stands but for its port, which may be in use here."""
        argv = ["palyra", "--json", "serve", "--port", "0"]
        daemon = subprocess.Popen(
            argv, cwd=self.workspace, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.daemons.append(daemon)
        assert daemon.stdout is not None
        return 0 if daemon.stdout.readline() else 1

    def fill(self, command: str) -> str:
        """The ids a reader would have by now: of a call, of a request that waits, of a grant."""
        if "policy allow CALL_ID" in command and self.refused:
            command, self.refused = command.replace("CALL_ID", self.refused), ""
        if "policy allow CALL_ID" in command:
            self.asked += 1  # each time another input, which no exception covers yet
            _, said = self.type(f"palyra run --json -- bash -c 'echo {self.asked}'")
            command = command.replace("CALL_ID", json.loads(said.splitlines()[0])["call_id"])
        if "allow.ID" in command:
            shown = [item["id"] for item in self.items("policy show")]
            command = command.replace("allow.ID", next(name for name in shown if name.startswith("allow.")))
        if "CALL_ID" in command:
            if not self.calls():
                assert self.type("palyra run -- true")[0] == 0
            command = command.replace("CALL_ID", self.calls()[-1])
        if "revoke 01J…" in command:
            return command.replace("01J…", self.items("approvals grants")[0]["approval_id"])
        if "01J…" in command:
            self.asked += 1  # another call each time: a yes or a no is for one
            place = "build/" if "--pattern" in command else ""
            asked = json.dumps({"command": "rm", "args": [f"{place}{self.asked}"]})
            _, said = self.type(f"palyra call palyra.process.run '{asked}' --as agent:demo --json")
            return command.replace("01J…", json.loads(said.splitlines()[0])["approval"]["approval_id"])
        return command

    def calls(self) -> list[str]:
        entries = [item["entry"]["predicate"] for item in self.items("journal tail")]
        return [entry["call_id"] for entry in entries if "call_id" in entry]

    def items(self, words: str) -> list[dict[str, Any]]:
        argv = ["palyra", *words.split(), "--json"]
        done = subprocess.run(argv, cwd=self.workspace, env=self.environ, capture_output=True, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found


@pytest.fixture
def person() -> Iterator[Path]:
    """Whose home folder it is: `palyra hook` writes into the settings of a person's agent. Of a usual length."""
    with tempfile.TemporaryDirectory(prefix="palyra-person-") as folder:
        yield Path(folder)


@pytest.fixture
def reader(workspace: Path, person: Path, tmp_path: Path) -> Iterator[Reader]:
    """A small project, and `palyra` on the path. Nothing is set but what every shell has: the home is the default."""
    (workspace / "token.txt").write_text("a-token-that-is-long-enough")
    (workspace / "x").touch()
    (workspace / "policies").mkdir()
    (workspace / "policies" / "local.cedar").write_text(
        '@id("local.no-shred")\nforbid (principal, action == Action::"tool::execute", resource)\n'
        'when { context has effective_program && context.effective_program == "shred" };\n'
    )
    (workspace / "Makefile").write_text("test:\n\t@test -e x\n")
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    for path in (workspace, workspace / "x"):  # a root engine runs programs as somebody else
        path.chmod(0o1777 if path.is_dir() else 0o666)
    programs = tmp_path / "bin"
    programs.mkdir()
    shim = programs / "palyra"
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m palyra "$@"\n')
    shim.chmod(0o755)
    search = f"{programs}:{os.environ['PATH']}"
    variables = {"HOME": str(person), "PYTHONPATH": str(PROJECT / "src"), "PATH": search, "NO_COLOR": "1"}
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("PALYRA_", "XDG_"))}
    one = Reader(workspace, bare | variables)
    yield one
    for daemon in one.daemons:
        daemon.terminate()
        daemon.communicate(timeout=30)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(why_not(command) is None for command in commands_of(page))],
    ids=lambda page: str(page.relative_to(PROJECT)),
)
def test_every_command_on_a_page_does_what_the_page_says(page: Path, reader: Reader, person: Path) -> None:
    if str(page.relative_to(PROJECT)) in IN_FORCE:
        policies = person / ".local" / "share" / "palyra" / "policies"
        policies.mkdir(mode=0o700, parents=True)
        (policies / "local.cedar").write_text(CEDAR.findall(page.read_text(encoding="utf-8"))[0])
    for command, shown in steps_of(page):
        if why_not(command) is None:
            code, said = reader.type(command)
            assert code in ({124} if FOLLOWS in command else expected(command)), (command, code, said[-1500:])
            assert "Traceback" not in said, (command, said[-1500:])
            assert missing_lines(shown, said) == [], (command, said[-1500:])


@pytest.mark.slow
@pytest.mark.parametrize("script", PYTHON.findall(README.read_text(encoding="utf-8")))
def test_the_python_in_the_readme_prints_the_output_of_the_program(script: str, reader: Reader) -> None:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=reader.workspace, env=reader.environ, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "token.txt" in done.stdout


def test_output_that_a_page_shows_must_be_printed_in_its_order() -> None:
    printed = "one\nid 01M7V1Z0CX8MFJFGSMKRSFWMKF is 7\nlast\n"
    assert missing_lines(["one", "id 01J… is …", "last"], printed) == []
    assert missing_lines(["last", "one"], printed) == ["one"]
    assert missing_lines(["id 01J… is 8"], printed) == ["id 01J… is 8"]


def test_the_public_workflow_runs_the_two_commands_of_the_readme() -> None:
    workflow = (PROJECT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    named = re.findall(r"\bmake [a-z]+\b", README.read_text(encoding="utf-8"))
    assert re.findall(r"^\s+- run: (make .*)$", workflow, re.MULTILINE) == named == ["make demo", "make test"]


def test_the_share_of_commands_that_are_run_is_what_the_testing_page_says() -> None:
    every = [command for page in PAGES for command in commands_of(page)]
    idle = [command for command in every if any(re.search(pattern, command) for pattern in NOT_RUN)]
    said = f"{len(every) - len(idle)} of {len(every)} commands"
    assert said in (PROJECT / "docs" / "testing.md").read_text(encoding="utf-8")


def test_every_reason_for_not_running_is_needed_and_names_what_is_there() -> None:
    every = [command for page in PAGES for command in commands_of(page)]
    patterns = (*ELSEWHERE, *NOT_RUN)
    assert [pattern for pattern in patterns if not any(re.search(pattern, command) for command in every)] == []
    named = re.findall(r"tests/[\w/]+\.py", " ".join((*ELSEWHERE.values(), *NOT_RUN.values())))
    assert [name for name in named if not (PROJECT / name).exists()] == []


def test_every_extra_that_a_page_tells_to_install_exists() -> None:
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    named = {found for page in PAGES for found in EXTRA.findall(page.read_text(encoding="utf-8"))}
    told = {extra for names in named for extra in names.split(",")}
    assert told <= set(extras), told - set(extras)
