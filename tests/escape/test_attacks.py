"""Attacks through the real engine, on a real child of each tier: guards, environment and redaction together."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Outcome, SyncRun, grant
from palyra.errors import Reason
from tests.promises import promise

pytestmark = pytest.mark.slow
TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture(params=["c", "b"])
def tier(request):
    return request.param


@pytest.fixture
def run(home: Path, workspace: Path, tier: str):
    with Palyra.open(str(home)) as palyra:
        yield palyra.run("agent:attacker", workspace, grant=grant(tier=tier, root_tier_b=True))


@pytest.fixture
def shell(home: Path, workspace: Path, tier: str):
    """The same where the operator allows interpreters: the walls alone are left."""
    with Palyra.open(str(home)) as palyra:
        yield palyra.run("agent:attacker", workspace, grant=grant(tier=tier, root_tier_b=True, interpreters=True))


def call(run: SyncRun, command: str, *args: str, **more: object) -> Outcome:
    outcome = run.call("palyra.process.run", {"command": command, "args": list(args), **more})
    if outcome.reason is Reason.UNENFORCEABLE:
        pytest.skip(f"this tier is not to be had here: {outcome.message}")
    return outcome


def plant(place: Path, text: str) -> None:
    place.write_text(f"#!/bin/sh\n{text}\n")
    place.chmod(0o755)


@promise("commands.planted-program")
def test_a_program_planted_under_an_allowed_name_is_not_what_runs(run: SyncRun, workspace: Path) -> None:
    (workspace / "mine").write_text("x")
    for name in ("ls", "git", "cat"):
        plant(workspace / name, f"touch {workspace}/ran")
    assert "mine" in call(run, "ls").output["stdout"]
    assert call(run, "./ls").reason is Reason.BAD_ARGUMENTS
    assert not (workspace / "ran").exists()


@promise("commands.planted-program")
def test_a_search_path_that_leads_into_the_workspace_runs_nothing(home: Path, workspace: Path, tier: str) -> None:
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text(f'[tool_call.process_runner]\npath = ["{workspace}", "/usr/bin", "/bin"]\n')
    shutil.copy("/bin/touch", workspace / "ls")
    with Palyra.open(str(home)) as palyra:
        outcome = call(palyra.run("agent:attacker", workspace, grant=grant(tier=tier, root_tier_b=True)), "ls", "ran")
    assert (outcome.reason, (workspace / "ran").exists()) == (Reason.EXECUTABLE_DENIED, False)


@promise("commands.planted-launcher")
def test_a_launcher_planted_on_the_search_path_is_not_run_at_the_next_start(
    home: Path, workspace: Path, tier: str, tmp_path: Path
) -> None:
    """It would run as the operator, outside of every sandbox, and be attested as all walls at once."""
    home.mkdir(mode=0o700)
    folder = workspace / "node_modules" / ".bin"
    path = f'path = ["{folder}", "/usr/bin", "/bin"]'
    image = f'container_image = "example@sha256:{"a" * 64}"'
    (home / "palyra.toml").write_text(f"[tool_call.process_runner]\n{path}\n{image}\n")
    folder.mkdir(parents=True)
    for name in ("bwrap", "podman", "docker", "setpriv", "nsenter"):
        plant(folder / name, f'echo {name} >> {tmp_path}/ran; exec /usr/bin/{name} "$@"')
    with Palyra.open(str(home)) as palyra:
        call(palyra.run("agent:attacker", workspace, grant=grant(tier=tier, root_tier_b=True)), "ls")
    assert not (tmp_path / "ran").exists()


@promise("commands.environment")
@pytest.mark.parametrize(
    "key",
    ["LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "PATH", "http_proxy"],
)
def test_variables_that_make_programs_run_something_are_refused(run: SyncRun, key: str) -> None:
    outcome = call(run, "ls", env={key: "/tmp/x"})
    assert (outcome.reason, outcome.output) == (Reason.BAD_ARGUMENTS, {})


@promise("commands.interpreters")
@pytest.mark.parametrize(
    "words",
    [
        ("env", "sh", "-c", "touch ran"),
        ("env", "-S", "sh -c 'touch ran'"),
        ("nice", "timeout", "5", "env", "A=1", "sh", "-c", "touch ran"),
        ("xargs", "sh", "-c", "touch ran"),
        ("find", ".", "-exec", "sh", "-c", "touch ran", ";"),
        ("git", "-c", "alias.x=!touch ran", "x"),
        ("tar", "cf", "/dev/null", "--checkpoint=1", "--checkpoint-action=exec=touch ran", "."),
        ("tar", "--to-command=touch ran", "-xf", "a.tar"),
        ("sort", "--compress-program=sh", "a"),
        ("sed", "-n", "1e touch ran", "a"),
        ("split", "--filter=touch ran", "a"),
        ("rg", "--pre", "sed", ".", "1e touch ran"),
        ("awk", 'BEGIN{system("touch ran")}'),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_chains_of_wrappers_reach_no_interpreter(run: SyncRun, workspace: Path, words: tuple[str, ...]) -> None:
    for name in ("a", "1e touch ran"):
        (workspace / name).write_text("a\n")
    outcome = call(run, *words)
    assert outcome.reason in (Reason.INTERPRETER_DENIED, Reason.EXECUTABLE_DENIED), outcome.message
    assert not (workspace / "ran").exists()


@promise("commands.code-options")
@pytest.mark.parametrize("words", [("-cM", "-L", "10", "-f", "a.tar", "a"), ("cMfL", "a.tar", "10", "a")])
def test_a_tar_of_several_volumes_takes_no_shell_from_its_stdin(
    run: SyncRun, workspace: Path, words: tuple[str, ...]
) -> None:
    """It asks for the next volume, and `!` is a shell that reads the rest of stdin, here behind tar's own buffer."""
    (workspace / "a").write_bytes(bytes(100_000))
    stdin = "!\n" + "#" * 4094 + "\ntouch ran\n"
    outcome = run.call("palyra.process.run", {"command": "tar", "args": list(words), "stdin": stdin})
    assert (outcome.reason, (workspace / "ran").exists()) == (Reason.INTERPRETER_DENIED, False)


@promise("commands.code-options")
def test_names_of_files_that_find_gives_to_sed_are_no_scripts_and_no_options(run: SyncRun, workspace: Path) -> None:
    for name in ("1e touch ran", "-e1e touch ran", "-n", "--expression=1e touch ran"):
        (workspace / name).write_text("a\n")
    changed = call(run, "find", ".", "-type", "f", "-exec", "sed", "-i", "s/a/b/", "{}", "+")
    assert changed.success, changed.message
    assert {place.read_text() for place in workspace.iterdir()} == {"b\n"}
    for words in (["1e touch ran", "-exec", "sed", "{}", "-n", ";"], [".", "-exec", "sed", "s/a/{}/", "-n", ";"]):
        assert call(run, "find", *words).reason is Reason.INTERPRETER_DENIED
    assert not (workspace / "ran").exists()


@promise("secrets.redacted-output")
def test_a_secret_written_in_two_halves_is_redacted(shell: SyncRun) -> None:
    half = len(TOKEN) // 2
    for name in ("stdout", "stderr"):
        to = "" if name == "stdout" else ">&2"
        script = f"printf %s {TOKEN[:half]} {to}; sleep 0.2; printf '%s\\n' {TOKEN[half:]} {to}"
        outcome = call(shell, "sh", "-c", script)
        assert outcome.output[name] == "[redacted:github:1]\n"
        assert outcome.attestation["redactions"] == {"github": 1}
        assert TOKEN not in str(outcome)


@promise("secrets.redacted-output")
def test_a_secret_painted_by_the_program_is_redacted(shell: SyncRun) -> None:
    half = len(TOKEN) // 2
    script = f"printf '\\033[31m{TOKEN[:half]}\\033[1m{TOKEN[half:]}\\033[0m\\n'"
    assert call(shell, "sh", "-c", script).output["stdout"] == "\x1b[31m[redacted:github:1]\x1b[1m\x1b[0m\n"


@promise("workspace.new-guarded-names")
def test_guarded_names_that_were_not_there_are_reported(shell: SyncRun, workspace: Path) -> None:
    script = "mkdir -p .git/hooks .github; : > .git/hooks/pre-commit; : > .env; : > Jenkinsfile; : > plain"
    outcome = call(shell, "sh", "-c", script)
    assert outcome.output["protected_created"] == [".env", ".git/hooks", ".github", "Jenkinsfile"]


@promise("workspace.removed-rights")
@pytest.mark.parametrize("mode", ["chmod 0 .git", "chmod 0 lib", "chmod 311 .", "chmod 600 ."])
def test_rights_taken_away_in_one_call_open_nothing_in_the_next(home: Path, workspace: Path, mode: str) -> None:
    """What could not be looked into was taken for what is not there: the next call found it open."""
    for place in (".git/hooks", "lib/.git/hooks", ".github"):
        (workspace / place).mkdir(parents=True)
    (workspace / ".env").write_text("HIDDEN")
    planted = ".git/hooks/new lib/.git/hooks/new .github/new"
    try:
        with Palyra.open(str(home)) as palyra:
            run = palyra.run("agent:attacker", workspace, grant=grant(interpreters=True))
            assert call(run, "bash", "-c", mode).success
            told = call(run, "bash", "-c", f"chmod 755 . .git lib; cat .env; for n in {planted}; do touch $n; done")
    finally:
        for place in (".", ".git", "lib"):
            (workspace / place).chmod(0o755)
    assert "HIDDEN" not in str(told.output)
    assert [name for name in planted.split() if (workspace / name).exists()] == []


@promise("fs-isolated.engine-environment", "fs-isolated.private-places")
def test_the_engines_home_key_and_environment_are_out_of_reach(shell: SyncRun, home: Path, workspace: Path) -> None:
    os.environ["PALYRA_TEST_MARK"] = "the-engines-own"
    try:
        script = f"""
            cat {home}/* {home}/state/* {home}/*/* 2>/dev/null
            for p in /proc/[0-9]*; do cat $p/environ $p/cmdline 2>/dev/null; done
            cat /proc/{os.getpid()}/environ /proc/self/environ 2>/dev/null
            true
        """
        outcome = call(shell, "sh", "-c", script)
    finally:
        del os.environ["PALYRA_TEST_MARK"]
    if "FS_ISOLATED" not in outcome.attestation["sandbox_enforcement"]["guarantees"]:
        pytest.skip("FS_ISOLATED is not claimed for this workspace")
    assert "the-engines-own" not in outcome.output["stdout"]
    assert "PRIVATE" not in outcome.output["stdout"]
    assert "SQLite format" not in outcome.output["stdout"]


@pytest.mark.parametrize(
    "name",
    ["a\nb", "a\rb", "a\fb", "a b", "-x", "a\\040b", "$(id)", "a'\"b", "a,b:c", "\u2028", "\u3000", "#", "x" * 200],
)
def test_an_odd_folder_name_fails_no_call_and_opens_nothing(
    run: SyncRun, workspace: Path, tier: str, name: str
) -> None:
    """Mount tables are text: a name that reads as the end of a line or a field once failed every call here."""
    hooks = workspace / name / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (workspace / name).chmod(0o755)
    assert call(run, "ls").success
    planted = call(run, "cp", "/etc/passwd", f"{name}/.git/hooks/pre-commit" if name != "-x" else "./-x/.git/hooks/x")
    if tier == "c":
        assert (planted.success, list(hooks.iterdir())) == (False, [])


@pytest.mark.parametrize("word", ["a\0b", "x" * 131_072], ids=["NUL", "too long"])
def test_arguments_that_cannot_be_are_refused(run: SyncRun, word: str) -> None:
    assert call(run, "echo", word).reason is Reason.BAD_ARGUMENTS


def test_the_largest_arguments_and_every_odd_byte_arrive(run: SyncRun) -> None:
    """But separators and dots: such words are looked at as paths, and the disk has none so long."""
    word = ("".join(chr(sign) for sign in range(1, 128) if chr(sign) not in "./~:@=,-") * 1200)[:131_071]
    outcome = call(run, "printf", "%s", word)
    assert outcome.output["stdout"] == word, outcome.message


@promise("fs-isolated.swapped-grant")
def test_a_granted_folder_in_another_agents_workspace_cannot_be_turned_into_a_link(
    home: Path, workspace: Path, tier: str, tmp_path: Path
) -> None:
    """The grant was resolved when the run began: a link that is there later is the other agent's."""
    theirs, keys = tmp_path / "theirs" / "vendor", tmp_path / "keys"
    theirs.mkdir(parents=True)
    keys.mkdir()
    (theirs / "text").write_text("shared")
    (keys / "text").write_text("secret of the operator")
    with Palyra.open(str(home)) as palyra:
        run = palyra.run(
            "agent:attacker", workspace, grant=grant(tier=tier, root_tier_b=True, read_roots=(str(theirs),))
        )
        before = call(run, "cat", str(theirs / "text"))
        theirs.rename(tmp_path / "theirs" / "old")
        theirs.symlink_to(keys)
        after = [call(run, "cat", str(theirs / "text")), call(run, "grep", "-r", "secret", str(theirs))]
    assert before.output["stdout"] == "shared"
    for outcome in after:
        assert not outcome.success
        assert "secret" not in outcome.output.get("stdout", "")


@promise("fs-isolated.swapped-grant")
def test_a_granted_folder_in_the_agents_own_workspace_cannot_be_turned_into_a_link(
    home: Path, workspace: Path, tier: str, tmp_path: Path
) -> None:
    (workspace / "vendor").mkdir()
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "text").write_text("secret of the operator")
    with Palyra.open(str(home)) as palyra:
        given = grant(tier=tier, root_tier_b=True, read_roots=(str(workspace / "vendor"),), interpreters=True)
        run = palyra.run("agent:attacker", workspace, grant=given)
        call(run, "sh", "-c", f"rmdir vendor && ln -s {tmp_path}/keys vendor")
        outcome = call(run, "sh", "-c", "cat vendor/text")
    assert (workspace / "vendor").is_symlink()
    assert "secret" not in outcome.output.get("stdout", "")
