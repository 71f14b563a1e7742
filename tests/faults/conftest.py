"""Faults of the machine under the whole product: what every test here holds an answer to.

An answer is either what was asked for, or a refusal: one line with what is wrong, one with what to do. Never a
traceback, never a half-written state, and nothing that was acknowledged is gone afterwards.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest


@pytest.fixture(scope="session")
def own_mounts() -> tuple[str, ...]:
    """Words before a command that give it a mount table of its own."""
    words = (shutil.which("unshare") or "unshare", "--user", "--map-root-user", "--mount")
    if subprocess.run([*words, "true"], capture_output=True).returncode:
        pytest.skip("no user namespaces here, so nothing can be mounted")
    return words


def check_said(stderr: bytes, *, code: str = "") -> None:
    """Two lines of ours, the first with its code where a call was refused, the second with what to do."""
    lines = [line for line in stderr.decode().splitlines() if line.startswith(("palyra:", "hint:"))]
    assert b"Traceback" not in stderr, stderr.decode()
    assert b"internal error" not in stderr, stderr.decode()
    assert len(lines) >= 2, stderr.decode()
    assert lines[0].startswith(f"palyra: {code}"), lines
    assert lines[1].startswith("hint: "), lines
    assert len(lines[1]) > len("hint: ..."), lines
