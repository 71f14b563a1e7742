"""examples/independent_verifier.py: written from the specification, it accepts what Palyra makes and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.journal.export import Shown, export_lines, selection_lines
from palyra.journal.merkle import Frontier
from palyra.journal.proof import check_proof, make_proof
from palyra.signing import parse_vkey
from palyra.state.rotation import rotate_key
from tests.journaling import NOW, many_acts
from tests.unit.journal.evidence import make_evidence

FOLDER = Path(__file__).parent
PROGRAM = FOLDER.parents[1] / "examples" / "independent_verifier.py"


@pytest.fixture(scope="module")
def check() -> Callable[[str, str], str]:
    spec = importlib.util.spec_from_file_location("independent_verifier", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    verify: Callable[[str, str], str] = module.main
    return verify


def vector(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return found


def test_it_is_short_and_shares_no_code_with_the_package() -> None:
    text = PROGRAM.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [node for node in imports if "palyra" in ast.dump(node)]


@pytest.mark.parametrize("name", ["export", "export_from_1", "selection", "proof"])
def test_it_accepts_the_vectors_and_notices_an_edit_anywhere_in_an_entry(check, tmp_path: Path, name: str) -> None:
    evidence = vector("evidence.json")
    path, text = tmp_path / "file", evidence[name]
    path.write_text(text)
    assert "journal" in check(str(path), evidence["vkey"])
    noticed = 0
    begin = text.index('"body"') + 9 if name == "proof" else text.index("\n")
    end = text.index('"proof": ') if name == "proof" else len(text)
    places = [found.start() for found in re.finditer(r"[0-9a-f]", text) if begin < found.start() < end][::37]
    for at in places:
        path.write_text(text[:at] + ("1" if text[at] != "1" else "2") + text[at + 1 :])
        with pytest.raises(Exception):  # noqa: B017, PT011  # whatever does not hold
            check(str(path), evidence["vkey"])
        noticed += 1
    assert noticed == len(places) > 10


def test_it_accepts_the_outcome_and_no_other(check, tmp_path: Path) -> None:
    found = vector("attestation.json")
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(found["outcome"]))
    assert "is attested" in check(str(path), found["vkey"])
    for name, value in (("status", "refused"), ("output", {}), ("success", False), ("tool", "palyra.echo")):
        path.write_text(json.dumps(found["outcome"] | {name: value}))
        with pytest.raises(ValueError, match="does not hold"):
            check(str(path), found["vkey"])


OUTCOMES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "1 for true": lambda one: one | {"success": 1},
    "another place": lambda one: one | {"receipt": one["receipt"] | {"index": 7}},
    "a larger tree": lambda one: one | {"receipt": one["receipt"] | {"tree_size": one["receipt"]["tree_size"] + 1}},
    "true for 1": lambda one: one | {"receipt": one["receipt"] | {"index": one["receipt"]["index"] == 1}},
    "a field of nobody's": lambda one: one | {"verdict": "approved"},
    "a field less": lambda one: {name: value for name, value in one.items() if name != "budget"},
    "a place before the first": lambda one: one | {"receipt": one["receipt"] | {"index": -1}},
    "another key's name": lambda one: one
    | {"attestation": one["attestation"] | {"envelope": one["attestation"]["envelope"] | {"signatures": [
        one["attestation"]["envelope"]["signatures"][0] | {"keyid": "0" * 16}]}}},
}  # fmt: skip


@pytest.mark.parametrize("what", OUTCOMES)
def test_it_takes_no_outcome_that_palyra_would_not(check, tmp_path: Path, what: str) -> None:
    found = vector("attestation.json")
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(OUTCOMES[what](found["outcome"])))
    with pytest.raises(ValueError, match="does not hold"):
        check(str(path), found["vkey"])


def test_it_takes_no_second_line_behind_an_outcome(check, tmp_path: Path) -> None:
    """Which of two outcomes in one file was the attested one, a reader could not tell."""
    found = vector("attestation.json")
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(found["outcome"]) + "\n" + json.dumps(found["outcome"] | {"status": "refused"}) + "\n")
    with pytest.raises(ValueError, match="does not hold"):
        check(str(path), found["vkey"])


@pytest.mark.parametrize(
    "line",
    ["- other AAAA\n", "— other AAAA\n" * 32, "— oth\ver AAAA\n", f"— {'o' * 70_000} AAAA\n", "— \ud800 AAAA\n"],
    ids=["another dash", "too many", "control", "too long", "no text"],
)
def test_it_takes_no_lines_under_a_checkpoint_that_palyra_would_not(check, tmp_path: Path, line: str) -> None:
    """Whoever hands a file on adds lines that nobody signed: what one reader refuses, the other passed over."""
    evidence = vector("evidence.json")
    proof, path = json.loads(evidence["proof"]), tmp_path / "file"
    for added, is_taken in (("— other AAAA\n", True), (line, False)):
        changed = proof | {"checkpoint": proof["checkpoint"] + added}
        assert (check_proof(changed, parse_vkey(evidence["vkey"])) == ()) is is_taken
        path.write_text(json.dumps(changed))
        if is_taken:
            check(str(path), evidence["vkey"])
            continue
        with pytest.raises(ValueError, match=r"does not hold|surrogates"):
            check(str(path), evidence["vkey"])


@pytest.mark.parametrize("name", ["export", "export_from_1", "selection", "proof"])
def test_it_takes_no_field_that_is_not_in_its_table_and_no_other_spelling_of_a_number(
    check, tmp_path: Path, name: str
) -> None:
    evidence = vector("evidence.json")
    path, (first, *lines) = tmp_path / "file", evidence[name].split("\n")
    header = json.loads("\n".join([first, *lines]) if name == "proof" else first)
    rest = [] if name == "proof" else lines

    def refused(changed: dict[str, Any]) -> None:
        path.write_text("\n".join([json.dumps(changed), *rest]))
        with pytest.raises(ValueError, match=r"does not hold|zip"):
            check(str(path), evidence["vkey"])

    refused(header | {"first_": 0})
    refused({key: value for key, value in header.items() if key != "keys"})
    if name == "proof":
        refused(header | {"receipt": header["receipt"] | {"index": 0}})
        refused(header | {"entries": [entry | {"sequence": 0} for entry in header["entries"]]})
    else:
        refused(header | {"first": header["first"] + 1})
        if header["first"] in (0, 1):
            refused(header | {"first": bool(header["first"])})


def test_it_takes_no_key_twice(check, tmp_path: Path) -> None:
    found = vector("attestation.json")
    path = tmp_path / "outcome.json"
    path.write_text('{"status":"refused",' + json.dumps(found["outcome"])[1:])
    with pytest.raises(ValueError, match="no key stands twice"):
        check(str(path), found["vkey"])


@pytest.mark.parametrize("left", [[], [1], [0, 0], [1, 0]])
def test_a_proof_of_nothing_or_of_half_a_call_proves_nothing(check, tmp_path: Path, left: list[int]) -> None:
    """It said that a call was in the journal where no entry of it was shown."""
    evidence = vector("evidence.json")
    proof = json.loads(evidence["proof"])
    proof["entries"] = [proof["entries"][at] for at in left]
    if not left:
        proof["call_id"] = "01HF7YAT09" + "0" * 16
    path = tmp_path / "proof.json"
    path.write_text(json.dumps(proof))
    with pytest.raises(ValueError, match="intent and its result"):
        check(str(path), evidence["vkey"])


def test_no_entry_is_shown_twice_by_a_selection(check, tmp_path: Path) -> None:
    evidence = vector("evidence.json")
    header, *bodies, _, _ = evidence["selection"].split("\n")
    said = json.loads(header)
    twice = said | {name: said[name] * 2 for name in ("indices", "proofs")} | {"count": 2 * said["count"]}
    end = json.dumps({"end": True, "count": twice["count"]}, separators=(",", ":"))
    path = tmp_path / "selection.jsonl"
    path.write_text("\n".join([json.dumps(twice), *bodies, *bodies, end, ""]))
    with pytest.raises(ValueError, match="no entry stands twice"):
        check(str(path), evidence["vkey"])


def test_what_stands_behind_the_end_of_an_export_is_noticed(check, tmp_path: Path) -> None:
    evidence = vector("evidence.json")
    path = tmp_path / "export.jsonl"
    path.write_text(evidence["export"] + "more")
    with pytest.raises(ValueError, match="none is too many"):
        check(str(path), evidence["vkey"])


def test_it_checks_as_much_when_python_optimises(tmp_path: Path) -> None:
    """python -O leaves assertions out: with them everything verified."""
    found = vector("attestation.json")
    path = tmp_path / "outcome.json"
    path.write_text(json.dumps(found["outcome"] | {"status": "refused"}))
    done = subprocess.run([sys.executable, "-O", PROGRAM, path, found["vkey"]], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, b"")


def test_it_follows_a_change_of_keys(check, home: Path, tmp_path: Path) -> None:
    made = make_evidence(home)
    for _ in range(2):
        rotate_key(made.writer, actor="user:operator", at_unix_ms=NOW)
        many_acts(made.writer, 3)
    head, links = made.head, made.tree.links(made.keys)
    entries = made.lookup.by_call(made.calls[0])
    shown = [Shown(entry.index, entry.body, made.tree.inclusion(entry.index, head)) for entry in entries]
    proof = make_proof(made.calls[0], entries, head, tree=made.tree, keys=made.keys)
    files = {
        "export": b"".join(export_lines(made.bodies(), head, begin=Frontier(), links=links)),
        "selection": b"".join(selection_lines(shown, head, links=links)),
        "proof": json.dumps(proof).encode(),
    }
    keys = [*(handover.old.vkey for handover in made.keys.handovers), made.keys.newest.vkey]
    for data in files.values():
        (tmp_path / "file").write_bytes(data)
        for vkey in keys:
            assert check(str(tmp_path / "file"), vkey)
    more = {**proof, "keys": [links[0] | {"approved": True}, *links[1:]]}
    (tmp_path / "file").write_text(json.dumps(more))
    with pytest.raises(ValueError, match="does not hold"):
        check(str(tmp_path / "file"), keys[0])
    made.writer.close()
