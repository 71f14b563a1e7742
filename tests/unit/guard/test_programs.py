"""The tables of programs as promises: every interpreter's own way to take code on its command line is known."""

from __future__ import annotations

import pytest

from palyra.errors import Rejected
from palyra.guard.command import check_shape, classify
from palyra.guard.programs import normalise

INLINE = {
    "bash": "-c", "sh": "-c", "dash": "-c", "zsh": "-c", "fish": "-c", "ksh": "-c",
    "python": "-c", "python3": "-c", "pypy": "-c", "ipython": "-c", "micropython": "-c", "jython": "-c",
    "graalpy": "-c", "py": "-c", "perl": "-e", "ruby": "-e", "jruby": "-e", "mruby": "-e", "truffleruby": "-e",
    "julia": "-e", "raku": "-e", "node": "-e", "nodejs": "-p", "bun": "-e", "qjs": "-e", "lua": "-e", "luajit": "-e",
    "luau": "-e", "Rscript": "-e", "osascript": "-e", "groovy": "-e", "scala": "-e", "php": "-r", "phpdbg": "-r",
    "guile": "-c", "racket": "-e", "swipl": "-g",
}  # fmt: skip


@pytest.mark.parametrize(("program", "option"), INLINE.items())
def test_code_on_the_command_line_is_seen_whoever_interprets_it(program: str, option: str) -> None:
    seen = classify(program, [option, "print(1)"])
    assert (seen.interpreter or seen.runs_code, seen.inline_code) == (True, True)
    attached = classify(program, [f"{option}print(1)"])
    assert attached.interpreter or attached.runs_code


@pytest.mark.parametrize("word", ["--eval", "--exec", "--command", "--execute", "--print"])
def test_the_long_ways_are_known_for_all(word: str) -> None:
    assert classify("node", [word, "1"]).inline_code
    assert classify("python3", [word, "1"]).inline_code


def test_a_folder_in_front_changes_no_name() -> None:
    assert normalise("/opt/tools/bin/python3") == normalise("C:\\tools\\python3.exe") == "python"


@pytest.mark.parametrize(("command", "args", "where"), [("l\0s", (), "command"), ("ls", ("-l", "a\0b"), "args.1")])
def test_a_nul_is_refused_where_it_stands(command: str, args: tuple[str, ...], where: str) -> None:
    with pytest.raises(Rejected) as refused:
        check_shape(command, args)
    assert refused.value.fields == ((where, "holds a NUL byte"),)
