"""Which arguments are texts and not paths: a jq filter may hold slashes, the file beside it may not lead out."""

from __future__ import annotations

import shlex

import pytest

from palyra.guard.texts import code_arguments, text_arguments


@pytest.mark.parametrize(
    ("args", "texts"),
    [
        ((".a/.b", "file.json"), {0}),
        (("-r", ".a", "file.json"), {1}),
        (("--arg", "name", "/x/", ".a", "file"), {1, 2, 3}),
        (("--argjson", "name", "1", ".a", "file"), {1, 2, 3}),
        (("--slurpfile", "name", "/etc/x", ".a"), {3}),
        (("--rawfile", "name", "/etc/x", ".a"), {3}),
        (("--indent", "2", ".a"), {2}),
        (("--tab", ".a"), {1}),
        (("-L", "/lib", ".a"), {2}),
        (("-f", "filter.jq", "file"), set()),
        (("--from-file", "filter.jq", "file"), set()),
        (("-ffilter.jq", "file"), set()),
    ],
)
def test_of_jq_the_filter_is_a_text_and_files_are_not(args: tuple[str, ...], texts: set[int]) -> None:
    assert text_arguments("jq", args)[0] == texts


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("grep pat --exclude /x f", {0, 2}), ("grep pat f --include=/x", {0, 2}), ("grep -e pat f", {1}),
        ("grep -f pats f", set()), ("grep --file=pats f", set()), ("grep --regexp pat f", {1}),
        ("grep -A 3 pat f", {2}), ("grep -rn pat f", {1}), ("grep --wat pat f", {1}), ("grep -- -pat f", {1}),
        ("grep --label=/x pat f", {0, 1}), ("grep --exclude-dir /x pat", {1, 2}), ("grep -5 pat f", {1}),
        ("egrep pat f", {0}), ("fgrep pat f", {0}), ("zgrep pat f", {0}), ("rg pat d", {0}), ("rg -e pat d", {1}),
        ("rg --files d", set()), ("rg --type-list d", set()), ("rg -g /x -r /y pat d", {1, 3, 4}), ("rg -f p d", set()),
        ("rg --replace /x pat", {1, 2}), ("rg -t py -m 3 pat d", {4}), ("rg --iglob /x pat", {1, 2}),
        ("awk -F / prog f", {1, 2}), ("awk -v a=/x prog f", {1, 2}), ("awk -f p f", set()), ("awk --file=p f", set()),
        ("mawk prog f", {0}), ("awk -i inc prog f", {2}), ("cut -d / -f 1 f", {1}), ("cut --delimiter / f", {1}),
        ("cut --output-delimiter=/ f", {0}), ("sort -t / -k 2 f", {1}), ("sort --field-separator / f", {1}),
        ("sort -o /x f", set()), ("paste -d / f", {1}), ("paste --delimiters / f", {1}), ("join -t / -1 2 a b", {1}),
        ("join -e /x a b", {1}), ("column -s / -o / f", {1, 3}), ("nl -b p/x f", {1}), ("nl -s / -w 3 f", {1}),
        ("nl --number-separator / f", {1}), ("seq -s / 3", {1}), ("seq -f /%g 3", {1}), ("seq --format /%g 3", {1}),
        ("date -d /x", {1}), ("date --date /x", {1}), ("date -f /x", set()), ("diff -I /x a b", {1}),
        ("diff -x /x -L /y a b", {1, 3}), ("diff --exclude /x a b", {1}), ("diff -X /x a b", set()),
        ("ls -I /x d", {1}), ("ls --ignore /x", {1}), ("ls --hide=/x", {0}), ("ls -w 3 -T 4 d", set()),
        ("tree -I /x -P /y d", {1, 3}), ("tree -L 2 -o /x d", set()), ("du --exclude /x d", {1}), ("du -d 1 d", set()),
        ("tar --transform s,/a,/b, -cf x", {1}), ("tar --xform=s,/a,/b, -cf x", {0}), ("tar --exclude /x", {1}),
        ("echo /x ../y", {0, 1}), ("printf %s/ /x", {0, 1}), ("basename /a/b .c", {0, 1}), ("dirname ../a", {0}),
        ("tr / _", {0, 1}), ("expr a : /x", {0, 1, 2}), ("find . -name /x -path /y", {2, 4}),
        ("find . -iname /x -regex /y -printf /z", {2, 4, 6}), ("git log --grep /x", {2}), ("git log -S /x f", {2}),
        ("git -C . log --author /x", {4}), ("git diff -G /x", {2}), ("git show --format /x", {2}),
        ("git shortlog --since /x", {2}), ("git reflog --grep-reflog /x", {2}), ("git blame --date /x f", {2}),
        ("git commit -m /x", {2}), ("git commit -F /x", set()), ("git tag -m /x v", {2}), ("git merge -m /x b", {2}),
        ("git stash -m /x", {2}), ("git notes -m /x", {2}), ("git grep /x f", {1}), ("git push /x", set()),
        ("git commit --author /x --trailer /y", {2, 4}), ("cat /x", set()), ("sed s/a/b/ f", {0}), ("gsed p f", {0}),
        ("env A=1 nice grep /x f", {3}), ("timeout 3 jq /x f", {2}), ("nice nice tr / _", {2, 3}),
        ("nice git log --grep /x", {3}), ("jq - f", {0}), ("jq --tab --indent 3 /x f", {3}),
    ],
)  # fmt: skip
def test_texts_are_told_from_paths_wherever_they_stand(line: str, texts: set[int]) -> None:
    program, *args = shlex.split(line)
    assert text_arguments(program, args)[0] == texts


def test_a_file_that_a_script_names_is_told_with_the_place_of_the_script() -> None:
    assert text_arguments("sed", ["-n", "r /etc/x", "f"])[1] == ((1, "/etc/x"),)
    assert text_arguments("nice", ["-n", "5", "sed", "r /etc/x", "f"])[1] == ((3, "/etc/x"),)


def test_wrappers_are_followed_eight_deep() -> None:
    assert text_arguments("nice", ["nice"] * 7 + ["tr", "/", "_"])[0] == {8, 9}
    assert text_arguments("nice", ["nice"] * 8 + ["tr", "/", "_"])[0] == set()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("bash -c x=/etc/hosts", {1}), ("bash -lc /x", {1}), ("bash -euo pipefail -c /x /y", {3}), ("sh -xc /x", {1}),
        ("bash --norc -c /x", {2}), ("bash -c -- /x", {2}), ("bash script -c /x", set()), ("bash /x", set()),
        ("bash -c", set()), ("bash --wat -c /x", set()), ("bash -o pipefail /x", set()), ("python3 -c /x", {1}),
        ("python3.12 -Ic /x -c /y", {1}), ("python3 script -c /x", set()), ("python3 -m mod -c /x", set()),
        ("node -e /x", {1}), ("node --eval=/x", {0}), ("node -p /x", {1}), ("node script -e /x", set()),
        ("perl -ne /x f", {1}), ("perl -e /x -e /y", {1, 3}), ("ruby -e /x", {1}), ("timeout 5 bash -c /x", {3}),
        ("env A=1 nice bash -c /x", {4}), ("fish -c /x", set()), ("git -c /x", set()),
    ],
)  # fmt: skip
def test_code_for_an_interpreter_is_text_and_what_follows_a_script_is_not(line: str, code: set[int]) -> None:
    command, *args = shlex.split(line)
    assert code_arguments(command, args) == code
    assert text_arguments(command, args)[0] == code


@pytest.mark.parametrize(
    ("line", "texts", "files"),
    [
        ("ln -s ../src/x docs/x", {1}, ((1, "docs/../src/x"), (1, "docs/x/../src/x"))),
        ("ln -sfn ../a ../b l/", {1, 2}, ((1, "l/../a"), (1, "l//../a"), (2, "l/../b"), (2, "l//../b"))),
        ("ln -s ../x y", {1}, ((1, "./../x"), (1, "y/../x"))),
        ("ln --symbolic x /y", {1}, ((1, "//x"), (1, "/y/x"))),
        ("ln -s /etc/x y", set(), ()), ("ln ../a b", set(), ()), ("ln -s ../a", set(), ()),
        ("ln -s -t d ../a b", set(), ()), ("ln -rs ../a b", set(), ()), ("ln -s ../a -f b", set(), ()),
    ],
)  # fmt: skip
def test_what_a_link_says_is_read_from_where_the_link_is(
    line: str, texts: set[int], files: tuple[tuple[int, str], ...]
) -> None:
    name, *args = line.split()
    found, named = text_arguments(name, args)
    assert (set(found), tuple(named)) == (texts, files)
