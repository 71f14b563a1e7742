"""A shell's line is read as programs only where it cannot be anything else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.protocol.shell_line import programs_of


def words(line: str) -> list[list[str]] | None:
    found = programs_of(line)
    return None if found is None else [list(program.words) for program in found]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("git status", [["git", "status"]]),
        ("git commit -m 'a message; with $signs'", [["git", "commit", "-m", "a message; with $signs"]]),
        ('grep "two words" a.txt | wc -l', [["grep", "two words", "a.txt"], ["wc", "-l"]]),
        ("a && b || c ; d\ne", [["a"], ["b"], ["c"], ["d"], ["e"]]),
        ("ls 2>/dev/null >/dev/null 2>&1", [["ls"]]),
        ("make --jobs=2 2>&1 | tail -5", [["make", "--jobs=2"], ["tail", "-5"]]),
        ("echo 'it'\"s\" '' é", [["echo", "its", "", "é"]]),
    ],
)
def test_plain_lines_are_the_programs_in_them(line, expected):
    assert words(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "echo $HOME", "echo `id`", "echo $(id)", "ls *.py", "ls ?", "ls [ab]", "echo {a,b}", "(id)", "{ id; }",
        "id > out", "id >> out", "cat < in", "cat <<EOF", "id &", "id & id", "! id", "# comment", "a # b", "~/x",
        "ls ~", "X=1 id", "a\\ b", 'echo "$x"', 'echo "`id`"', 'echo "a\\"b"', "echo 'open", 'echo "open',
        "if true; then id; fi", "for x in 1; do id; done", "eval id", "exec id", "source x", ". x", "export A=1",
        "command id", "trap id EXIT", "id >/dev/null/../../etc/x", "id 2>/dev/nullx", "", "   ", ";", "ls >&2",
        "ls &>out", "a\rb", "a\u00a0b", "a\x00b", "time id", "coproc id", "=x", "'' x", "x" * 70_000,
        "cat ^x", "cat a^b", "ls | cat ^x", "cat =ls",
    ],
)  # fmt: skip
def test_whatever_a_shell_would_expand_or_obey_is_code(line):
    assert programs_of(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "printf -v PATH ./bin && ls", "printf -vPATH ./bin", "printf %n PATH",
        "printf -- '%5s%-3n' x PATH", "printf -v 'a[$(id)]' x", "test -v 'a[$(id)]'",
        "test -R x", "test 'a[$(id)]' -eq 1", "printf %d 'path[1]=5'", "printf '%d' '`id`'", "test 'path[1]=5' -eq 5",
        "hash -p ./x ls", "enable -f ./x ls", "shopt -s expand_aliases", "typeset PATH", "mapfile -C id x", "type ls",
        "test CDPATH++ -eq 0 && cd docs", "test 1 -lt --CDPATH", "printf %d CDPATH++", "printf '%s %d' x 'CDPATH --'",
    ],
)  # fmt: skip
def test_what_a_shell_does_itself_under_a_programs_name_is_code(line):
    assert programs_of(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "printf '%s=$5 [x]\n' a b", "printf '%-5s %03d 100%%' a 1", "test -f x", "test a = b", "test 1 -eq 2",
        "printf a",
        "printf '%s' '--- a title ---'", "printf %d -- -5", "test -- = --x", "git show HEAD^", "git log HEAD^^2..x",
        "grep '^x' f", "tail -n +5 f", "dd if=a",
    ],
)  # fmt: skip
def test_the_shells_own_printf_and_test_stay_usable(line):
    assert programs_of(line) is not None


@pytest.mark.parametrize("blank", ["\xa0", "\x0b", "\x0c", "\x1c", "\x85", "\u2003", "\u3000", "\r", "\n"])
def test_a_blank_that_is_none_to_a_shell_makes_a_file_of_the_repository_no_dev_null(blank: str, tmp_path: Path) -> None:
    """`\xa0/dev/null` is a link that a repository brought: the line wrote wherever it leads, with a plain yes."""
    for mark in (">", "1>", "2>", "&>"):
        assert programs_of(f"echo mine {mark}{blank}/dev/null") is None
    assert programs_of(f"echo mine >/dev/null{blank}x") is None or blank == "\n"
    if blank != "\n":
        (tmp_path / blank / "dev").mkdir(parents=True)
        (tmp_path / blank / "dev" / "null").symlink_to("../../theirs")
        subprocess.run(["bash", "-c", f"echo mine >{blank}/dev/null"], cwd=tmp_path, check=True)
        assert (tmp_path / "theirs").read_text() == "mine\n"


@given(st.text(max_size=40))
def test_no_line_makes_the_reader_fail_or_loop(line):
    programs_of(line)


ALPHABET = st.sampled_from(list("ab-/.=' \";|&\n>2$`\\*~#(){}!?[]1é"))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(ALPHABET, max_size=14).map("".join))
def test_what_is_read_as_words_is_what_bash_reads(line):
    """For single commands: bash itself is asked what the words are."""
    found = programs_of(line)
    if found is None or len(found) != 1 or "/dev/null" in line or ">" in line:
        return
    script = f"show() {{ printf '%s\\0' \"$@\"; }}\nshow {line}"
    shown = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, timeout=10)
    assert shown.stdout.decode().split("\0")[:-1] == list(found[0].words)
