"""Wrappers count as what they run, scripts as their interpreter, and what cannot be told counts as code."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected
from palyra.guard.command import (
    Classification,
    check_shape,
    classify,
    is_broad_kill,
    is_interpreter,
    normalise,
    shebang_program,
)
from tests.promises import promise


def read(line: str) -> Classification:
    command, *args = shlex.split(line)
    return classify(command, args)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("/usr/bin/Python3.12.EXE", "python"), ("C:\\tools\\cmd.exe", "cmd"), ("perl5.36.0", "perl"),
        ("perl5.36-x86_64-linux-gnu", "perl"), ("node20", "node"), ("lua5.4", "lua"), ("php8.2", "php"),
        ("ruby3.1", "ruby"), ("pip3.11", "pip"), ("python3.13t", "python"), ("tclsh8.6", "tclsh"), ("gcc-12", "gcc"),
        ("npm.cmd", "npm"), ("vim.basic", "vim"), ("ksh93", "ksh"), ("base64", "base64"), ("sha256sum", "sha256sum"),
        ("x86_64-linux-gnu-gcc-12", "gcc"), ("i686-w64-mingw32-g++", "g++"), ("arm-none-eabi-ld", "ld"),
        ("clang-format", "clang-format"), ("llvm-as", "llvm-as"), ("save-as", "save-as"), ("git-lfs", "git-lfs"),
        ("bzip2", "bzip2"), ("r2", "r2"), ("x86_64", "x86_64"), ("python-config", "python-config"),
    ],
)  # fmt: skip
def test_a_name_is_known_without_folder_case_ending_and_version(name, known):
    assert normalise(name) == known


@promise("commands.interpreters")
@pytest.mark.parametrize(
    "name",
    """bash sh dash zsh fish ksh csh tcsh busybox cmd powershell pwsh python3 python3.12 pypy3 node nodejs deno bun ruby
    perl php lua luajit tclsh R Rscript julia osascript awk gawk mawk java m4 ld-linux-x86-64.so.2
    ld-musl-x86_64.so.1""".split(),
)
def test_every_interpreter_is_known(name):
    assert is_interpreter(name)
    found = classify(name, ["x"])
    assert (found.interpreter, found.runs_code) == (True, True)


@pytest.mark.parametrize(
    "line",
    [
        "ls -la", "cat a", "cp a b", "grep -r x .", "sed -n p f", "sed s/a/b/g f", "sed -i -e s/x/y/ f", "tee f",
        "dd if=a",
        "git status", "git log --oneline", "git diff --stat", "git --version", "git show HEAD", "git add .",
        "git ls-files",
        "git rev-parse HEAD", "git init", "git branch -a", "git config --get user.name", "git config user.name x",
        "git commit -m x", "git -C . status", "git checkout -b x", "git merge x", "git -c user.name=x commit -m y",
        "git -c core.pager=cat log", "git log -S std::vector", "git grep std::x", "git push origin main", "git stash",
        "tar -czf a.tgz b", "tar cf a b", "tar --checkpoint=100 -cf a b", "tar --checkpoint-action=dot -cf a b",
        "tar -xfI.tar", "sort -t, -k2 f", "rg -n x", "rg --pre-glob *.pdf x", "find . -name -x", "find . -delete",
        "zip -r a.zip b", "split -n 3 f", "ssh host ls", "scp a b", "rsync -av a b", "patch -p1 -i x.diff", "jq . f",
        "openssl sha256 f", "env", "xargs", "unknown-program --exec sh", "nice --version", "install -m 755 a b",
    ],
)  # fmt: skip
def test_plain_programs_do_not_count_as_running_code(line):
    found = read(line)
    assert (found.interpreter, found.runs_code, found.also) == (False, False, ())


@pytest.mark.parametrize(
    ("line", "effective", "also"),
    [
        ("timeout 5 ls", "ls", ("ls",)),
        ("nice -n 5 cat x", "cat", ("cat",)),
        ("nice -5 cat x", "cat", ("cat",)),
        ("env -i A=1 B=2 cp a b", "cp", ("cp",)),
        ("env - ls", "ls", ("ls",)),
        ("xargs -0 -n1 rm -f", "rm", ("rm",)),
        ("find . -exec rm {} ; -exec wc {} +", "rm", ("rm", "wc")),
        ("setarch x86_64 -R ls", "ls", ("ls",)),
        ("tar -I zstd -cf a b", "zstd", ("zstd",)),
        ("tar --use-compress-program=pigz -cf a b", "pigz", ("pigz",)),
        ("sort --compress-program=gzip f", "gzip", ("gzip",)),
        ("rsync -e ssh a b", "ssh", ("ssh",)),
        ("flock lock ls", "ls", ("ls",)),
        ("stdbuf -oL nohup timeout -s KILL 5 ls", "ls", ("nohup", "timeout", "ls")),
    ],
)
def test_a_wrapper_counts_as_the_plain_program_it_runs(line, effective, also):
    found = read(line)
    assert (found.effective_program, found.also, found.runs_code) == (effective, also, False)


@promise("commands.interpreters")
@pytest.mark.parametrize(
    ("line", "effective"),
    [
        ("env python3 -c x", "python"), ("env -S 'python3 -u' x", "python"), ("env -iS 'A=1 bash'", "bash"),
        ("env --split-string=bash", "bash"), ("env --spl='sh -c id'", "sh"), ("env -u X -C d bash", "bash"),
        ("env -S '-S bash'", "bash"), ("xargs sh -c id", "sh"), ("xargs -I{} sh {}", "sh"),
        ("nice bash", "bash"), ("nohup python3 x", "python"), ("timeout 5 sh", "sh"), ("timeout --sig KILL 5 sh", "sh"),
        ("time -p ruby x", "ruby"), ("stdbuf -o0 perl x", "perl"), ("setsid -w bash", "bash"),
        ("sudo -u x bash", "bash"),
        ("sudo -s", "sh"), ("sudo A=1 sh", "sh"), ("doas sh", "sh"), ("chroot / sh", "sh"), ("unshare -r sh", "sh"),
        ("nsenter -t 1 bash", "bash"), ("setarch -R", "sh"), ("linux64 bash", "bash"), ("ionice -c3 sh", "sh"),
        ("chrt -f 1 sh", "sh"), ("taskset -c 0 sh", "sh"), ("flock f sh", "sh"), ("flock f -c id", "sh"),
        ("flock -c id f", "sh"), ("watch sh", "sh"), ("script -c bash", "bash"), ("strace -f bash", "bash"),
        ("gdb --args python3 x", "python"), ("parallel bash", "bash"), ("prlimit --nofile=9 sh", "sh"),
        ("chrt -i bash cat", "bash"), ("chrt --other sh -c id", "sh"), ("chrt -i 0 bash", "bash"),
        ("find . -exec sh -c id ;", "sh"), ("find . -execdir python3 {} +", "python"), ("find . -ok bash ;", "bash"),
        ("find . -exec env timeout 5 nice perl -e x ;", "perl"), ("fd -x sh", "sh"), ("fd -Hx bash", "bash"),
        ("fd --exec-batch=sh", "sh"), ("busybox sh", "sh"), ("busybox ls", "ls"), ("busybox awk x", "awk"),
        ("git bisect run python3 t.py", "python"), ("git submodule foreach bash", "bash"),
        ("tar -I sh -xf a", "sh"), ("tar -xIsh -f a", "sh"), ("tar xIf sh a", "sh"),
        ("tar --use-comp='sh -c id' -xf a", "sh"),
        ("tar --to-command=id -xf a", "sh"), ("tar --to-c id -xf a", "sh"),
        ("tar --checkpoint-act=exec=sh -cf a b", "sh"),
        ("tar --checkpoint-action exec=id -cf a b", "sh"), ("tar -F x -cf a b", "sh"), ("tar --info-s x", "sh"),
        ("tar --new-vol=x", "sh"), ("tar --rsh-command=bash -xf a", "bash"), ("tar -I 'gzip;id' -cf a b", "sh"),
        ("sort --compress-prog=bash f", "bash"), ("rg --pre bash x", "bash"), ("rg --hostname-bin=sh x", "sh"),
        ("split --filter='sh -c id' f", "sh"), ("split --fil=id f", "sh"), ("rsync -ave 'sh -c x' a b", "sh"),
        ("rsync --rsh=bash a b", "bash"), ("zip -T -TT 'sh #' a b", "sh"), ("zip --unzip-com id a b", "sh"),
        ("ssh -oProxyCommand=id h", "sh"), ("ssh -o 'proxycommand id' h", "sh"), ("ssh -vo LocalCommand=id h", "sh"),
        ("scp -S bash a h:b", "bash"), ("sftp -D id h", "sh"), ("nc -e sh h 1", "sh"), ("nc -lvp 9 -e sh", "sh"),
        ("nc -le sh", "sh"), ("ncat --sh-exec id h", "sh"), ("install --strip-program=sh a b", "sh"),
        ("/lib64/ld-linux-x86-64.so.2 /bin/ls", "ld-linux-x86-64.so.2"), ("awk BEGIN{system()}", "awk"),
        ("rsync -e 'ssh -o ProxyCommand=id' a b", "sh"),
    ],
)  # fmt: skip
def test_wrapper_chains_to_an_interpreter_are_seen_through(line, effective):
    found = read(line)
    assert found.effective_program == effective
    assert (found.interpreter, found.runs_code) == (True, True)


@promise("commands.interpreters")
@pytest.mark.parametrize(
    "line",
    [
        "make", "cmake .", "ninja", "npm test", "npx x", "pip install x", "pytest", "cargo build", "go run .",
        "gradle x",
        "mvn x", "tox", "nox", "poetry run x", "uv run x", "yarn x", "pnpm x", "gcc -wrapper sh a.c",
        "vim f", "vi f", "ex f", "emacs f", "nano f", "less f", "more f", "man x", "ed f", "sqlite3 f", "psql",
        "docker run x",
        "git -c alias.x=!id x", "git -c core.sshCommand=id fetch", "git -c CORE.PAGER=id log", "git -ccore.editor=id x",
        "git --config-env=core.editor=X log", "git --exec-path=. status", "git my-alias", "git difftool", "git x",
        "git clone ext::id", "git fetch ext::id", "git remote add x ext::id", "git clone -u id x",
        "git clone --upload-p=id x",
        "git push --receive-pack=id", "git push --exe=id", "git fetch --upload-pack id o", "git ls-remote --exec=id x",
        "git rebase -x id", "git rebase --exec=id x", "git grep -Oid x", "git grep --open-files=id x", "git config -e",
        "git clone -c core.fsmonitor=id x y", "git clone --template=t x", "git init --template=t",
        "git config alias.x !id",
        "git config --add core.hooksPath x", "git clone ssh://-oProxyCommand=id/x", "git archive --remote=ext::id x",
        "git -c include.path=x status", "git -c protocol.ext.allow=always fetch", "git hook run x", "git help -w",
        "git --frobnicate status", "git filter-branch x", "git send-email x",
        "sed s/a/b/e f", "sed '1e id' f", "sed -e p -e 'e id' f", "sed --expression='1!e id' f", "sed -f s f",
        "sed --fi s f",
        "sed 'w out' f", "sed 's/a/b/w out' f", "sed -n '$W out' f", "sed 's/a/b/ e' f", "sed ':a e id' f",
        "sed 'y/a/b/;e id' f", "sed '/a/Ie id' f", "sed '\\,a,e id' f", "sed '0~3e id' f", "sed 's/[/]/x/;e id' f",
        "sed 'a x\\\\\\\ne id' f", "sed '{p;e id\n}' f", "sed 's,a,b,;s|c|d|e' f", "sed -n -- 'e id'",
        "sed p -e 'e id'",
        "xargs git", "xargs env", "xargs sed -i s/a/b/", "xargs -I{} {} x", "xargs --replace=X X", "xargs --frob rm",
        "find . -exec {} ;", "find . -exec ./x ;", "find . -exec timeout 5 env {} ;", "env ./ls", "env /bin/ls",
        "env PATH=. ls", "env LD_PRELOAD=x ls", "env --frob ls", "timeout --frob 5 ls", "timeout 5 ./ls",
        "env -S 'l$X'",
        "patch --ed x", "patch -e", "openssl engine x", "openssl req -engine x", "wget -e use_askpass=x h",
        "ssh -F x h",
        "wget --use-ask=./x h", "sftp -b x h", "gpg --agent-program=x", "nm --plugin x.so a", "tcpdump -z ./x",
    ],
)  # fmt: skip
def test_what_runs_code_counts_as_such(line):
    assert read(line).runs_code


def test_nesting_beyond_following_counts_as_code():
    found = classify("nice", ["nice"] * 30 + ["ls"])
    assert found.runs_code
    assert found.why == "wrappers are nested too deeply to follow"


@pytest.mark.parametrize(
    ("line", "inline"),
    [
        ("bash -c id", True), ("bash -lc id", True), ("python3 -c x", True), ("python3 -Ic x", True),
        ("node --eval=x", True),
        ("node -p x", True), ("perl -ne x", True), ("ruby -e x", True), ("php -r x", True), ("awk {print} f", True),
        ("awk -f p.awk", False), ("python3 x.py -c", False), ("bash x.sh", False), ("python3", True),
        ("python3 -", True),
        ("python3 --version", False), ("cmd /c dir", True), ("sed 1e f", True), ("make", False),
    ],
)  # fmt: skip
def test_code_in_the_arguments_is_inline(line, inline):
    assert read(line).inline_code is inline


def test_a_script_counts_as_its_interpreter():
    found = classify("tool", ["x"], "python3")
    assert found == Classification(
        program="tool",
        effective_program="python",
        interpreter=True,
        runs_code=True,
        also=(),
        why="tool is a script for python",
    )
    assert not classify("egrep", ["x"], "sh").interpreter


def test_another_name_of_an_interpreter_is_one():
    assert classify("editor", ["f"], resolved="/usr/bin/vim.basic").runs_code
    assert classify("x", [], resolved="/usr/bin/python3.11").interpreter
    assert not classify("ls", [], resolved="/bin/busybox").interpreter


@pytest.mark.parametrize(
    ("first", "program"),
    [
        (b"#!/usr/bin/env -S python3 -u\n", "python3"), (b"#!/bin/sh -e\nx", "sh"), (b"#! /usr/bin/perl", "perl"),
        (b"#!/usr/bin/env node\n", "node"), (b"#!/usr/bin/env -S A=1 ruby -w\n", "ruby"), (b"#!\n", "sh"),
        (b"\x7fELF", ""),
        (b"", ""), (b"#!/usr/bin/env\n", "env"), (b"#!\xff\xfe/x\n", "x"),
    ],
)  # fmt: skip
def test_the_first_line_of_a_script_names_its_interpreter(first, program):
    assert shebang_program(first) == program


@pytest.mark.parametrize(
    ("line", "broad"),
    [
        ("pkill x", True), ("killall x", True), ("killall5", True), ("skill x", True), ("taskkill /IM x", True),
        ("taskkill /pid 3", False), ("taskkill.exe /f /im:x", True), ("fuser -k f", True), ("fuser f", False),
        ("kill 3", False), ("kill -9 3", False), ("kill -1 3", False), ("kill -9 -1", True), ("ls pkill", False),
    ],
)  # fmt: skip
def test_broad_kills_are_known(line, broad):
    command, *args = shlex.split(line)
    assert is_broad_kill(command, args) is broad


@pytest.mark.parametrize("command", ["", "ls -la", "/bin/ls", "./x", "a\\b", "a\tb", "..", "a\nb", "a\u00a0b"])
def test_a_command_that_is_not_one_name_is_refused_with_the_split_form(command):
    with pytest.raises(Rejected) as caught:
        check_shape(command, [])
    assert caught.value.reason is Reason.BAD_ARGUMENTS
    assert '"command": ' in (caught.value.hint or "")


def test_the_hint_shows_the_split_form():
    with pytest.raises(Rejected) as caught:
        check_shape("ls -la src", [])
    assert '"command": "ls", "args": ["-la", "src"]' in (caught.value.hint or "")


def test_a_nul_byte_is_refused():
    with pytest.raises(Rejected) as caught:
        check_shape("ls", ["a", "b\0c"])
    assert caught.value.fields == (("args.1", "holds a NUL byte"),)


_PROGRAMS = st.sampled_from(
    "ls sed git tar env xargs find timeout bash rsync ssh zip fd flock busybox sort nice".split()
)
_WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["-exec", ";", "{}", "-S", "-c", "--", "-I", "e id", "s/a/b/", "-o", "A=1", "sh", "--exec=x", "-e"]
    ),
)


@given(_PROGRAMS, st.lists(_WORDS, max_size=8))
def test_any_command_line_is_classified_without_failing(program, args):
    found = classify(program, args)
    assert found.program == program
    assert found.runs_code or not found.interpreter
    assert bool(found.why) == found.runs_code


@promise("commands.interpreters")
@given(st.lists(st.sampled_from(["env", "nice", "nohup", "setsid", "timeout 5", "xargs", "env -i A=1"]), max_size=6))
def test_no_chain_of_wrappers_hides_a_shell(chain):
    words = [word for part in chain for word in part.split()] + ["bash", "-c", "id"]
    assert classify(words[0], words[1:]).interpreter


@promise("calls.bounded-parsing")
def test_command_lines_within_command_lines_are_followed_a_bounded_number_of_times():
    """Each -exec begins a line with every later -exec in it: sixty-four were followed for hours, by one call."""
    found = classify("find", ["-exec", "find"] * 64)
    assert (found.runs_code, found.why) == (True, "wrappers are nested too deeply to follow")
    assert classify("xargs", ["find", *["-exec", "find"] * 60]).runs_code
    assert not classify("find", [".", "-exec", "ls", ";", "-exec", "wc", ";"]).runs_code


def test_a_name_as_long_as_an_argument_may_be_is_still_brought_into_its_form():
    assert normalise("python3." + "1" * 4000) == "python"
    assert normalise("b" * 4096) == "b" * 256
