"""`palyra demo` where nothing can be shown: it says so once and stops."""

from __future__ import annotations

import orjson
import pytest
from click.testing import CliRunner

from palyra.cli import demo
from palyra.errors import Reason


def test_the_demo_stops_at_the_first_step_without_a_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[object] = []

    def play(*step: object) -> dict[str, object]:
        played.append(step)
        return {"status": "refused", "reason": Reason.UNENFORCEABLE.value, "as_expected": False}

    monkeypatch.setattr(demo, "_play", play)
    words = CliRunner().invoke(demo.command, standalone_mode=False)
    assert (words.return_value, len(played)) == (1, 1)
    assert "The demo stopped: it needs a sandbox." in words.output
    value = orjson.loads(CliRunner().invoke(demo.command, ["--json"]).stdout)
    assert (value["ok"], len(value["steps"]), len(played)) == (False, 1, 2)
