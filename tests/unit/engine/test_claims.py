"""What calls claim of a workspace: their class, refined by what they would really do."""

from __future__ import annotations

import asyncio

import pytest

from palyra.engine.claims import NOTHING, READING, WHOLE, Claim, claim_of
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import fake_ports, fake_run


def claim(tool: str, input: dict) -> Claim:
    ports = fake_ports()
    request = CallRequest(tool=tool, input=input, run=fake_run())
    trip, _ = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).assess(request))
    return claim_of(trip)


def process(command: str, *args: str) -> Claim:
    return claim("palyra.process.run", {"command": command, "args": list(args)})


def test_tools_that_touch_no_files_claim_nothing():
    assert claim("palyra.echo", {}) == NOTHING
    assert claim("palyra.process.list", {}) == NOTHING


def test_a_program_that_only_reads_claims_the_paths_it_names():
    named = process("cat", "a/b")
    assert named.writes == ()
    assert all(path.endswith("/a/b") for path in named.reads)
    assert process("ls").reads != ()


@pytest.mark.parametrize("words", [("sort", "-o", "x", "y"), ("git", "status"), ("find", ".", "-delete"), ("tee", "x")])
def test_a_program_that_could_write_claims_everything(words):
    assert process(*words) == WHOLE


@pytest.mark.parametrize("words", [("python3", "x.py"), ("env", "bash"), ("xargs", "cat")])
def test_whatever_can_run_code_claims_everything(words):
    assert process(*words) == WHOLE


def test_a_background_process_claims_everything():
    assert claim("palyra.process.run", {"command": "sleep", "args": ["9"], "background": True}) == WHOLE


def test_file_tools_claim_their_own_path():
    assert claim("palyra.fs.write", {"path": "x", "text": ""}).writes != WHOLE.writes
    assert claim("palyra.fs.read", {"path": "x"}).writes == ()
    assert claim("palyra.fs.apply_patch", {"patch": "x"}) == WHOLE


def test_a_folder_meets_what_is_below_it_and_no_namesake():
    folder, below, namesake = Claim(writes=("/ws/a",)), Claim(reads=("/ws/a/b",)), Claim(reads=("/ws/ab",))
    assert folder.conflicts(below)
    assert below.conflicts(folder)
    assert not folder.conflicts(namesake)
    assert not below.conflicts(below)
    assert READING.conflicts(folder)
    assert WHOLE.conflicts(READING)
