"""What was different in a workspace after a call: two looks at its folders, compared. Pure.

A look may stop early (count, depth, time). So that a folder it did not come to is never told as deleted, only folders
that both looks listed whole are compared; what lies below a folder that is new, or gone, is new or gone with it.

A file counts as modified when its number, size, mode or times differ. Its change time is the kernel's: a program can
set back the time of its last write, not that one. Not here: looking (guard/look_changes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from palyra.canon import Json, digest
from palyra.values import dataclass

Stamp = tuple[int, ...]
"""Of a file: everything that tells two of them apart. Of a folder: its number and mode; its entries speak for it."""

MAX_LISTED = 200
"""Of each kind in an outcome; the numbers and the digest are of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    folders: Mapping[str, Mapping[str, Stamp]] = field(default_factory=dict)
    """By path below the workspace ("" is itself), each that was listed to its end."""
    whole: bool = True
    """Nothing was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    created: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    complete: bool = True

    def as_json(self) -> dict[str, Json]:
        kinds = {"created": self.created, "modified": self.modified, "deleted": self.deleted}
        listed: dict[str, Json] = {name: [*paths[:MAX_LISTED]] for name, paths in kinds.items()}
        whole: dict[str, Json] = {name: [*paths] for name, paths in kinds.items()}
        return {
            **listed,
            "counts": {name: len(paths) for name, paths in kinds.items()},
            "complete": self.complete,
            "sha256": digest(whole),
        }


def compare(before: Snapshot, after: Snapshot) -> Changes:
    created: list[str] = []
    modified: list[str] = []
    deleted: list[str] = []
    for folder in before.folders.keys() & after.folders.keys():
        old, new = before.folders[folder], after.folders[folder]
        for name in old.keys() | new.keys():
            path = f"{folder}/{name}" if folder else name
            if name not in old:
                created += [path, *_below(after, path)]
            elif name not in new:
                deleted += [path, *_below(before, path)]
            elif old[name] != new[name]:
                modified.append(path)
    return Changes(
        created=tuple(sorted(created)),
        modified=tuple(sorted(modified)),
        deleted=tuple(sorted(deleted)),
        complete=before.whole and after.whole,
    )


def _below(snapshot: Snapshot, folder: str) -> Iterator[str]:
    for name in snapshot.folders.get(folder, ()):
        yield f"{folder}/{name}"
        yield from _below(snapshot, f"{folder}/{name}")
