"""docs/guide/write-a-skill.md, run as it is written: from nothing to a call of an enabled skill, in two languages."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from palyra.model.call import Tier
from tests.authoring import COMPILER, PROJECT, assemblyscript
from tests.conformance.arena import require
from tests.servers import web

GUIDE = (PROJECT / "docs" / "guide" / "write-a-skill.md").read_text("utf-8")


def fences(kind: str) -> list[str]:
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


def commands(about: str) -> list[list[str]]:
    lines = [line for block in fences("sh") for line in block.splitlines() if about in line]
    return [shlex.split(line) for line in lines]


def type_all(cli: Any, lines: list[list[str]], path: tuple[str, ...] = ()) -> list[subprocess.CompletedProcess[bytes]]:
    """Each as a user types it, with `palyra` on the PATH."""
    environ = {**cli.environ, "PATH": os.pathsep.join((*path, "/usr/bin", "/bin"))}
    done = []
    for words in lines:
        argv = [*cli.argv, *words[1:]] if words[0] == "palyra" else words
        one = subprocess.run(argv, cwd=cli.workspace, env=environ, capture_output=True, timeout=120)
        assert one.returncode == 0, (words, one.stdout, one.stderr)
        done.append(one)
    return done


def test_the_guide_needs_less_than_ten_commands_in_each_language() -> None:
    assert [len(commands(about)) for about in ("acme.echo", "acme.greet")] == [6, 7]


def test_the_shortest_way_ends_with_an_answer(cli: Any) -> None:
    require(Tier.C)
    done = type_all(cli, commands("acme.echo"))
    assert json.loads(done[-1].stdout)["result"] == {"hello": "world"}
    listed = json.loads(cli("skills", "list", "--json").stdout)["items"]
    assert [(one["skill_id"], one["status"]) for one in listed] == [("acme.echo", "active")]
    assert cli("journal", "verify").returncode == 0


@pytest.mark.slow
def test_the_way_with_a_language_ends_with_an_answer(cli: Any) -> None:
    """All of the guide's commands but one: what `npm install` brings already exists, from the lock."""
    require(Tier.C)
    path = assemblyscript()
    new, install, *rest = commands("acme.greet")
    locked = json.loads((COMPILER / "package-lock.json").read_text())["packages"]["node_modules/assemblyscript"]
    assert install[:2] == ["npm", "install"]
    assert install[-1] == f"assemblyscript@{locked['version']}"
    type_all(cli, [new])
    write_what_the_guide_shows(cli.workspace / "acme.greet")
    done = type_all(cli, rest, path)
    assert json.loads(done[-1].stdout)["result"] == {"greeting": "Hello, Ada!"}


def write_what_the_guide_shows(project: Path) -> None:
    (project / "src" / "main.ts").write_text(fences("ts")[0])
    schemas = fences("skill.toml")[0].splitlines()
    text = (project / "skill.toml").read_text()
    for line in schemas:
        name = line.partition(" ")[0]
        text = re.sub(rf"^{name} = .*$", line.replace("\\", r"\\"), text, flags=re.MULTILINE)
    (project / "skill.toml").write_text(text)
    for name, case in zip(("object", "empty"), fences("json"), strict=True):
        (project / "tests" / f"{name}.json").write_text(case)


def test_what_differs_is_shown_and_exits_1(cli: Any) -> None:
    require(Tier.C)
    type_all(cli, commands("acme.echo")[:2])
    case = cli.workspace / "acme.echo" / "tests" / "empty.json"
    case.write_text('{"input": {}, "expect": {"result": {"more": 1}}}')
    told = cli("skills", "test", "acme.echo")
    assert (told.returncode, b'-    "more": 1' in told.stdout) == (1, True)
    machine = cli("skills", "test", "acme.echo", "--json")
    verdicts = json.loads(machine.stdout)
    assert (machine.returncode, verdicts["passed"], verdicts["failed"]) == (1, 1, 1)
    assert [(one["name"], one["passed"]) for one in verdicts["items"]] == [("empty", False), ("object", True)]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("skills", "new", "Acme.Echo"), 2, b"is not PUBLISHER.NAME"),
        (("skills", "new", "../../x.y"), 2, b"is not PUBLISHER.NAME"),
        (("skills", "new", "acme.echo", "--lang", "cobol"), 2, b"cobol"),
        (("skills", "build", "."), 1, b"There is no skill.toml in"),
        (("skills", "test", "nowhere"), 1, b"nowhere"),
        (("skills", "propose", "anything"), 1, b"switched off"),
        (("skills", "propose"), 2, b"Give words"),
    ],
)
def test_what_cannot_be_done_is_said_in_two_lines(cli: Any, words: tuple[str, ...], code: int, said: bytes) -> None:
    done = cli(*words)
    assert (done.returncode, done.stdout) == (code, b"")
    assert said in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_package_is_signed_by_the_key_that_is_given_at_the_time_that_is_given(cli: Any) -> None:
    require(Tier.C)
    for skill_id in ("acme.one", "other.two"):
        assert cli("skills", "new", skill_id).returncode == 0
    first = json.loads(cli("skills", "build", "acme.one", "--json").stdout)
    key = cli.home / "publishers" / "acme.pem"
    assert (key.stat().st_mode & 0o777, first["file"]) == (
        0o600,
        str(cli.workspace / "acme.one" / "dist" / "acme.one-0.1.0.palyra-skill"),
    )
    second = json.loads(cli("skills", "build", "other.two", "--key", str(key), "--json").stdout)
    assert (second["key_id"], second["publisher"]) == (first["key_id"], "other")
    assert not (cli.home / "publishers" / "other.pem").exists()
    built = []
    for second_s in (1_000, 2_000):
        os.utime(cli.workspace / "acme.one" / "skill.toml", (second_s, second_s))
        environ = {**cli.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        words = [*cli.argv, "skills", "build", "acme.one", "--quiet"]
        done = subprocess.run(words, cwd=cli.workspace, env=environ, capture_output=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, b"")
        built.append(Path(first["file"]).read_bytes())
    assert built[0] == built[1]


def test_nothing_that_is_there_is_overwritten(cli: Any) -> None:
    assert cli("skills", "new", "acme.echo").returncode == 0
    (cli.workspace / "acme.echo" / "src" / "main.wat").write_text("mine")
    again = cli("skills", "new", "acme.echo", "--lang", "c")
    assert (again.returncode, b"already exists" in again.stderr) == (1, True)
    assert (cli.workspace / "acme.echo" / "src" / "main.wat").read_text() == "mine"
    assert not (cli.workspace / "acme.echo" / "src" / "main.c").exists()


def test_the_command_line_proposes_lists_and_promotes(cli: Any) -> None:
    require(Tier.C)
    cli.home.mkdir(mode=0o700, exist_ok=True)
    (cli.home / "palyra.toml").write_text("[skills]\nbuilder = true\n")
    (cli.home / "palyra.toml").chmod(0o600)
    made = json.loads(cli("skills", "propose", "remember a note", "--json").stdout)
    assert made["skill_id"] == "local.remember-note"
    assert "REVIEW.md" in made["files"]
    promoted = json.loads(cli("skills", "promote", made["candidate_id"], "--json").stdout)
    assert promoted["skill"]["status"] == "quarantined"
    (listed,) = json.loads(cli("skills", "candidates", "--json").stdout)["items"]
    assert listed["promoted_sha256"] == promoted["built"]["payload_sha256"]
    assert cli("skills", "enable", "local.remember-note").returncode == 1  # nobody has reviewed it
    assert cli("skills", "enable", "local.remember-note", "--override", "read it all").returncode == 0
    given = cli.outcome("call", "local.remember-note", '{"note": 1}', "--json")
    assert (given["status"], given["output"].get("result")) == ("completed", {"note": 1}), given
    assert cli.outcome("call", "local.remember-note", "{}", "--json")["output"]["result"] == {"note": 1}


def test_a_candidate_is_learned_from_what_a_run_fetched(cli: Any) -> None:
    require(Tier.C)
    run_id = "01J9ZQ6Z4T2C6M0R4W5X8Y1ABC"
    with web() as seen:
        cli.home.mkdir(mode=0o700, exist_ok=True)
        hosts = f'[tool_call.process_runner]\nallowed_egress_hosts = ["127.0.0.1:{seen.port}"]\n'
        (cli.home / "palyra.toml").write_text(f"[skills]\nbuilder = true\n{hosts}")
        (cli.home / "palyra.toml").chmod(0o600)
        for path in ("/v1/a?x=1", "/v1/b"):
            asked = json.dumps({"url": f"http://127.0.0.1:{seen.port}{path}"})
            outcome = cli.outcome("call", "palyra.http.fetch", asked, "--run", run_id, "--json")
            assert outcome["status"] == "completed", outcome
    made = json.loads(cli("skills", "propose", "--from-run", run_id, "--id", "acme.learned", "--json").stdout)
    assert (made["source"], made["shape"]) == ("calls", "fetch")
    assert made["capabilities"]["http_egress_allowlist"] == [f"http://127.0.0.1:{seen.port}"]
    assert 'pattern = "^/v1/[A-Za-z0-9' in made["files"]["skill.toml"]
    assert cli("skills", "promote", made["candidate_id"]).returncode == 0
    nothing = cli("skills", "propose", "--from-run", "01J9ZQ6Z4T2C6M0R4W5X8Y1ABD")
    assert (nothing.returncode, b"No call of that run" in nothing.stderr) == (1, True)
