"""What `--known` is given may come from an agent: it is read at the cost of its length, or refused."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from palyra.cli import verify_json
from palyra.cli.journal_verify import checkpoint_of

NOTE = "origin\n1\nroot\n"


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        (b'{"receipt":{"checkpoint":"a"},"output":[' + b"[]," * 1_000_000 + b"[]]}", "more than 1000000 values"),
        (b'{"checkpoint":"a","checkpoint":"b"}', "A key appears twice"),
        (b'{"receipt":7}', "neither a checkpoint nor an outcome"),
        (b"\xff" * 9, "is not text"),
    ],
)
def test_a_known_outcome_that_is_a_bomb_or_has_two_readings_is_refused(
    tmp_path: Path, written: bytes, problem: str
) -> None:
    path = tmp_path / "known.json"
    path.write_bytes(written)
    with pytest.raises(click.UsageError, match=problem):
        checkpoint_of(path)


def test_a_known_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was read until memory was full, and a verifier given a device or a pipe ended with an error of its own."""
    monkeypatch.setattr(verify_json, "MAX_FILE_BYTES", 1 << 20)
    with pytest.raises(click.UsageError, match="larger than 1048576 bytes"):
        checkpoint_of(Path("/dev/zero"))


@pytest.mark.parametrize(
    "text", [NOTE, '{"checkpoint":"origin\\n1\\nroot\\n"}', ' {"receipt":{"checkpoint":"origin\\n1\\nroot\\n"}}']
)
def test_a_checkpoint_is_found_as_it_was_saved(tmp_path: Path, text: str) -> None:
    path = tmp_path / "known"
    path.write_text(text)
    assert checkpoint_of(path) == NOTE
