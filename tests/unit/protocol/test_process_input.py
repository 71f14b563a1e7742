"""palyra.process.run's input: the caps of the contract, and hints for the usual mistakes."""

from __future__ import annotations

import pytest

from palyra.errors import Reason, Rejected
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.process_input import ProcessInput, check_process_input
from palyra.protocol.registry import make_registry
from palyra.protocol.schema import check_arguments

TOOL = make_registry(BUILTIN_TOOLS).get("palyra.process.run")


def check(value) -> ProcessInput:
    check_arguments(TOOL.input_schema, value)
    return check_process_input(value)


def refused(value) -> Rejected:
    with pytest.raises(Rejected) as caught:
        check(value)
    assert caught.value.reason is Reason.BAD_ARGUMENTS
    return caught.value


def test_a_whole_input_becomes_a_value():
    value = {
        "command": "git", "args": ["log", ""], "cwd": "src", "env": {"TZ": "UTC", "CI": "1"}, "stdin": "é",
        "timeout_ms": 5, "requested_egress_hosts": ["a.example"],
    }  # fmt: skip
    check_arguments(TOOL.input_schema, value)
    assert check_process_input(value) == ProcessInput(
        command="git",
        args=("log", ""),
        cwd="src",
        env=(("CI", "1"), ("TZ", "UTC")),
        stdin="é".encode(),
        timeout_ms=5,
        requested_egress_hosts=("a.example",),
    )


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"command": ""},
        {"command": 1},
        {"command": "x" * 257},
        {"command": "é" * 129},
        {"command": "ls\0"},
        {"command": "ls", "args": ["x"] * 129},
        {"command": "ls", "args": ["x" * (128 << 10)]},
        {"command": "ls", "args": ["é" * (64 << 10)]},
        {"command": "ls", "args": ["a\0b"]},
        {"command": "ls", "args": "x"},
        {"command": "ls", "env": {"A-B": "1"}},
        {"command": "ls", "env": {f"K{n}": "" for n in range(33)}},
        {"command": "ls", "env": {"K" * 129: ""}},
        {"command": "ls", "env": {"K": "x" * 4097}},
        {"command": "ls", "stdin": "x" * 65537},
        {"command": "ls", "timeout_ms": 0},
        {"command": "ls", "timeout_ms": 1.0},
        {"command": "ls", "timeout_ms": True},
        {"command": "ls", "requested_egress_hosts": ["h"] * 65},
        {"command": "ls", "background": True, "surprise": 1},
        {"command": "\tls"},
        {"command": "/bin/ls"},
        {"command": "..\\ls"},
    ],
)
def test_what_is_outside_the_contract_is_refused(value):
    assert refused(value).hint


def test_a_command_line_in_command_gets_a_hint_with_the_split_form():
    assert 'command="ls", args=["-la", "src"]' in (refused({"command": "ls -la src"}).hint or "")


def test_the_largest_allowed_input_is_accepted():
    value = {"command": "c" * 256, "args": ["a" * 4096] * 2 + ["b"] * 126, "stdin": "x" * 65536}
    check_arguments(TOOL.input_schema, value)
    check_process_input(value)


def test_several_errors_are_named_each_with_its_path():
    with pytest.raises(Rejected) as caught:
        check_arguments(TOOL.input_schema, {"command": 1, "args": [2, "x"], "timeout_ms": 2.5})
    assert {path for path, _ in caught.value.fields} == {"command", "args/0", "timeout_ms"}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"command": "./hello"}, 'command="bash", args=["-c", "./hello"]'),
        ({"command": ".venv/bin/pytest", "args": ["-q", "t_x"]}, 'args=["-c", ".venv/bin/pytest -q t_x"]'),
        ({"command": "bin/x", "args": ["a b;c"]}, 'command="bash", args=["-c", "bin/x …"]'),
        ({"command": "bin/x\"\x1b", "args": []}, 'args=["-c", "bin/x??"]'),
    ],
)  # fmt: skip
def test_a_program_of_the_workspace_gets_a_line_that_runs_it(value, told):
    assert told in refused(value).hint


def test_a_program_of_the_system_by_its_path_is_told_its_name():
    assert refused({"command": "/usr/bin/git"}).hint == (
        'For an installed program use command="git"; its folder has to be in the setting path.'
    )


@pytest.mark.parametrize(
    ("word", "told"), [("cd", '"cwd": "FOLDER"'), ("export", '"env": {"KEY": "VALUE"}'), ("source", 'args=["-c", "…"]')]
)
def test_a_word_of_a_shell_is_no_program_and_its_hint_names_what_stands_in_for_it(word, told):
    error = refused({"command": word, "args": ["x"]})
    assert error.detail == f"{word} is a word of a shell's, and no program."
    assert told in error.hint
