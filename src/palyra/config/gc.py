"""`[gc]`: how long what calls leave behind is kept. Nothing is removed unless `palyra gc` is run.

Not here: records and entries of the journal, which have settings of their own (`[journal]`).
"""

from __future__ import annotations

from typing import Final

from palyra.values import dataclass

RANGES: Final[dict[str, tuple[int, int]]] = {
    "keep_artifacts_days": (0, 36_500),
    "keep_logs_days": (0, 36_500),
    "keep_blobs_days": (0, 36_500),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GcConfig:
    """`[gc]`: what `palyra gc` removes."""

    keep_artifacts_days: int = 30
    """Artifacts (large outputs in full) older than this may be removed. 0 keeps them."""
    keep_logs_days: int = 30
    """Logs of background processes that ended longer ago may be removed. 0 keeps them."""
    keep_blobs_days: int = 7
    """In a cluster: files of workspaces in `[cluster.blobs]` that no call has used for this long may be removed, by the
    store's own clock. A call that needs one later uploads it again. 0 keeps them."""
