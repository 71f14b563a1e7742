"""A name with a colon can be a file on another machine: who opens one starts a remote shell."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.guard import remote
from palyra.guard.command import Classification, classify
from palyra.guard.programs import REACHES

SHELLS = """
tar -cf h:a f
tar -c -f h:a f
tar -cfh:a f
tar cf h:a f
tar cCf d h:a f
tar cbf 20 h:a f
tar fc u@h:a f
tar cfT h:a --force-local f
tar --file=h:a -c f
tar --file h:a -c f
tar --fil=h:a -c f
tar -cf a -f h:b f
tar -f h:a -- --force-local
tar -f h:a --exclude --force-local -c f
tar -f h:a --rsh-command=ls -c f
tar -xvf [::1]:a
gtar -cf h:a f
star -c f=h:a f
star -c -f=h:a f
cpio -o -F h:a
cpio -oF h:a
cpio --file=h:a -i
cpio -i -I h:a
cpio -o -O u@h:a
mt -f h:/dev/st0 status
mt --file=h:/dev/st0 status
mt -t h:/dev/st0 status
dump -0f h:a /
dump 0f h:a /
restore -rf h:a
xfsdump -f h:/dev/st0 /
xargs tar -xf h:a
env TAPE=h:a tar -c f
"""
COPIES = """
rsync a h:b
rsync u@h:a b
rsync -a [::1]:a b
rsync u@[fe80::1]:a b
rsync -a --delete src/ h:dst/
scp a h:b
scp u@h:a .
scp scp://u@h/a .
scp -3 h:a i:b
sshfs h:a b
"""
PLAIN = """
tar -cf a.tar f
tar -cf ./h:a f
tar -cf /w/h:a f
tar -cf dir/h:a f
tar -cf :a f
tar --force-local -cf h:a f
tar -cf a.tar b:c
tar cf a.tar b:c
tar cvbf 20 a.tar b:c
tar --exclude=x:y -cf a.tar f
tar --files-from=x:y -cf a.tar
tar -T x:y -cf a.tar
tar -tf 2026-01-01.tar
bsdtar -cf h:a f
cpio -o -F a
mt -f /dev/st0 status
rsync a b
rsync -a h::module/a b
rsync rsync://h/module b
rsync ./h:a b
scp a b
scp ./h:a b
"""


def read(line: str) -> Classification:
    command, *args = shlex.split(line)
    return classify(command, args)


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("line", lines(SHELLS))
def test_an_archive_on_another_machine_is_reached_by_running_something(line: str) -> None:
    found = read(line)
    assert (found.runs_code, bool(found.why)) == (True, True)


@pytest.mark.parametrize("line", lines(COPIES))
def test_what_copies_to_another_machine_starts_ssh_which_must_be_allowed_too(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.also, found.runs_code) == ("ssh", ("ssh",), False)


@pytest.mark.parametrize("line", lines(PLAIN))
def test_files_of_this_machine_are_opened_by_nobody_else(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.also, found.runs_code) == (found.program, (), False)


def test_the_refusal_says_what_would_make_it_plain() -> None:
    assert read("tar -cf 12:30.tar f").why == (
        "tar takes 12:30.tar for a file on another machine and starts a remote shell (./12:30.tar is one here)"
    )


def test_each_of_them_is_known_by_name() -> None:
    assert {*remote.ARCHIVERS, *remote.COPIERS, *remote.ALWAYS} == REACHES


def test_names_that_nobody_has_seen_are_not_given_to_it() -> None:
    assert read("xargs mt -f").runs_code
    assert read("xargs sshfs").runs_code


WORDS = st.sampled_from("c f cf -c -f -cf -b 20 x --file -T list -v --verbose -- --force-local -C dir".split())


@given(st.lists(WORDS, max_size=5), st.lists(WORDS, max_size=3))
def test_wherever_a_remote_archive_stands_behind_its_option_it_is_found(before: list[str], after: list[str]) -> None:
    """A superset is fine, a miss is not: only the first word can make it local."""
    args = [*before, "--file=h:a", *after]
    assert classify("tar", args).runs_code == (args[0] != "--force-local")
