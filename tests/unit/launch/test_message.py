from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.launch.limits import Step
from palyra.launch.message import HELD_SCRIPT, launch_message, nonce_from, quote

NONCE = nonce_from(b"\x01" * 16)
SAFE = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)))


def message(**changes: object) -> bytes:
    facts: dict[str, object] = {
        "program": "/usr/bin/printf",
        "arguments": ("%s", "it's"),
        "env": (("K", "a b"),),
        "cwd": "/w",
        "limits": (Step("t", 60, 61), Step("processes", 512, 512)),
        "nonce": NONCE,
    }
    return launch_message(**(facts | changes))


def test_the_whole_message() -> None:
    assert message().decode() == (
        "exec 9<&- && "
        f"trap 'echo '\\''\x1f{'01' * 16}'\\'' >&2' EXIT && "
        "cd -P -- '/w' && "
        'unset PWD OLDPWD SHLVL PATH && { [ -z "$BASH_VERSION" ] || shopt -s execfail; } && '
        "ulimit -S -t 60 && ulimit -H -t 61 && "
        'if [ -z "$BASH_VERSION" ]; then ulimit -S -p 512 && ulimit -H -p 512; '
        "else ulimit -S -u 512 && ulimit -H -u 512; fi && "
        "export K='a b' && "
        "exec '/usr/bin/printf' '%s' 'it'\\''s'\n"
        "exit 125\n"
    )


def test_limits_that_no_shell_knows_are_set_by_a_program() -> None:
    said = message(limits=(Step("rtprio", 0, 0), Step("nice", 0, 0)), limit_first=True).decode()
    assert "/usr/bin/prlimit --pid 1 --rtprio=0:0 --nice=0:0 && " in said
    assert "/usr/bin/prlimit --pid $$ --rtprio=0:0 && /usr/bin/prlimit --pid $$ --nice=0:0 && " in said


def test_the_held_shell_closes_what_it_said_ready_on() -> None:
    first_to_go = "{ echo 500 2>/dev/null >/proc/self/oom_score_adj || :; }"
    assert f"{first_to_go}; echo r >&8; exec 8>&-; . /dev/fd/9" == HELD_SCRIPT


@given(SAFE)
def test_quoting_is_read_back_as_one_word(text: str) -> None:
    assert shlex.split(quote(text.encode()).decode()) == [text]


@given(st.lists(SAFE, max_size=4), SAFE)
def test_nothing_a_caller_sends_can_add_a_step(arguments: list[str], value: str) -> None:
    said = message(arguments=tuple(arguments), env=(("K", value),)).decode()
    plain = shlex.split(said.rsplit("\nexit 125\n", 1)[0])
    assert plain[-len(arguments) - 2 :] == ["exec", "/usr/bin/printf", *arguments]
    assert plain.count("exec") == 2 + [*arguments, value].count("exec")


@pytest.mark.parametrize(
    "changes",
    [
        {"program": "printf"},
        {"cwd": "w"},
        {"arguments": ("a\0b",)},
        {"env": (("K", "a\0"),)},
        {"env": (("K=1; rm", "x"),)},
        {"env": (("1K", "x"),)},
        {"env": (("", "x"),)},
        {"env": (("K\n", "x"),)},
        {"cwd": "/w\0"},
    ],
)
def test_what_no_exec_can_carry_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"must be|cannot be|NUL"):
        message(**changes)


def test_bytes_that_are_no_text_pass_unchanged() -> None:
    assert b"'\xff\xfe'" in message(arguments=("\udcff\udcfe",))
