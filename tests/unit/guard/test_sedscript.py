"""sed scripts: code and files in them are found, ordinary editing is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.guard.sedscript import SedReading, read_sed


@pytest.mark.parametrize(
    "args",
    [
        ["-n", "/x/p", "f"], ["s/a/b/gI;s|c|d|2p", "f"], ["-E", "s/[^/]*$//", "f"], ["s/[/]/x/", "f"], ["y/abc/xyz/"],
        [":a;N;$!ba;s/\\n/ /g", "f"], ["-i.bak", "s/e/w/", "f"], ["1,/end/{s/a/b/;p}", "f"], ["$a\\\ne id", "f"],
        ["-e", "a\\", "-e", "e id", "f"], ["a text with e and w", "f"], ["1!d", "f"], ["/[[:alpha:]/]/d", "f"],
        ["s/\\//e/"],
        ["# e id\np"], ["-n", "2{p;q}", "f"], ["/a/,+3d"], ["1~2d"], ["s/a/\\n&e/"], ["w /dev/stdout"],
        ["=;l 5;q7"], [],
    ],
)  # fmt: skip
def test_ordinary_editing_runs_nothing(args):
    assert read_sed(args).why == ""


def test_the_script_is_told_from_the_files():
    assert read_sed(["-n", "/x/p", "f", "g"]) == SedReading((1,), (), "")
    assert read_sed(["f", "-e", "/x/p", "--expression=/y/p"]).scripts == (2, 3)
    assert read_sed(["-ne/x/p", "f"]).scripts == (0,)
    assert read_sed(["--", "p", "-e"]).scripts == (1,)


def test_files_named_in_a_script_are_found():
    assert read_sed(["r /etc/shadow", "f"]).files == ((0, "/etc/shadow"),)
    assert read_sed(["-n", "1R a b;e", "f"]).files == ((1, "a b;e"),)
    assert read_sed(["s/a/b/w ../out", "f"]) == SedReading(
        (0,), ((0, "../out"),), "the w command of sed writes a file that its script names"
    )


def test_sed_in_its_own_sandbox_runs_nothing():
    assert read_sed(["--sandbox", "e id", "f"]).why == ""
    assert read_sed(["--sand", "-f", "s"]).why == ""
    assert read_sed(["-l", "--sandbox", "e id"]).why != ""
    assert read_sed(["--", "e id", "--sandbox"]).why != ""


@given(st.text(alphabet="spawehx/[]\\;,{}!$0123 \n:|&^.*", max_size=30))
def test_any_script_is_read_without_failing(script):
    read_sed([script])


@given(st.text(alphabet="pdnh;{} \n0123$", max_size=12), st.sampled_from(["e id", "w x", "s/a/b/e", "s,a,b,w x"]))
def test_no_harmless_beginning_hides_code(beginning, code):
    assert read_sed([beginning + "\n" + code]).why != ""


@pytest.mark.parametrize(
    "args",
    [
        ["1e id"], ["$e"], ["/x/e id"], ["\\,x,e id"], ["/a/,/b/e id"], ["/a/I,/b/Me id"], ["1~2e id"], ["1,+3e id"],
        ["1,~4 ! e id"], ["p;e id"], ["{p;e id}"], ["s/a/b/;e id"], ["s/a/b/e"], ["s/a/b/ge"], ["s/a/b/ e"],
        ["s/a/b/3e"], ["s/a/b/pe"], ["s,a/b,c,e"], ["s/[/]/x/e"], ["s/a\\/b/c/e"], ["y/a/b/;e id"], ["l 5;e id"],
        ["q5;e id"], ["n;N;d;e id"], ["=;e id"], ["# x\ne id"], ["a x\ne id"], ["a\\\nx\ne id"], ["b;e id"],
        ["b x;e id"], ["t;e id"], ["T x;e id"], [":a;e id"], ["v 4.2;e id"], ["r f\ne id"], ["z;F;x;e id"],
        ["-e", "p", "-e", "e id"], ["-n", "-e", "e id"], ["-ne", "e id"], ["-nee id"], ["--expression=e id"],
        ["--expr", "e id"], ["--line-length", "5", "e id"], ["-l", "5", "e id"], ["-i", "e id"], ["-ie", "e id"],
        ["-E", "-i.bak", "e id"], ["-f", "x"], ["-nf", "x"], ["--file=x"], ["--fi", "x"], ["-fx"], ["-s", "--", "e id"],
        ["w x"], ["W x"], ["s/a/b/w x"], ["s/a/b/gw x"], ["s/a/b/w x", "--posix"], ["w /dev/stdoutx"],
        ["s/[[:x:]/]/e/e"], ["s/[]/]/a/e"], ["s/[^]/]/a/e"], ["/[/]/e id"], ["\\a[a]ae id"],
    ],
)  # fmt: skip
def test_code_is_found_behind_everything_that_can_stand_before_it(args):
    assert read_sed(args).why


@pytest.mark.parametrize(
    ("script", "lost"),
    [
        ("/x", "an address that does not end"), ("s/a", "a part of s that does not end"),
        ("s/a/b", "a part of s that does not end"), ("y/a", "a part of y that does not end"),
        ("s\\a\\b\\", "a part of s that does not end"), ("s", "a part of s that does not end"),
        ("s\na\nb\n", "a part of s that does not end"), ("?", "command '?'"),
        ("a x\\\\\ny", "text that ends in backslashes"),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_code_and_says_where_it_was_lost(script, lost):
    assert read_sed([script]).why == f"a sed script that cannot be followed ({lost})"


def test_a_control_character_is_not_followed():
    assert read_sed(["p\x0c"]).why == "a sed script with a control character cannot be followed"
    assert read_sed(["p\x7f"]).why
    assert read_sed(["p\tp\np"]).why == ""


def test_places_of_scripts_are_right_behind_every_kind_of_option():
    assert read_sed(["--sandbox", "-e", "1e id", "f"]) == SedReading((2,))
    assert read_sed(["--sandbox", "-n", "e id", "f"]) == SedReading((2,))
    assert read_sed(["-n", "--debug", "-z", "p", "f"]) == SedReading((3,))
    assert read_sed(["-l", "5", "p", "f"]) == SedReading((2,))
    assert read_sed(["--line-length=5", "p", "f"]) == SedReading((1,))
    assert read_sed(["--line-length", "5", "p", "f"]) == SedReading((2,))
    assert read_sed(["-i", "p", "f"]) == SedReading((1,))
    assert read_sed(["-e", "p", "--", "f"]) == SedReading((1,))
    assert read_sed(["-e"]) == SedReading((1,))
    assert read_sed(["-", "f"]).scripts == (0,)
    assert read_sed(["-n", "-f", "x", "f"]) == SedReading((), (), "sed -f runs a script that cannot be seen here")


def test_every_file_of_a_script_is_told_once():
    assert read_sed(["-e", "r a", "-e", "R b", "-e", "r a", "f"]).files == ((1, "a"), (1, "b"))
    assert read_sed(["w /dev/stderr"]) == SedReading((0,))
    assert read_sed(["s/a/b/w /dev/stdout"]) == SedReading((0,))


def test_a_label_ends_where_any_sed_says_so():
    for script in (":a e id", "b x}e id", ":l}a~;1e id", "b a\te id"):
        assert read_sed([script]).why, script
    assert read_sed([":a;p;ba"]).why == ""


def test_a_script_that_would_keep_everybody_waiting_is_not_read_and_counts_as_code():
    assert read_sed(["-e", "b;" * 2000] * 15).why == "a sed script of more than 8192 characters is not followed"
    assert read_sed(["-e", "s/a/b/;" * 1000]).why == ""
