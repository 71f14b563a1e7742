"""What a check-up tells of a home."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from palyra.wiring import checkup
from palyra.wiring.checkup import BROKEN, OK


def test_a_home_that_cannot_be_written_is_not_fit_for_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "palyra.db").touch()
    assert (checkup._journal_check(tmp_path, 3).status, checkup._journal_check(tmp_path, 3).detail) == (
        OK,
        f"{tmp_path}, 3 entries",
    )
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # root may write everywhere else
    check = checkup._journal_check(tmp_path, 3)
    assert (check.status, "every call is refused" in check.detail, bool(check.fix)) == (BROKEN, True, True)
