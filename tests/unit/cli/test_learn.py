"""The command that `--learn` prints can be copied from a terminal and means the same arguments."""

from __future__ import annotations

import subprocess

from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.learn import shell_words


def test_plain_words_look_as_people_write_them():
    assert shell_words(["palyra", "run", "--read", "/opt/a b"]) == "palyra run --read '/opt/a b'"


def test_a_script_of_several_lines_stays_one_word_that_a_terminal_shows():
    assert shell_words(["-c", "print('a')\n\x1b[31m"]) == r"-c $'print(\'a\')\n\x1b[31m'"


@given(
    words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12), max_size=4)
)
def test_a_shell_reads_the_very_same_words_and_nothing_unseen_is_printed(words):
    spelled = shell_words(words)
    assert spelled.isprintable()
    read = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' x {spelled}"], check=True, capture_output=True, env={"LC_ALL": "C.UTF-8"}
    ).stdout
    assert read.decode().split("\0")[1:-1] == words
