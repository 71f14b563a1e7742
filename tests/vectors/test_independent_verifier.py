"""examples/independent_verifier.py: written from the specification, it accepts what Palyra makes and nothing else."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palyra.journal.export import Shown, export_lines, selection_lines
from palyra.journal.merkle import Frontier
from palyra.journal.proof import make_proof
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
        with pytest.raises(AssertionError):
            check(str(path), found["vkey"])


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
    made.writer.close()
