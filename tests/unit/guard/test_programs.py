"""The tables of programs as promises: every interpreter's own way to take code on its command line is known."""

from __future__ import annotations

import os

import pytest

from palyra.errors import Rejected
from palyra.guard.command import check_shape, classify, is_broad_kill, shebang_program
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


@pytest.mark.parametrize("word", ["--eval=1", "--print=1", "--command=1", "--execute=1"])
def test_the_long_ways_are_known_with_their_value_glued_on(word: str) -> None:
    assert classify("node", [word]).inline_code


@pytest.mark.parametrize(
    "line",
    """python -Xdev x.py|pythonw -Wdefault x.py|pypy -Xdev x.py|ipython -Xdev x.py|micropython -Xdev x.py|
    jython -Xdev x.py|graalpy -Xdev x.py|py -Xdev x.py|bash -e x.sh|bash --norc x.sh|
    perl -c x.pl|ruby -c x.rb|jruby -c x.rb|
    mruby -c x.rb|truffleruby -c x.rb|julia -C x.jl|raku -c x.raku|node -c x.js|nodejs -c x.js|bun -c x.js|iojs -c x.js|
    qjs -c x.js|lua -c x.lua|luajit -c x.lua|luau -c x.lua|rscript -c x.r|r -c x.r|littler -c x.r|osascript -c x|
    groovy -cp lib x.groovy|scala -cp lib x.scala|php -c php.ini|php-cgi -c php.ini|phpdbg -c php.ini|
    awk --file=x.awk f|gawk -f x.awk f""".replace("\n", "").split("|"),
)
def test_a_file_of_code_is_not_inline_whatever_options_stand_before_it(line: str) -> None:
    found = classify(*_split(line))
    assert (found.interpreter, found.inline_code) == (True, False)


def _split(line: str) -> tuple[str, list[str]]:
    command, *args = line.split()
    return command, args


@pytest.mark.parametrize(
    "line",
    """perl -E 1|ruby -E 1|jruby -E 1|mruby -E 1|truffleruby -E 1|julia -E 1|raku -E 1|node -p 1|bun -p 1|iojs -p 1|
    qjs -p 1|php -B 1|php -R 1|php -E 1|php-cgi -r 1|phpdbg -r 1|pythonw -c 1|ipython -c 1|swipl -g x|dc -e 1|
    expect -c 1|gsi -e 1|csi -e 1|ghci -e 1|r -e 1|littler -e 1|powershell -EncodedCommand x|pwsh -enc x|cmd /k x|
    cmd /r x|emacs --batch x|bash --run x|deno eval x|gforth -e x""".replace("\n", "").split("|"),
)
def test_every_letter_that_takes_code_is_known(line: str) -> None:
    assert classify(*_split(line)).inline_code


@pytest.mark.parametrize("answer", ["--version", "-V", "-v", "--help", "-h"])
def test_asking_an_interpreter_who_it_is_hands_over_no_code(answer: str) -> None:
    assert not classify("python3", [answer]).inline_code
    assert classify("python3", [answer, "-"]).inline_code


@pytest.mark.parametrize(
    "loader", ["ld-linux-x86-64.so.2", "ld-musl-x86_64.so.1", "ld.so", "ld64.so.2", "ld-uClibc.so.0"]
)
def test_the_dynamic_loader_runs_whatever_it_is_given(loader: str) -> None:
    assert classify(loader, ["/bin/ls"]).interpreter


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("tool.exe", "tool"), ("tool.cmd", "tool"), ("tool.bat", "tool"), ("tool.com", "tool"), (".exe", ".exe"),
        ("a\x1bb", "a?b"), ("x" * 300, "x" * 256), ("PYTHON", "python"),
    ],
)  # fmt: skip
def test_names_are_brought_into_one_form(name: str, known: str) -> None:
    assert normalise(name) == known


@pytest.mark.parametrize("line", ["fuser -vk f", "fuser --kill f", "fuser -k -TERM f", "kill -- -1", "taskkill -fi x"])
def test_processes_are_not_picked_by_file_user_or_all_of_them(line: str) -> None:
    assert is_broad_kill(*_split(line))
    assert not is_broad_kill("kill", ["-1", "5"])
    assert not is_broad_kill("fuser", ["-v", "work.txt"])


def test_a_first_line_is_taken_apart_as_env_does_it() -> None:
    assert shebang_program(b'#!/usr/bin/env -S A="b c" ls -l\n') == "ls"
    assert shebang_program(b'#!/usr/bin/env --split-string=A="b c" ls\n') == "ls"
    assert shebang_program(b"#!/usr/bin/env -iS ls\n") == "ls"


def test_the_innermost_of_a_chain_is_the_effective_program_and_what_runs_code_goes_before_it() -> None:
    assert classify("nice", ["timeout", "3", "cat"]).effective_program == "cat"
    assert classify("nice", ["make", "all"]).effective_program == "make"
    assert classify("nice", ["bash", "-c", "make"]).effective_program == "bash"
    assert classify("find", [".", "-exec", "vim", ";", "-exec", "bash", ";"]).effective_program == "bash"
    assert classify("nice", ["bash"]).why == "nice would run bash"
    assert classify("bash", []).why == "bash is an interpreter"
    assert classify("busybox", ["ls"]).why == "busybox is a shell and other programs in one"


def test_eight_wrappers_are_followed_and_the_ninth_is_not() -> None:
    assert not classify("nice", ["nice"] * 7 + ["ls"]).runs_code
    assert classify("nice", ["nice"] * 8 + ["ls"]).runs_code


def test_a_link_to_what_runs_programs_counts_as_that() -> None:
    found = classify("edit", ["f"], resolved="/usr/bin/vim.basic")
    assert (found.effective_program, found.interpreter, found.runs_code) == ("vim", False, True)
    assert found.why == "edit is another name for vim, which can run other programs"
    build = classify("mk", [], resolved="/usr/bin/make")
    assert (build.effective_program, build.interpreter, build.runs_code) == ("make", False, True)
    link = classify("run", ["f"], resolved="/usr/bin/perl5.36")
    assert (link.effective_program, link.interpreter) == ("perl", True)
    assert link.why == "run is another name for perl"


@pytest.mark.parametrize(
    "words",
    ["gfind . -exec sh -c id ;", "gxargs sh", "gtimeout 5 python3", "genv sh", "gsort --comp=x f", "bfs -ok sh"],
)
def test_gnu_programs_under_the_names_they_have_elsewhere_are_those_programs(words: str) -> None:
    """Homebrew and the BSDs put a g before them: `gfind` on an allowlist was a program that nobody knew."""
    command, *args = words.split()
    assert classify(command, args).runs_code
    assert (normalise("gfind"), normalise("git"), normalise("gsettings")) == ("find", "git", "gsettings")


@pytest.mark.parametrize(
    "line",
    [
        "not-14 id", "not id", "not14 id", "uclampset -m 1 bash", "luit bash", "sprof lib.so x",
        "jar -J-javaagent:x", "lli x.bc",
        "lli-14 x.bc", "llvm-lto -x", "llvm-lto2-14 run x", "llvm-lto-14 x", "opt-14 -load x", "llc -load=x",
        "llvm-jitlink-14 x", "llvm-reduce --test=x", "bugpoint-14 x", "jshell x", "keytool -J-x", "jarsigner -J-x x",
        "javac -J-x", "clang-tidy-14 -load x", "gcc-ar-12 --plugin=x", "x86_64-linux-gnu-gcc-nm-12 --plugin x",
        "x86_64-linux-gnu-nm --plugin=x", "x86_64-linux-gnu-lto-dump-12 x", "x86_64-linux-gnu-windres x",
        "x86_64-linux-gnu-python3.11 x", "git-upload-pack x", "git-receive-pack .", "git-foo", "scalar run x",
        "vim.distrib x", "bash.distrib x", "less.real x", "busybox-static sh", "bash-static x", "valgrind.bin x",
        "python3.11-dbg x", "perl5.36-x86_64-linux-gnu x", "tclsh8.6 x", "ruby3.1 x", "gdb.real x",
        "find.distrib . -exec sh ;", "env-9.1 sh", "xargs.real sh", "timeout-9 5 sh", "tar-1.34 --to-command=x -xf a",
        "sed-4.9 1e f", "git-2.39 -c core.pager=x log", "mkfs -t ../../x f", "fsck -t ../x f", "mkfs.ext4 f",
        "ip6tables -m x", "iptables-legacy-restore f", "xtables-nft-multi x", "mariadb-dump --plugin-dir=x", "mysqld x",
        "initdb -D x", "redis-server --loadmodule x", "systemd-mount x", "gst-launch-1.0 x", "gst-inspect-1.0 x",
        "rpcgen -Y . x", "pic -U f", "etags f.gz", "ctags-universal x", "dbus-daemon --config-file=x", "kpsewhich x",
        "coresched new -- sh", "pipesz sh", "setpgid sh", "enosys -s x sh", "scriptlive x",
        "fstab-decode sh", "readprofile -m x.gz",
        "mke2fs -c x", "slattach -c x", "mariadbd-safe-helper x", "stress-ng --exec 1",
    ],
)  # fmt: skip
def test_what_runs_code_or_other_programs_is_known_by_its_kind_whatever_its_version(line: str) -> None:
    assert classify(*_split(line)).runs_code


@pytest.mark.parametrize(
    "name",
    "base64 base32 sha256sum md5sum b2sum bzip2 bunzip2 gzip lz4 xz zstd cat ls cp mv rm grep egrep "
    "readelf size strings llvm-nm llvm-nm-14 llvm-objdump-14 llvm-readelf llvm-dwarfdump-14 "
    "gprof gcov-12 pkg-config dpkg-query apt-cache "
    "systemd-detect-virt jq diff sum cksum e2label ss "
    "lsof ps top htop msgcat gsettings addr2line c++filt".split(),
)
def test_programs_that_only_read_or_rewrite_their_files_stay_plain(name: str) -> None:
    assert not classify(name, ["file"]).runs_code


def test_every_program_whose_options_are_read_is_known_with_a_version_behind_it() -> None:
    """`find-4.9 -exec sh` was a program that nobody knew."""
    from palyra.guard.escapes import ESCAPES
    from palyra.guard.wrappers import PREFIXES, READERS

    for name in {*ESCAPES, *PREFIXES, *READERS} - {"i386", "x86_64", "uname26", "linux32", "linux64"}:
        assert normalise(name) == name
        for mark in ("-14", "-9.1", ".distrib", ".real"):
            assert normalise(name + mark) == name, name + mark


def test_a_wrapper_that_clamps_counts_as_what_it_runs() -> None:
    assert classify("uclampset", ["-m", "1", "ls"]).effective_program == "ls"
    assert not classify("uclampset", ["-m", "1", "ls"]).runs_code
    assert classify("uclampset", ["-p", "1", "bash"]).interpreter


@pytest.mark.parametrize("folder", ["/usr/bin", "/usr/sbin"])
def test_a_program_of_this_machine_with_a_version_is_what_it_is_without_one(folder: str) -> None:
    names = set(os.listdir(folder))
    for name in names:
        short, dash, number = name.rpartition("-")
        if dash and number.replace(".", "").isdigit() and short in names:
            kinds = [classify(each, ["x"]).runs_code for each in (name, short)]
            assert kinds[0] == kinds[1], name
