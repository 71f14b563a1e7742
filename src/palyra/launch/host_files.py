"""Files and folders of the host as they were seen once, and whether they are the same still.

Small, because every start asks: what copies them comes in only where a second sandbox is started (etc_folder).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import attrgetter
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int, int, int, int, int]
Seen: TypeAlias = tuple[tuple[str, Identity | None], ...]
"""Paths of the host and what was found there; None where there is nothing."""


def is_unchanged(seen: Seen) -> bool:
    """Asked in every call that takes a sandbox from a pool: no generator, and no error about what is not there."""
    try:
        for path, was in seen:
            if os.access(path, os.F_OK) if was is None else _identity_in(os.stat(path)) != was:
                return False
    except OSError:
        return False
    return True


def identity(path: str) -> Identity | None:
    """Links followed, as a launcher does."""
    try:
        return _identity_in(os.stat(path))
    except OSError:
        return None


_identity_in: Callable[[os.stat_result], Identity] = attrgetter(
    "st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns"
)
