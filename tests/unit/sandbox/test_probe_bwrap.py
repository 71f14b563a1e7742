"""What the trial of a sandbox decides by itself. The sandbox is looked at in tests/conformance/test_probe.py."""

from __future__ import annotations

import pytest

from palyra.sandbox import probe_bwrap as under_test


@pytest.mark.parametrize(
    ("release", "modern"),
    [("6.14.0", True), ("6.18.44-fc-v490", True), ("7.0", True), ("6.13.9", False), ("5.15", False), ("x", False)],
)
def test_kernels_are_compared_by_number(release: str, modern: bool) -> None:
    assert under_test._kernel_at_least(release, 6, 14) is modern
