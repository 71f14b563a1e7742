"""`palyra skills …` as an operator types it, from an unknown publisher to a call, an update and the way back."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from palyra.model.call import Tier
from palyra.signing import write_pem
from tests.conformance.arena import require
from tests.making_skills import ACME, EVIL, package


@pytest.fixture
def skills(cli: Any, tmp_path: Path) -> Any:
    """The command line, and packages to give it."""
    require(Tier.C)
    for version in ("0.1.0", "0.2.0"):
        (tmp_path / f"echo-{version}.palyra-skill").write_bytes(package(version=version))
    (tmp_path / "acme.pub").write_text(base64.b64encode(ACME.public.raw).decode())
    (tmp_path / "new.pub").write_text(EVIL.public.raw.hex())
    (tmp_path / "acme.pem").write_text(write_pem(ACME))
    (tmp_path / "new.pem").write_text(write_pem(EVIL))

    def run(*words: str, code: int = 0) -> Any:
        done = cli(
            "skills", *(str(tmp_path / word) if (tmp_path / word).exists() else word for word in words), "--json"
        )
        assert b"Traceback" not in done.stderr
        assert done.returncode == code, (done.stdout, done.stderr)
        (line,) = done.stdout.splitlines()
        return json.loads(line)

    run.folder = tmp_path  # type: ignore[attr-defined]
    return run


def test_from_an_unknown_publisher_to_a_call_and_back(cli: Any, skills: Any) -> None:
    first, second = "echo-0.1.0.palyra-skill", "echo-0.2.0.palyra-skill"
    assert skills("verify", first, code=1)["error"]["code"] == "trust.unknown"
    assert skills("install", first, code=1)["error"]["code"] == "trust.unknown"
    assert skills("show", first)["capability_words"] == ["It asks for nothing outside itself."]
    skills("trust", "add", "acme", "acme.pub")
    assert skills("verify", first)["valid"] is True
    assert skills("audit", first)["verdict"] == "pass"
    installed = skills("install", first)
    assert (installed["status"], installed["audit"]["verdict"]) == ("quarantined", "pass")

    refused = cli("call", "acme.echo", '{"a": 1}', "--json")
    assert (refused.returncode, json.loads(refused.stdout)["reason"]) == (126, "SKILL_NOT_ACTIVE")
    assert skills("enable", "acme.echo")["status"] == "active"
    called = cli("call", "acme.echo", '{"a": 1.5}', "--json")
    outcome = json.loads(called.stdout)
    assert (called.returncode, outcome["output"]["result"]) == (0, {"a": 1.5})
    assert outcome["attestation"]["skill_sha256"] == installed["sha256"]
    listed = json.loads(cli("tools", "list", "--json").stdout)["items"]
    assert "acme.echo" in [tool["name"] for tool in listed]
    assert json.loads(cli("tools", "show", "acme.echo", "--json").stdout)["name"] == "acme.echo"

    assert skills("update", second)["status"] == "quarantined"
    (row,) = skills("list")["items"]
    assert (row["version"], row["status"], row["waiting_versions"]) == ("0.1.0", "active", ["0.2.0"])
    assert skills("enable", "acme.echo")["version"] == "0.2.0"
    assert skills("rollback", "acme.echo")["version"] == "0.1.0"
    assert skills("install", first)["changed"] is False
    assert skills("quarantine", "acme.echo", "--reason", "calls home")["reason"] == "calls home"
    assert skills("disable", "acme.echo", code=1)["error"]["code"] == "life.move"
    assert skills("remove", "acme.echo")["status"] == "removed"
    assert skills("show", "acme.echo")["status"] == "removed"
    assert skills("enable", "acme.echo", code=1)["error"]["code"] == "life.absent"
    assert cli("journal", "verify", "--replay").returncode == 0


def test_a_review_is_recorded_at_the_command_line(cli: Any, skills: Any) -> None:
    """The refusal led to `--override`, because only the console could record a review."""
    (skills.folder / "reviewed.palyra-skill").write_bytes(package(review_required=True))
    skills("trust", "add", "acme", "acme.pub")
    skills("install", "reviewed.palyra-skill")
    refused = skills("enable", "acme.echo", code=1)["error"]
    assert (refused["code"], refused["hint"].partition("then: ")[2]) == (
        "life.review",
        "palyra skills review acme.echo --notes TEXT",
    )
    for notes in ("", " ", "x" * 281):
        assert cli("skills", "review", "acme.echo", "--notes", notes).returncode == 2
    reviewed = skills("review", "acme.echo", "--notes", "source read")
    assert (reviewed["status"], reviewed["reason"]) == ("quarantined", "reviewed: source read")
    assert reviewed["reviewed_by"]
    assert skills("enable", "acme.echo")["status"] == "active"


def test_keys_change_by_rotation_and_end_by_revocation(cli: Any, skills: Any) -> None:
    first = "echo-0.1.0.palyra-skill"
    skills("trust", "add", "acme", "acme.pub")
    statement = str(skills.folder / "rotation.json")
    skills("trust", "handover", "acme", "--key", "acme.pem", "--to", "new.pub", "--output", statement)
    skills("trust", "rotate", statement)
    assert skills("install", first, code=1)["error"]["code"] == "trust.expired"
    skills("sign", first, "--key", "new.pem")
    assert skills("install", first)["key_id"] == EVIL.key_id
    skills("enable", "acme.echo")
    assert skills("trust", "revoke", "acme", "--key", EVIL.key_id)["quarantined"] == ["acme.echo 0.1.0"]
    assert skills("enable", "acme.echo", code=1)["error"]["code"] == "trust.revoked"
    assert [one["revoked_unix_ms"] is None for one in skills("trust", "list")["items"]].count(False) == 1
    assert cli("journal", "verify").returncode == 0


@pytest.mark.parametrize("content", [b"", b"SKL1", b"PK\x03\x04", b"SKL1\xff\xff\xff\xff" + bytes(100)])
def test_files_that_are_no_packages_are_refused_by_every_command(cli: Any, skills: Any, content: bytes) -> None:
    file = skills.folder / "bad.palyra-skill"
    file.write_bytes(content)
    for command in ("install", "show", "verify"):
        assert skills(command, str(file), code=1)["error"]["code"] == "artifact.header"
    assert skills("audit", str(file), code=1)["verdict"] == "fail"


def test_files_of_the_agents_are_taken_for_no_key_and_no_skill(cli: Any, skills: Any) -> None:
    """In the folder an operator happens to be in: named like the publisher's key, and like the installed skill."""
    skills("trust", "add", "acme", "acme.pub")
    skills("install", "echo-0.1.0.palyra-skill")
    key = ACME.public.raw.hex()
    (cli.workspace / key).write_text(EVIL.public.raw.hex())
    (cli.workspace / "acme.echo").write_bytes(package(key=EVIL, version="9.9.9"))
    assert skills("trust", "add", "other", key)["key_id"] == ACME.key_id
    assert skills("show", "acme.echo")["version"] == "0.1.0"
    assert skills("audit", "acme.echo")["status"] == "quarantined"
