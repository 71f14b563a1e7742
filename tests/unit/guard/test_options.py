"""Command lines are read as getopt reads them, and an option on no table hides nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palyra.guard.options import Option, Scan, Spec, find_options, read_options

SPEC = Spec("vn:e::", "verbose number= eof? nothing")


def test_options_end_at_the_first_operand():
    assert read_options(["-vn", "3", "--number=4", "x", "-v"], SPEC) == Scan(
        (Option("v", None, 0, 1), Option("n", "3", 0, 2), Option("number", "4", 2, 3)), 3
    )


def test_optional_values_are_only_glued_on():
    assert read_options(["-e", "x"], SPEC) == Scan((Option("e", None, 0, 1),), 1)
    assert read_options(["-ex", "y"], SPEC) == Scan((Option("e", "x", 0, 1),), 1)
    assert read_options(["--eof", "x"], SPEC) == Scan((Option("eof", None, 0, 1),), 1)


def test_long_names_may_be_shortened_while_it_is_clear_what_is_meant():
    assert read_options(["--num", "3", "x"], SPEC) == Scan((Option("number", "3", 0, 2),), 2)
    assert read_options(["--n", "3"], SPEC) == Scan((), 0, "--n")


def test_two_dashes_end_the_options_and_one_is_an_operand():
    assert read_options(["--", "-v"], SPEC) == Scan((), 1)
    assert read_options(["-", "-v"], SPEC) == Scan((), 0)


def test_an_unknown_option_is_said():
    assert read_options(["-v", "-x", "y"], SPEC) == Scan((Option("v", None, 0, 1),), 1, "-x")


def test_options_are_found_wherever_they_stand():
    found = find_options(["a", "-vXy", "--unknown", "--exe", "z", "-fX"], letters="X", names=("exec",), values="f")
    assert list(found) == [Option("X", "y", 1, 2), Option("exec", "z", 3, 5)]


@given(st.lists(st.text(max_size=6), max_size=6))
def test_any_words_are_read_and_the_rest_is_within_them(words):
    scan = read_options(words, SPEC)
    assert 0 <= scan.rest <= len(words)
    assert all(0 <= option.index < len(words) for option in scan.options)


def test_what_follows_an_option_is_found_behind_it():
    assert list(find_options(["-X", "v", "w"], letters="X")) == [Option("X", "v", 0, 2)]
    assert list(find_options(["-Xv", "w"], letters="X")) == [Option("X", "v", 0, 1)]
    assert list(find_options(["--exec=v", "w"], names=("exec",))) == [Option("exec", "v", 0, 1)]
    assert list(find_options(["--exec"], names=("exec",))) == [Option("exec", "", 0, 2)]
    assert list(find_options(["-X"], letters="X")) == [Option("X", "", 0, 2)]


def test_a_shortened_name_counts_for_every_option_it_could_mean():
    found = find_options(["--ex", "v"], names=("exec", "exit", "other"), plain=("e",))
    assert [option.name for option in found] == ["exec", "exit"]
    assert list(find_options(["--e", "v"], names=("exec",), plain=("e",))) == []
    assert list(find_options(["--", "v", "-", ""], letters="v", names=("exec",))) == []


def test_several_options_in_one_word_are_all_found():
    assert [option.name for option in find_options(["-aXbY"], letters="XY")] == ["X", "Y"]
    assert [option.name for option in find_options(["-aXbY"], letters="XY", values="X")] == ["X"]
    assert [option.name for option in find_options(["-abY"], letters="XY", values="b")] == []


def test_an_option_without_its_value_is_read_to_the_end():
    assert read_options(["-n"], SPEC) == Scan((Option("n", None, 0, 2),), 1)
    assert read_options(["--number"], SPEC) == Scan((Option("number", None, 0, 2),), 1)
    assert read_options(["-n3", "x"], SPEC) == Scan((Option("n", "3", 0, 1),), 1)
    assert read_options(["--verbose=x", "y"], SPEC) == Scan((Option("verbose", "x", 0, 1),), 1)
    assert read_options(["-vx"], SPEC) == Scan((Option("v", None, 0, 1),), 0, "-vx")
    assert read_options(["--wat"], SPEC) == Scan((), 0, "--wat")
    assert read_options(["--verb", "x"], SPEC) == Scan((Option("verbose", None, 0, 1),), 1)
    assert read_options(["", "-v"], SPEC) == Scan((), 0)
