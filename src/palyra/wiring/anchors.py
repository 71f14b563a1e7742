"""What outside witnesses have seen of this journal: compared with it at every start, shown the newest head at the end.

A journal that is shorter than, or different from, what a witness has seen is not gone on with: somebody put an old copy
back or wrote another history. Without witnesses this costs one look-up.
"""

from __future__ import annotations

import logging

from palyra.errors import StateError
from palyra.journal.lookup import TREE_SIZE
from palyra.state.writer import Writer

log = logging.getLogger("palyra.wiring")
STEPS = 1024
"""A process that makes one call shows its head only when this many entries came since; the others always."""


def anchor(writer: Writer, *, thorough: bool) -> None:
    """`StateError` when a witness has seen more or something else. Thorough: the tree is hashed, not only counted."""
    if not writer.rows("SELECT 1 FROM witnesses LIMIT 1"):
        return
    from palyra.state.anchors import anchors, check_anchors  # most homes have no witness

    found = tuple(anchors(writer.rows, writer.home.origin))
    for one in found:
        if one.problem is not None:
            log.warning("witness %s does not answer: %s", one.name, one.problem)
    check_anchors(writer, found, thorough=thorough)


def show_head(writer: Writer, *, now_unix_ms: int) -> None:
    rows = writer.rows(f"SELECT ({TREE_SIZE}) - size FROM witnesses")  # noqa: S608
    # Seen more than there is, says a row: nobody is kept from being asked by a number that somebody put there.
    if not any(since is not None and not 0 <= since < STEPS for (since,) in rows):
        return
    from palyra.state.witness import push_heads

    try:
        for shown in push_heads(writer, at_unix_ms=now_unix_ms):
            if shown.refusal is not None:
                log.warning("witness %s did not accept the head: %s", shown.name, shown.refusal)
    except StateError as error:
        log.warning("no head could be shown: %s", error.detail)
