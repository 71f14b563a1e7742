"""What a person reads is what runs: no argument looks like another, like two, or like the next line."""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.cli.approval_text import env_lines, history_lines, lines, quoted, standing
from palyra.model.approval import Approval, ApprovalState, Fatigue, Scope
from tests.approving import question
from tests.journaling import NOW, ulid

ASKED = question()
APPROVAL = Approval(
    approval_id=ulid(3), principal=ASKED.principal, run_id=ASKED.run_id, call_id=ASKED.call_id, tool=ASKED.tool,
    program=ASKED.program, binding=ASKED.binding, frame=ASKED.frame, likeness=ASKED.likeness, shown=b"x",
    asked_unix_ms=NOW, expires_unix_ms=NOW + 1,
)  # fmt: skip
TRICKY = st.text(st.sampled_from('a "\\\n\t\x1b\u202e\u200b\ue000\U000e00011x') | st.characters())


@given(TRICKY, TRICKY)
def test_two_arguments_that_differ_are_shown_differently(one, other):
    assert (quoted(one) == quoted(other)) is (one == other)


@given(st.lists(TRICKY, max_size=4), st.lists(TRICKY, max_size=4))
def test_two_command_lines_that_differ_are_shown_differently(one, other):
    shown = [" ".join(map(quoted, words)) for words in (one, other)]
    assert (shown[0] == shown[1]) is (one == other)


@given(st.dictionaries(st.sampled_from(["argv", "env", "cwd", "workspace", "program", "door", "tier"]), TRICKY))
def test_nothing_a_caller_chose_makes_a_line_or_reaches_the_terminal_raw(values):
    shown = {
        **values,
        "argv": ["ls", values.get("argv", "")],
        "env": [[values.get("env", "K"), values.get("env", "")]],
        "risks": [values.get("door", "")],
        "policies": [{"id": "a", "reason": values.get("cwd", "")}],
    }
    said = [*lines(APPROVAL, shown), *env_lines(shown)]
    plain = {**shown, "argv": ["ls", "x"], "env": [["K", "v"]]}
    assert len(said) == len([*lines(APPROVAL, plain), *env_lines(plain)])
    hidden = {unicodedata.category(char) for line in said for char in line} & {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
    assert hidden == set()


def test_a_tool_without_a_program_shows_its_input():
    said = lines(APPROVAL, {"input": {"path": "a\u202eb"}, "policies": [], "risks": []})
    assert 'input      "path": "a\\u202eb"' in said


def test_no_field_is_pushed_out_of_sight_by_a_long_one():
    said = lines(APPROVAL, {"input": {"content": "x" * 9000, "path": "Makefile"}, "policies": [], "risks": []})
    assert 'input      "path": "Makefile"' in said


def test_a_space_of_another_kind_in_an_argument_is_spelled_out():
    assert quoted("rm\u00a0-rf\u3164") == '"rm\\xa0-rf\\u3164"'


def test_what_an_interpreter_is_given_on_stdin_is_shown():
    shown = {"argv": ["python3", "-"], "input": {"stdin": 'rm("-rf")\n\u202e'}, "stdin": {"bytes": 13}}
    assert 'stdin      13 bytes: "rm(\\"-rf\\")\\x0a\\u202e"' in lines(APPROVAL, shown)
    assert "stdin      streamed" in lines(APPROVAL, {**shown, "stdin": {"bytes": 0, "streamed": True}})
    said = next(line for line in lines(APPROVAL, {**shown, "input": {"stdin": "x" * 9000}}) if "stdin" in line)
    assert said.endswith("… (9002 characters; see --json)")


def test_history_says_how_often_and_what_is_new():
    figures = {"same_call": Fatigue(asked=3, denied=2), "same_program": Fatigue(asked=9, approved=4)}
    change = {"field": "cwd", "before": "/a", "now": "/b\n"}
    assert history_lines(figures, None, [])[-1] == "earlier    nothing of this program was approved before"
    said = history_lines(figures, APPROVAL, [change])
    assert said[0] == "history    this very call: asked 3, approved 0, denied 2, expired 0"
    assert said[-1] == '  cwd: was "/a", is "/b\\n"'
    assert history_lines(figures, APPROVAL, [])[-1] == "  nothing differs from it"


@pytest.mark.parametrize(
    ("scope", "pattern", "covers"),
    [
        (Scope.ONCE, "", "once, "),
        (Scope.RUN, "", "for its run, "),
        (Scope.UNTIL, "", ""),
        (Scope.UNTIL, '["rm","*.txt"]', 'for "rm" "*.txt", '),
        (Scope.RUN, '["rm","\u202e*"]', 'for "rm" "\\u202e*", for its run, '),
    ],
)
def test_a_grant_says_what_it_covers_the_pattern_too(scope, pattern, covers):
    grant = replace(
        APPROVAL, state=ApprovalState.APPROVED, decided_by="user:op", scope=scope, pattern=pattern,
        valid_until_unix_ms=0,
    )  # fmt: skip
    assert standing(grant) == f"approved by user:op, {covers}until 1970-01-01 00:00:00 UTC"
