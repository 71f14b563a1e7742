"""What a run creates in one call it may change in the next; what anybody else made or changed stays closed to it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome, SyncRun, grant
from palyra.errors import Reason
from palyra.sandbox.view import HIDDEN_TEXT
from tests.promises import promise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")]
ONE = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
CODE = grant(tier="c", interpreters=True)


@pytest.fixture(params=["warm", "cold"])
def palyra(home: Path, request: pytest.FixtureRequest) -> Iterator[Palyra]:
    home.mkdir(mode=0o700)
    warm = 2 if request.param == "warm" else 0
    (home / "palyra.toml").write_text(f"[tool_call.process_runner]\nwarm_sandboxes = {warm}\n")
    (home / "palyra.toml").chmod(0o600)
    with Palyra.open(str(home)) as opened:
        yield opened


@pytest.fixture
def run(palyra: Palyra, workspace: Path) -> SyncRun:
    return palyra.run("agent:probe", workspace, grant=CODE)


def sh(run: SyncRun, line: str, **more: object) -> Outcome:
    outcome = run.call("palyra.process.run", {"command": "sh", "args": ["-c", line], **more})
    if outcome.reason is Reason.UNENFORCEABLE:
        pytest.skip(f"this tier is not to be had here: {outcome.message}")
    return outcome


def done(outcome: Outcome) -> str:
    assert outcome.success, (outcome.message, outcome.output)
    return str(outcome.output["stdout"])


def git(at: Path, *args: str) -> None:
    words = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *args]
    environ = {"HOME": "/nonexistent", "PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(words, cwd=at, env=environ, check=True, capture_output=True)


def test_a_repository_that_a_run_made_can_be_configured_moved_and_removed_by_it(run: SyncRun, workspace: Path) -> None:
    done(sh(run, "git init -q proj"))
    done(sh(run, "cd proj && git remote add origin ../other"))
    done(sh(run, "cd proj && git config user.name x && git config user.email x@y.z"))
    done(sh(run, "cd proj && echo 1 > f && git add f && git commit -qm 1"))
    done(sh(run, "mv proj proj2"))
    done(sh(run, "cd proj2 && git remote set-url origin ../more && git worktree add -q ../tree"))
    done(sh(run, "cd proj2 && git worktree remove ../tree"))
    done(sh(run, "rm -rf proj2"))
    assert list(workspace.iterdir()) == []


def test_a_copy_of_the_operators_repository_can_be_removed_and_the_repository_cannot(
    run: SyncRun, workspace: Path
) -> None:
    (workspace / "mine").mkdir()
    git(workspace / "mine", "init", "-q")
    done(sh(run, "cp -r mine copy"))
    done(sh(run, "git -C copy config core.hooksPath hooks && rm -rf copy"))
    assert not sh(run, "rm -rf mine/.git").success
    assert not sh(run, "git -C mine config core.hooksPath hooks").success


def test_a_hidden_file_does_not_read_as_empty(run: SyncRun, workspace: Path) -> None:
    (workspace / ".env").write_text("SECRET=1\n")
    assert done(sh(run, "cat .env")) == HIDDEN_TEXT.decode()
    assert done(sh(run, ". ./.env; echo read")) == "read\n"


@pytest.mark.parametrize("name", [".github", ".vscode", ".husky"])
def test_a_folder_that_a_run_made_can_be_written_again_and_removed(run: SyncRun, workspace: Path, name: str) -> None:
    done(sh(run, f"mkdir {name} && echo 1 > {name}/a"))
    done(sh(run, f"echo 2 > {name}/a && mkdir {name}/b && echo 3 > {name}/b/c"))
    done(sh(run, f"echo 4 >> {name}/b/c"))
    assert (workspace / name / "b" / "c").read_text() == "3\n4\n"
    done(sh(run, f"rm -r {name}"))
    assert not (workspace / name).exists()


def test_an_env_file_that_a_run_made_is_read_and_written_again(run: SyncRun, workspace: Path) -> None:
    done(sh(run, "echo A=1 > .env"))
    assert done(sh(run, "cat .env")) == "A=1\n"
    done(sh(run, "echo B=2 >> .env"))
    done(sh(run, "sed -i s/A=1/A=3/ .env"))  # a new file under the old name
    read = run.call("palyra.fs.read", {"path": ".env"})
    assert read.output["text"] == "A=3\nB=2\n"
    done(sh(run, "rm .env"))


@promise("workspace.created-files")
def test_what_was_there_before_the_run_stays_closed(run: SyncRun, workspace: Path) -> None:
    (workspace / ".env").write_text("SECRET=1\n")
    (workspace / ".vscode").mkdir()
    (workspace / ".vscode" / "tasks.json").write_text("{}")
    assert "SECRET" not in str(sh(run, "cat .env").output)
    for line in ("echo 2 > .env", "rm .env", "mv .env x", "ln .env x", "echo 2 > .vscode/tasks.json", "mv .vscode x"):
        assert not sh(run, line).success, line
    assert "SECRET" not in str(sh(run, "cat .env x").output)
    assert (workspace / ".env").read_text() == "SECRET=1\n"
    assert (workspace / ".vscode" / "tasks.json").read_text() == "{}"


@promise("workspace.created-files")
def test_what_another_run_made_is_closed(palyra: Palyra, run: SyncRun, workspace: Path) -> None:
    done(sh(run, "echo A=1 > .env && mkdir .vscode"))
    other = palyra.run("agent:probe", workspace, grant=CODE)
    assert "A=1" not in str(sh(other, "cat .env").output)
    assert not sh(other, "touch .vscode/x").success


@promise("workspace.created-files")
@pytest.mark.parametrize(
    "touch",
    [
        lambda at: (at / ".env").write_text("SECRET=1\n"),
        lambda at: ((at / "new").write_text("SECRET=1\n"), (at / "new").replace(at / ".env")),
        lambda at: ((at / ".env").unlink(), (at / ".env").write_text("SECRET=1\n")),
        lambda at: os.link(at / ".env", at / "second"),
    ],
    ids=["written", "replaced", "made anew", "linked"],
)
def test_an_env_file_that_the_operator_changed_is_closed_for_good(run: SyncRun, workspace: Path, touch) -> None:
    done(sh(run, "echo A=1 > .env"))
    done(sh(run, "cat .env"))
    touch(workspace)
    text = (workspace / ".env").read_text()
    for line in ("cat .env", "cat .env", "echo 2 > .env", "rm .env"):
        assert text.strip() not in str(sh(run, line).output)
    assert (workspace / ".env").read_text() == text


@promise("workspace.created-files")
@pytest.mark.parametrize(
    "words",
    [
        ("config", "core.hooksPath", "x"),
        ("commit", "-q", "--allow-empty", "-m", "mine"),
        ("branch", "mine"),
        ("tag", "mine"),
        ("add", "file"),
    ],
    ids=" ".join,
)
def test_a_repository_that_the_operator_worked_in_is_the_operators(
    run: SyncRun, workspace: Path, words: tuple[str, ...]
) -> None:
    done(sh(run, "git init -q p && cd p && git config user.name a && git config user.email a@b.c"))
    done(sh(run, "cd p && git commit -q --allow-empty -m 1 && echo 1 > file"))
    git(workspace / "p", *words)
    config = (workspace / "p" / ".git" / "config").read_bytes()
    for line in ("git -C p config core.fsmonitor x", "echo > p/.git/config", "mv p q", "touch p/.git/hooks/pre-commit"):
        assert not sh(run, line).success, line
    assert (workspace / "p" / ".git" / "config").read_bytes() == config


@pytest.mark.parametrize(
    "made",
    ["git init -q --separate-git-dir=p.git p", "git init -q m && git -C m commit -q --allow-empty -m 1 && "
     "git -C m worktree add -q ../p"],
    ids=["separate folder", "worktree"],
)  # fmt: skip
def test_a_git_file_is_the_operators_once_the_operator_worked_in_what_it_names(
    run: SyncRun, workspace: Path, made: str
) -> None:
    who = "export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.c GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.c;"
    done(sh(run, f"{who} {made}"))
    done(sh(run, "cp p/.git kept && cp kept p/.git"))
    git(workspace / "p", "commit", "-q", "--allow-empty", "-m", "mine")
    for line in ("echo 'gitdir: ../evil' > p/.git", "rm p/.git", "mv p q"):
        assert not sh(run, line).success, line


@pytest.mark.parametrize("line", ["ln -s ../out .husky/pre-commit", "rmdir .husky; ln -s out .husky"])
def test_what_leads_out_by_a_link_is_not_the_runs_own(run: SyncRun, workspace: Path, line: str) -> None:
    done(sh(run, f"mkdir .husky && {line}; echo > out"))
    assert not sh(run, "touch .husky/x && rm -r .husky").success


@promise("workspace.created-files")
def test_an_older_folder_moved_into_place_stays_closed(run: SyncRun, workspace: Path) -> None:
    far = workspace / "a" / "b" / "c"  # deeper than repositories are looked for
    far.mkdir(parents=True)
    git(far, "init", "-q")
    (workspace / "settings").mkdir()
    for _ in range(2):  # longer than a tick of the kernel's clock, in which two births look like one
        done(sh(run, "sleep 0.02"))
    done(sh(run, "mv a/b/c near && mv settings .vscode"))
    assert not sh(run, "git -C near config core.hooksPath x").success
    assert not sh(run, "touch .vscode/x").success


@promise("workspace.created-files")
def test_a_link_under_a_guarded_name_opens_nothing(run: SyncRun, workspace: Path) -> None:
    (workspace / "settings").mkdir()
    done(sh(run, "ln -s settings .vscode"))
    assert not sh(run, "touch settings/x").success


@promise("workspace.created-files")
def test_what_the_operators_settings_name_stays_closed_though_a_run_made_it(run: SyncRun, workspace: Path) -> None:
    git(workspace, "init", "-q")
    git(workspace, "config", "core.hooksPath", ".husky")
    git(workspace, "config", "include.path", "../extra.inc")
    done(sh(run, "mkdir .husky && echo > extra.inc"))
    assert not sh(run, "touch .husky/pre-commit").success
    assert not sh(run, "echo x > extra.inc").success


def test_a_background_process_finds_what_its_run_made_closed(run: SyncRun, workspace: Path) -> None:
    done(sh(run, "echo A=1 > .env"))
    line = "cat .env; echo B=2 >> .env"
    started = sh(run, line, background=True, lifetime="run_owned").output
    ask = {"process_id": started["process_id"]}
    for name in ("stdout", "stderr"):
        while not (page := run.call("palyra.process.output", {**ask, "stream": name}).output)["complete"]:
            assert page["status"] in ("running", "exited"), page
        assert "A=1" not in page["text"]
    assert (workspace / ".env").read_text() == "A=1\n"


def test_a_run_known_by_its_id_goes_on_in_another_process(home: Path, workspace: Path) -> None:
    for number, line in enumerate(("git init -q p", "git -C p remote add o ../x", "rm -rf p")):
        with Palyra.open(str(home)) as palyra:
            done(sh(palyra.run("agent:probe", workspace, run_id=ONE, grant=CODE), line)), number
    assert not (workspace / "p").exists()
