"""Policies from the command line: checked, used, compared, replayed, explained and rolled back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from palyra.api import Palyra
from tests.command_line import Cli
from tests.promises import promise

NO_RM = """@id("local.no-rm")
@reason("No rm here.")
forbid (principal, action, resource) when { context.program == "rm" };
"""
DEEP = '@id("x") permit (principal, action, resource) when { ' + "(" * 1000 + "true" + ")" * 1000 + " };"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "new", NO_RM)


def write(folder: Path, text: str, examples: str = "") -> Path:
    folder.mkdir(mode=0o700, exist_ok=True)
    for name, content in (("mine.cedar", text), ("examples.toml", examples)):
        (folder / name).write_text(content)
        (folder / name).chmod(0o600)
    return folder


def said(cli: Cli, *args: str) -> tuple[int, dict[str, Any]]:
    done = cli(*args, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_version_is_used_replayed_compared_and_rolled_back(cli: Cli, folder: Path):
    """The whole story of a change: look first, use it, think better of it."""
    (cli.workspace / "x").write_text("x")
    assert cli("run", "--", "rm", "x").returncode == 0
    code, value = said(cli, "policy", "diff", str(folder))
    assert (code, value["policies"]["added"], value["journal"]["newly_denied"]) == (1, ["local.no-rm"], 1)
    code, value = said(cli, "policy", "replay", str(folder), "--since", "1h")
    assert (code, value["flips"], value["items"][0]["now"]["reason"]) == (1, 1, "POLICY_DENIED")
    assert said(cli, "policy", "replay", str(folder), "--since", "2999-01-01")[1]["calls"] == 0

    code, value = said(cli, "policy", "use", str(folder))
    assert (code, value["changed"]) == (0, True)
    refused = cli("run", "--", "rm", "x")
    assert (refused.returncode, b"No rm here." in refused.stderr) == (126, True)
    assert said(cli, "policy", "show")[1]["version"] == value["version"]
    assert said(cli, "policy", "diff", str(folder))[0] == 0, "nothing would change any more"

    assert cli("policy", "rollback").returncode == 0
    assert cli("run", "--", "rm", "-f", "x").returncode == 0
    assert cli("policy", "rollback").returncode == 1
    assert said(cli, "policy", "use", value["version"][:12])[0] == 0, "it is still there"
    acts = [item["entry"]["predicate"].get("act") for item in said(cli, "journal", "tail")[1]["items"]]
    assert [act for act in acts if act] == ["policy.used", "policy.rolled_back", "policy.used"]
    verified = cli("journal", "verify", "--replay")
    assert (verified.returncode, b"3 decisions were made again; 0 differ" in verified.stdout) == (0, True), verified


BAD = {
    "not valid Cedar": ("permit (principal", "mine.cedar:1"),
    "a thousand levels": (DEEP, "nested"),
    "the same id twice": (NO_RM + NO_RM, "mine.cedar:4: policy 'local.no-rm': The @id is already used"),
    "a type error": ('@id("x") permit (principal, action, resource) when { context.hour == "1" };', "policy 'x'"),
    "ten mebibytes": ("//" + "\n//".join(["x" * 1000] * 10_500), "at most 1048576 bytes"),
}


@promise("policy.broken-bundle")
@pytest.mark.parametrize("kind", BAD)
def test_a_broken_bundle_never_replaces_a_good_one(cli: Cli, folder: Path, tmp_path: Path, kind: str):
    text, message = BAD[kind]
    version = said(cli, "policy", "use", str(folder))[1]["version"]
    bad = str(write(tmp_path / "bad", text))
    for command in ("check", "test", "use"):
        code, value = said(cli, "policy", command, bad)
        assert (code, value["ok"]) == (1, False)
        assert message in value["error"]
    assert said(cli, "policy", "show")[1]["version"] == version


def test_examples_that_do_not_hold_keep_a_bundle_out(cli: Cli, tmp_path: Path):
    example = '[[example]]\nname = "rm works"\nexpect = "allow"\nfacts = { program = "rm" }\n'
    code, value = said(cli, "policy", "use", str(write(tmp_path / "new", NO_RM, example)))
    assert (code, "Example 'rm works': expected allow, decided deny" in value["error"]) == (1, True)


def test_a_process_that_runs_sees_a_version_used_beside_it(cli: Cli, folder: Path):
    """Hot reload: no restart, and the digest of the new bundle in the next attestation."""
    with Palyra.open(str(cli.home)) as palyra:
        run = palyra.run("agent:demo", str(cli.workspace))
        before = run.call("palyra.echo", {"n": 1}).attestation["policy_sha256"]
        value = said(cli, "policy", "use", str(folder))[1]
        assert run.call("palyra.echo", {"n": 2}).attestation["policy_sha256"] == value["policy_sha256"] != before
        assert run.call("palyra.process.run", {"command": "rm", "args": ["x"]}).reason == "POLICY_DENIED"
        assert cli("policy", "rollback").returncode == 0
        assert run.call("palyra.echo", {"n": 3}).attestation["policy_sha256"] == before


def test_the_exception_that_explain_names_allows_that_call_and_no_other(cli: Cli):
    """From a refusal in the journal to an exception that allows exactly it."""
    cli("init", "--posture", "locked")
    refused = cli.outcome("call", "palyra.echo", '{"a": 1}', "--as", "agent:demo", "--json")
    code, value = said(cli, "policy", "explain", refused["call_id"])
    assert (code, value["kind"], value["recorded"]["effect"]) == (0, "nothing_permits", "deny")
    text = next(change["text"] for change in value["changes"] if change["scope"] == "call")
    assert said(cli, *text.split()[1:])[0] == 0
    assert cli.outcome("call", "palyra.echo", '{"a": 1}', "--as", "agent:demo", "--json")["success"]
    for arguments, who in (('{"a": 2}', "agent:demo"), ('{"a": 1}', "agent:other")):
        assert cli("call", "palyra.echo", arguments, "--as", who).returncode == 126
    assert [tool["name"] for tool in said(cli, "tools", "list", "--as", "agent:demo")[1]["items"]] == ["palyra.echo"]
    assert said(cli, "tools", "list", "--as", "agent:other")[1]["items"] == []


def test_a_candidate_in_shadow_mode_changes_nothing_but_the_record(cli: Cli, folder: Path):
    cli("init")
    config = cli.home / "palyra.toml"
    config.write_text(f'[policy]\nmode = "shadow"\ncandidate = "{folder}"\n')
    os.chmod(config, 0o600)
    outcome = cli.outcome("run", "--json", "--", "rm", "-f", "x")
    assert outcome["success"]
    details = said(cli, "journal", "show", outcome["call_id"])[1]["details"]
    assert (details["shadow"]["effect"], details["shadow"]["policies"]) == ("deny", ["local.no-rm"])
    assert b"candidate   deny by local.no-rm\n" in cli("journal", "show", outcome["call_id"]).stdout
    assert b"ok  candidate: shadow mode, " in cli("doctor").stdout


def test_a_candidate_that_is_not_there_does_not_pass_for_one_that_agrees(cli: Cli, folder: Path):
    cli("init")
    (cli.home / "palyra.toml").write_text(f'[policy]\nmode = "shadow"\ncandidate = "{folder}.typo"\n')
    outcome = cli.outcome("run", "--json", "--", "rm", "-f", "x")
    assert outcome["success"], "it changes nothing but the record"
    shown = said(cli, "journal", "show", outcome["call_id"])[1]["details"]["shadow"]
    assert shown == {"error": f"{folder}.typo: There is no such folder."}
    told = cli("doctor")
    assert (told.returncode, b"advice  candidate: Shadow mode compares with nothing: " in told.stdout) == (0, True)


def test_a_bad_file_is_named_by_where_it_lies(cli):
    folder = cli.workspace / "mine"
    folder.mkdir()
    (folder / "a.cedar").write_text('@id("x")\n@approval("always")\nforbid (principal, action, resource);\n')
    known = "Palyra knows @code, @final, @hint, @id, @lifts, @reason. A policy that asks for a person says: "
    for words in (
        ("check", str(folder)),
        ("check", str(folder / "a.cedar")),
        ("diff", str(folder)),
        ("use", str(folder)),
    ):
        done = cli("policy", *words)
        told = (done.stdout + done.stderr).decode()
        assert done.returncode == (2 if words[0] == "diff" else 1)
        assert (
            f"{folder}/a.cedar:1: policy 'x': Unknown annotation @approval.\nhint: {known}unless {{ context.approved }}"
            in told
        )


def test_the_hint_for_a_program_that_is_not_listed_can_be_typed_and_then_works(cli):
    """`--allow python` was said of python3, which stayed refused however often it was typed."""
    assert cli("init").returncode == 0
    text = '@id("guard.10-interpreter")\nforbid (principal, action, resource) when { context.interpreter && false };\n'
    (Path(cli.home) / "policies" / "local.cedar").write_text(text)
    refused = cli("run", "--", "python3", "-c", "print(6 * 7)")
    assert b"hint: An operator can allow it for this call: palyra run --allow python3;" in refused.stderr
    assert cli("run", "--allow", "python3", "--", "python3", "-c", "print(6 * 7)").stdout == b"42\n"
    call_id = json.loads(cli("run", "--json", "--", "python3", "-V").stdout)["call_id"]
    assert b"would allow: --allow python3\n" in cli("policy", "explain", call_id).stdout


def test_a_path_that_a_policy_forbids_is_forbidden_by_its_absolute_name_too(cli: Cli, tmp_path: Path):
    looks = 'context.input has path && context.input.path like "x*"'
    text = f'@id("local.x") forbid (principal, action, resource) when {{ {looks} }};'
    assert said(cli, "policy", "use", str(write(tmp_path / "new", text)))[0] == 0
    (cli.workspace / "x").write_text("closed")
    (cli.workspace / "y").write_text("open")
    place = os.path.realpath(cli.workspace)
    outcomes = [
        said(cli, "call", "palyra.fs.read", json.dumps({"path": path}))[1]
        for path in ("x", f"{place}/x", f"/{place}/./y/../x", f"{place}/y")
    ]
    assert [outcome["reason"] for outcome in outcomes] == ["POLICY_DENIED"] * 3 + [None]
    assert said(cli, "journal", "verify", "--replay")[0] == 0


NO_RM_EXAMPLE = """[[example]]
name = "nobody deletes"
expect = "deny"
policy = "local.no-rm"
facts = { program = "rm" }
"""


@pytest.mark.parametrize("named", ["the folder", "the file"])
def test_policies_of_ones_own_are_tested_by_the_examples_beside_them_and_held_against_the_postures(
    cli: Cli, tmp_path: Path, named: str
):
    folder = write(tmp_path / "new", NO_RM, NO_RM_EXAMPLE)
    place = str(folder if named == "the folder" else folder / "mine.cedar")
    code, value = said(cli, "policy", "test", place)
    assert (code, value["examples"], value["posture"]["otherwise"]) == (0, 1, [])
    assert value["posture"]["examples"] > 10
    (folder / "examples.toml").write_text(NO_RM_EXAMPLE.replace("deny", "allow"))
    code, value = said(cli, "policy", "test", place)
    assert (code, value["error"]) == (
        1, f"{folder}/examples.toml: Example 'nobody deletes': expected allow, decided deny (local.no-rm).",
    )  # fmt: skip


def test_policies_without_examples_are_said_to_have_none_and_what_they_decide_otherwise(cli: Cli, tmp_path: Path):
    folder = write(tmp_path / "new", NO_RM.replace('context.program == "rm"', "true"))
    code, value = said(cli, "policy", "test", str(folder))
    assert (code, value["examples"]) == (0, 0)
    assert value["posture"]["otherwise"][0]["problem"].endswith("decided deny (local.no-rm)")
    done = cli("policy", "test", str(folder))
    lines = done.stdout.decode().splitlines()
    assert "0 examples decide as written" in lines[0]
    assert lines[1].startswith(f"of the {value['posture']['examples']} examples of standard,")
    assert done.stderr.decode().splitlines() == [
        "hint: Say in examples.toml beside your policies what they must do: docs/guide/first-policy.md shows how."
    ]


def test_one_file_whose_examples_speak_of_the_others_is_told_to_be_tested_with_them(cli: Cli, tmp_path: Path):
    folder = write(tmp_path / "new", NO_RM, NO_RM_EXAMPLE)
    (folder / "other.cedar").write_text(NO_RM.replace("local.no-rm", "local.no-mv").replace('"rm"', '"mv"'))
    (folder / "other.cedar").chmod(0o600)
    code, value = said(cli, "policy", "test", str(folder / "other.cedar"))
    assert (code, value["hint"]) == (1, f"They speak of all policies there: palyra policy test {folder}")
