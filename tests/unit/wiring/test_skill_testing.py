"""Recorded inputs run as a call is: what differs is shown, and the world is only what was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from palyra.signing import SigningKey
from palyra.skills.languages import Language
from palyra.skills.project import ProjectError
from palyra.skills.recorded import Verdict
from palyra.wiring.skill_bench import Bench, try_project
from palyra.wiring.skill_building import build_project
from tests.authoring import at_the_bench, new_project, place_files

KEY = SigningKey.from_seed(bytes(range(32)))
ECHO = new_project("acme.echo", Language.WAT)


def tried(tmp_path: Path, files: Mapping[str, str], **cases: Any) -> dict[str, Verdict]:
    own = {path: text for path, text in files.items() if not path.startswith("tests/")}
    folder = place_files(
        tmp_path / "project", own | {f"tests/{name}.json": json.dumps(case) for name, case in cases.items()}
    )

    async def work(bench: Bench) -> tuple[Verdict, ...]:
        await build_project(folder, bench.workshop, lambda publisher: KEY, at_unix_ms=1)
        return (await try_project(folder, bench))[1]

    return {verdict.name: verdict for verdict in at_the_bench(tmp_path / "home", work)}


def test_a_difference_is_found_and_shown(tmp_path: Path) -> None:
    found = tried(
        tmp_path,
        ECHO,
        good={"input": {"a": [1, 2.5]}, "expect": {"exit_code": 0, "result": {"a": [1, 2.5]}}},
        wrong={"input": {"a": 1}, "expect": {"result": {"a": 2}}},
        refused={"input": [1], "expect": {"status": "refused", "reason": "BAD_ARGUMENTS"}},
    )
    assert {name: verdict.passed for name, verdict in found.items()} == {"good": True, "refused": True, "wrong": False}
    assert '-    "a": 2' in found["wrong"].diff
    assert '+    "a": 1' in found["wrong"].diff


LOOP = """(module (memory (export "memory") 1)
  (func (export "run") (result i32) (loop $again (br $again)) (i32.const 0)))"""


def test_the_limits_are_those_of_the_manifest(tmp_path: Path) -> None:
    text = ECHO["skill.toml"].replace("fuel_budget = 10000000", "fuel_budget = 12345")
    assert text != ECHO["skill.toml"]
    found = tried(
        tmp_path,
        {**ECHO, "src/main.wat": LOOP, "skill.toml": text},
        spent={"input": {}, "expect": {"status": "out_of_fuel", "message": "The guest used up its fuel of 12345."}},
    )
    assert found["spent"].passed, found["spent"].diff


STORES = """(module
  (import "palyra:plugins/host@0.1.0" "storage-handle" (func $handle (param i32) (result i32)))
  (import "palyra:plugins/host@0.1.0" "storage-put" (func $put (param i32 i32 i32 i32 i32) (result i32)))
  (import "palyra:plugins/host@0.1.0" "http-fetch" (func $fetch (param i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "key")
  (data (i32.const 16) "{\\"path\\":\\"/x\\"}")
  (func (export "run") (result i32)
    (drop (call $fetch (i32.const 10000) (i32.const 16) (i32.const 13)))
    (call $put (call $handle (i32.const 0)) (i32.const 0) (i32.const 3) (i32.const 0) (i32.const 3))))"""
GRANTED = '[capabilities]\nhttp_egress_allowlist = ["api.example.com"]\nfilesystem = { write_roots = ["kept"] }\n'


def test_the_world_is_what_was_recorded_and_nothing_else(tmp_path: Path) -> None:
    files = {**ECHO, "src/main.wat": STORES, "skill.toml": ECHO["skill.toml"].replace("[capabilities]\n", GRANTED)}
    exchange = {"host": "api.example.com", "request": {"path": "/x"}, "answer": {"body": "hi"}}
    kept = {"storage": {"kept/old": "1"}, "storage_after": {"kept/key": "key", "kept/old": "1"}}
    found = tried(
        tmp_path,
        files,
        whole={"input": {}, "http": [exchange], **kept, "expect": {"exit_code": 0}},
        unasked={"input": {}, "expect": {"exit_code": 0}},
        other={"input": {}, "http": [{**exchange, "request": {"path": "/y"}}], "expect": {"exit_code": 0}},
        unmade={"input": {}, "http": [exchange, exchange], "expect": {"exit_code": 0}},
    )
    assert {name for name, verdict in found.items() if verdict.passed} == {"whole"}, found
    assert found["unasked"].diff == '! request 1 to api.example.com: {"path": "/x"}'
    assert found["unmade"].diff == "! 1 recorded requests were not made"


def test_what_was_not_built_is_not_tried(tmp_path: Path) -> None:
    folder = place_files(tmp_path / "project", ECHO)

    async def work(bench: Bench) -> object:
        return await try_project(folder, bench)

    with pytest.raises(ProjectError) as error:
        at_the_bench(tmp_path / "home", work)
    assert error.value.hint == f"Build it first: palyra skills build {folder}"
