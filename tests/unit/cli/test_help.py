"""What a stranger reads first: every command once, under what it is for, in whole sentences; mistakes told plainly."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from palyra.cli.main import COMMANDS, SECTIONS, _plain, cli


def said(*words: str) -> str:
    return CliRunner().invoke(cli, words, env={"COLUMNS": "100"}).output


def test_every_command_stands_under_one_heading():
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(COMMANDS)
    text = said("--help")
    assert [line.strip(":") for line in text.splitlines() if line.strip(":") in SECTIONS] == list(SECTIONS)


@pytest.mark.parametrize("noun", sorted(set(COMMANDS) - {"bench"}))
def test_no_line_of_help_is_cut_off(noun):
    assert "..." not in said(noun, "--help").replace("[ARGS]...", "").replace("ARG...", "")


@pytest.mark.parametrize(("word", "meant"), [("rnu", "'run'"), ("journl", "'journal'"), ("tokens", "'token'")])
def test_a_mistyped_command_is_guessed(word, meant):
    assert f"No such command '{word}'. Did you mean {meant}" in said(word)


def test_a_word_like_nothing_is_not_guessed():
    assert "No such command 'xyzzy'.\n" in said("xyzzy")


def test_kinds_of_values_are_told_in_plain_words():
    with pytest.raises(click.BadParameter) as caught:
        click.IntRange(1, 5).convert("x", None, None)
    assert _plain(caught.value.message) == "'x' is not a whole number."
    assert _plain("'x' is not a valid float.") == "'x' is not a number."


@pytest.mark.parametrize("words", [("ps", "--all"), ("runs", "list"), ("approvals", "list")])
def test_a_page_begins_at_an_id_and_at_nothing_else(words):
    assert "'x' is not an ID" in said(*words, "--before", "x")


def test_a_page_of_what_runs_is_no_page():
    assert "--before needs --all" in said("ps", "--before", "01ARZ3NDEKTSV4RRFFQ69G5FAV")
