"""The codemod renames what refers to a thing, and nothing that only looks like it."""

from __future__ import annotations

import pytest

from codemod import Move, Renames, rewrite_code, rewrite_prose, rewrite_text

RENAMES = Renames(
    moves=(
        Move(old="palyra.state.mark", new="palyra.log.high_water", is_package=False),
        Move(old="palyra.redact", new="palyra.redaction", is_package=True),
    ),
    modules={"palyra.state.mark": "palyra.log.high_water", "palyra.redact": "palyra.redaction"},
    names={"palyra.launch.held.Held": "PreparedSandbox"},
    attributes={"road": "launch_mode"},
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from palyra.state import mark, sqlite\nmark.read()\n",
         "from palyra.state import sqlite; from palyra.log import high_water\nhigh_water.read()\n"),
        ("from palyra.state import mark as seen\nseen.read()\n",
         "from palyra.log import high_water as seen\nseen.read()\n"),
        ("from palyra import redact\nredact.stream\n", "from palyra import redaction\nredaction.stream\n"),
        ("from palyra.launch.held import Held\nheld: Held = Held(road=1)\n",
         "from palyra.launch.held import PreparedSandbox\nheld: PreparedSandbox = PreparedSandbox(launch_mode=1)\n"),
        ("from palyra.launch.held import Held as H\nH().road\n",
         "from palyra.launch.held import PreparedSandbox as H\nH().launch_mode\n"),
        ("from palyra.launch import held\nheld.Held\n", "from palyra.launch import held\nheld.PreparedSandbox\n"),
        ("from palyra.launch import held\nsetattr(held, 'Held', 1)\n",
         'from palyra.launch import held\nsetattr(held, "PreparedSandbox", 1)\n'),
        ("class Held:\n    pass\nmark = Held()\n", "class Held:\n    pass\nmark = Held()\n"),
        ("def f(mark):\n    return mark\n", "def f(mark):\n    return mark\n"),
    ],
)  # fmt: skip
def test_what_refers_to_a_renamed_thing_is_renamed(before: str, after: str) -> None:
    assert rewrite_code(before, "palyra.engine.walk", RENAMES) == after


def test_the_module_that_defines_a_name_gets_the_new_one() -> None:
    before = "class Held:\n    road: int\n\n    def copy(self) -> Held:\n        return Held(road=self.road)\n"
    after = before.replace("Held", "PreparedSandbox").replace("road", "launch_mode")
    assert rewrite_code(before, "palyra.launch.held", RENAMES) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"palyra.redact.stream"', '"palyra.redaction.stream"'),
        ("src/palyra/state/mark.py", "src/palyra/log/high_water.py"),
        ("tests/unit/state/test_mark.py", "tests/unit/log/test_high_water.py"),
        ("tests/unit/redact", "tests/unit/redaction"),
        ('"palyra.launch.held.Held"', '"palyra.launch.held.PreparedSandbox"'),
        ("palyra.redacted", "palyra.redacted"),
        ('"redact"', '"redact"'),
        ("# see redact/stream and state/mark", "# see redaction/stream and log/high_water"),
        ('mark = "redact/stream"', 'mark = "redact/stream"'),
    ],
)
def test_dotted_names_paths_and_prose_follow(before: str, after: str) -> None:
    assert rewrite_text(before, RENAMES, is_python=True) == after


def test_pages_name_a_class_in_backticks() -> None:
    assert (
        rewrite_prose("`Held` is held by `Held.pid`", RENAMES) == "`PreparedSandbox` is held by `PreparedSandbox.pid`"
    )
