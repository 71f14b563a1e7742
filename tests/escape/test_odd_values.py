"""Python callers may hand in anything: every odd value is a coded refusal, attested and journaled if it is a call."""

from __future__ import annotations

from pathlib import Path

import pytest

from palyra import Palyra
from palyra.api import Rejected, grant
from palyra.errors import Reason
from palyra.journal.audit import Report
from palyra.journal.store import verify_journal

ODD = [7, 1.5, b"bytes", ["a"], {"a": 1}, object(), True, "", "not a ulid", "\udcff", "x" * 5000]


@pytest.fixture(scope="module")
def palyra(tmp_path_factory: pytest.TempPathFactory):
    with Palyra.open(tmp_path_factory.mktemp("odd") / "home") as opened:
        yield opened


def audit(palyra: Palyra) -> Report:
    installation = palyra.installation
    return verify_journal(installation.writer.home, is_alive=installation.ports.owners.is_alive)


@pytest.mark.parametrize("value", ODD)
def test_an_odd_call_id_is_refused_attested_and_journaled(palyra: Palyra, workspace: Path, value) -> None:
    before = audit(palyra).entries
    outcome = palyra.run("agent:probe", workspace).call("palyra.echo", {"a": 1}, call_id=value)
    assert (outcome.status.value, outcome.reason) == ("refused", Reason.BAD_ARGUMENTS)
    assert outcome.attestation["call_id"] == outcome.call_id != value
    report = audit(palyra)
    assert (report.findings, report.entries, report.open_calls) == ((), before + 1, 0)


@pytest.mark.parametrize("value", [7, None, b"palyra.echo", ["palyra.echo"], object()])
def test_a_tool_that_is_no_name_is_refused_and_attested(palyra: Palyra, workspace: Path, value) -> None:
    outcome = palyra.run("agent:probe", workspace).call(value, {})
    assert (outcome.status.value, outcome.reason, outcome.tool) == ("refused", Reason.BAD_ARGUMENTS, "")
    assert outcome.attestation["tool"] == ""


@pytest.mark.parametrize("value", [7, "text", ["a"], object(), {1: 2}, {"a": object()}, {"a": {3}}])
def test_an_input_that_is_no_json_object_is_refused_and_attested(palyra: Palyra, workspace: Path, value) -> None:
    outcome = palyra.run("agent:probe", workspace).call("palyra.echo", value)
    assert (outcome.status.value, outcome.reason) == ("refused", Reason.BAD_ARGUMENTS)
    assert outcome.attestation["attestation_id"]


@pytest.mark.parametrize(
    "options",
    [
        *({"principal": value} for value in (7, b"agent:x", ["agent:x"], None, "x")),
        *({"run_id": value} for value in (7, b"x", "", "x", ["x"])),
        *({"device": value} for value in (7, b"x", None, "\udcff")),
        *({"channel": value} for value in (7, object())),
        *({"workspace": value} for value in (7.5, ["x"], object(), "a\0b")),
        *({"tier": value} for value in (7, "d", "C", ["c"])),
        *({"egress": value} for value in (7, "open", ["none"])),
    ],
)
def test_an_odd_value_of_a_run_is_a_coded_refusal(palyra: Palyra, workspace: Path, options) -> None:
    with pytest.raises(Rejected) as refusal:
        palyra.run(**{"principal": "agent:probe", "workspace": workspace, **options})
    assert refusal.value.reason is Reason.BAD_ARGUMENTS


@pytest.mark.parametrize(
    "options",
    [
        {"executables": "ls"},
        {"executables": (7,)},
        {"read_roots": "/usr"},
        {"hosts": "example.com"},
        {"env": {"A": 7}},
        {"env": {7: "A"}},
        {"tier": "x"},
        {"egress": "x"},
    ],
)
def test_an_odd_grant_is_a_coded_refusal(options) -> None:
    with pytest.raises(Rejected) as refusal:
        grant(**options)
    assert refusal.value.reason is Reason.BAD_ARGUMENTS


def test_cancelling_what_is_no_id_finds_nothing(palyra: Palyra, workspace: Path) -> None:
    run = palyra.run("agent:probe", workspace)
    assert [run._run.cancel(value) for value in (7, None, ["x"])] == [False] * 3
