"""What to do about what an audit found: one sentence, by the gravest of the findings. Not here: the audit."""

from __future__ import annotations

from collections.abc import Iterable

KEEP = "Stop what uses this home and keep a copy of it as it is. "
_NOT_CHANGED = frozenset({"KEPT", "DANGLING", "STANDING", "MORE", "KNOWN"})
_GRAVEST = 3
_ADVICE = (
    (
        frozenset({"KEY"}),
        "It is the journal of another installation, or was written anew under another key: do not rely on it, and ask "
        "whoever gave you the key.",
    ),
    (
        frozenset({"TRUNCATED", "FORK"}),
        f"{KEEP}An older or another journal lies here: restore the newest backup, and compare it with what "
        "witnesses and receipts name (--known FILE).",
    ),
    (frozenset({"UNREADABLE"}), f"{KEEP}Check the disk, then restore the newest backup."),
    (
        frozenset({"KNOWN"}),
        "Check what was given with --known, and the witnesses: one of them is of another journal, or was written to.",
    ),
    (
        frozenset({"KEPT"}),
        f"{KEEP}The entries are whole, rows beside them are not: something other than Palyra wrote to the "
        "database. Restore a backup from before, or put back by hand what the entries say (palyra journal tail).",
    ),
    (
        frozenset({"STANDING"}),
        "The entries are whole and contradict each other: look at those that are named (palyra journal show INDEX).",
    ),
    (
        frozenset({"DANGLING"}),
        "Calls were cut off. They are closed by whoever may write this home: run palyra journal verify as its owner.",
    ),
)


def advice_on(codes: Iterable[str]) -> str | None:
    """None where nothing was found."""
    found = frozenset(codes)
    if not found:
        return None
    for named, sentence in _ADVICE[:_GRAVEST]:
        if found & named:
            return sentence
    if found - _NOT_CHANGED:
        return (
            f"{KEEP}Something other than Palyra wrote to it: restore a backup from before the first entry that is "
            "named. Exports and receipts from before still verify."
        )
    return next((sentence for named, sentence in _ADVICE[_GRAVEST:] if found & named), None)
