"""The house stands: storeys, knots, purity, sizes. And the tool that says so notices each way to break a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

import house

PROJECT = Path(__file__).parents[2]
STOREYS = "cli;= journal.store launch;= journal policy;model"


def build(root: Path, **files: str) -> Path:
    """A package in `root`; a name `journal__store` becomes journal/store.py, each file opens with a docstring."""
    package = root / "toy"
    for name, body in files.items():
        path = package.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'"""A room."""\n{body}\n', encoding="utf-8")
    for folder in [package, *(p for p in package.rglob("*") if p.is_dir())]:
        (folder / "__init__.py").touch()
    return package


def judge(package: Path, *arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    code = house.main([str(package), "--layers", f".;{STOREYS}", "--quiet", *arguments])
    lines = capsys.readouterr().out.splitlines()
    return code, [line.removeprefix("  ✗ ") for line in lines if line.startswith("  ✗ ")]


def test_the_house_of_palyra_stands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(PROJECT)
    code = house.main(["@tools/house.args", "--quiet"])
    assert (capsys.readouterr().out.splitlines(), code) == (["rules broken: 0"], 0)


def test_a_sound_house_has_nothing_broken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = build(tmp_path, model="", journal__chain="import toy.model", journal__store="import toy.journal.chain")
    assert judge(package, "--pure", "model,journal.*,!*.store", capsys=capsys) == (0, [])


@pytest.mark.parametrize(
    ("files", "finding"),
    [
        ({"model": "import toy.cli", "cli": ""}, "toy.model reaches up to toy.cli (run)"),
        ({"policy": "import toy.journal", "journal__chain": ""}, "toy.policy reaches across to toy.journal (run)"),
        ({"policy": "def f():\n import toy.cli", "cli": ""}, "toy.policy reaches up to toy.cli (lazy)"),
        ({"attic": ""}, "no storey: attic is not named in the layers"),
        ({"model": "import time\ntime.time()"}, "not pure: model uses time.time"),
        ({"model": "import time as t\nt.time()"}, "not pure: model uses time as t"),
        ({"model": "import subprocess"}, "not pure: model uses subprocess"),
        ({"model": "open('x')"}, "not pure: model uses open()"),
        ({"model": "from os import environ"}, "not pure: model uses os.environ"),
        ({"model": "import sys\nsys.platform"}, "not pure: model uses sys.platform"),
        ({"model": "import toy.clock", "clock": "import pty"}, "not pure: model uses pty (through clock)"),
        ({"model": "x = 1\n" * 40}, "too long: model 42 lines"),
        ({"model": "def f():\n" + " x = 1\n" * 25}, "too long: model.f 26 lines"),
    ],
)
def test_a_broken_rule_is_named(
    files: dict[str, str], finding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = build(tmp_path, **files)
    limits = ["--pure", "model", "--max-file", "40", "--max-func", "25"]
    code, findings = judge(package, *limits, capsys=capsys)
    assert code == 1
    assert finding in findings


def test_modules_that_import_each_other_are_a_knot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = build(tmp_path, journal__chain="import toy.journal.audit", journal__audit="import toy.journal.chain")
    assert judge(package, capsys=capsys) == (1, ["knot: journal.audit journal.chain import each other"])


def test_an_import_for_types_alone_leans_on_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import toy.cli"
    assert judge(build(tmp_path, model=body, cli=""), capsys=capsys) == (0, [])


def test_a_module_without_a_docstring_is_named_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = build(tmp_path, model="")
    (package / "model.py").write_text("x = 1\n", encoding="utf-8")
    assert judge(package, "--documented", capsys=capsys) == (1, ["no docstring: model"])


def test_a_file_that_is_not_python_fails_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = build(tmp_path, model="def")
    code, findings = judge(package, capsys=capsys)
    assert (code, findings) == (1, [f"not Python: {package}/model.py:2: invalid syntax"])
