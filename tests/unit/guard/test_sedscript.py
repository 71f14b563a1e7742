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
