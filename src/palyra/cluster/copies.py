"""Copies of workspaces on a node, kept between calls: the next call of a workspace finds most of it there.

Rules: a copy serves one call at a time and one workspace in its life; before a call it is made what the call's digest
says, by what differs; after a call that went wrong, or that left what no tree can carry (a socket, a pipe), it is
thrown away. The number of idle ones is bounded, the longest idle going first. A sandbox that was started ahead for a
copy fits its next call too.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from palyra.cluster import moving, trees
from palyra.cluster.blobs import Blobs
from palyra.launch.removing import remove_tree
from palyra.model.plan import ProcessPlan

PREFIX = "copy-"
Owner = tuple[int, int] | None


@dataclass(slots=True, kw_only=True)
class Copy:
    workspace: str
    owner: Owner
    folder: Path
    tree: Mapping[str, trees.Node] = field(default_factory=dict)
    sha256: str = ""
    """The tree's, where it is known."""
    known: dict[str, tuple[tuple[int, ...], trees.Node]] = field(default_factory=dict)
    _last: tuple[ProcessPlan, ProcessPlan] | None = None
    """The plan that was moved here last, and as it was moved."""

    def moved(self, plan: ProcessPlan) -> ProcessPlan:
        """With this copy in its workspace's place; of the same plan the same one, so that its sandbox is found."""
        if self._last is None or self._last[0] is not plan:
            self._last = plan, moving.moved(plan, self.workspace, str(self.folder))
        return self._last[1]


class Copies:
    def __init__(self, folder: Path, blobs: Blobs, *, most_idle: int) -> None:
        self._folder, self._blobs, self._most_idle = folder, blobs, most_idle
        self._idle: list[Copy] = []
        """The longest idle first."""
        self._guard = threading.Lock()  # threads lay out and bring in beside each other
        for left in folder.glob(f"{PREFIX}*"):  # of a node that was killed
            remove_tree(left)

    def lay_out(self, workspace: str, owner: Owner, base: trees.Tree) -> Copy:
        """A copy that holds exactly `base`; blocks as files do."""
        copy = self._find(workspace, owner)
        try:
            trees.write(trees.changes(copy.tree, base), copy.folder, self._blobs, owner=owner)
        except BaseException:
            self.discard(copy)
            raise
        copy.tree, copy.sha256 = base, ""
        return copy

    def find(self, workspace: str, owner: Owner, sha256: str) -> Copy | None:
        """One that holds this very tree already; nothing is read or written."""
        with self._guard:
            for at in range(len(self._idle) - 1, -1, -1):
                one = self._idle[at]
                if (one.workspace, one.owner, one.sha256) == (workspace, owner, sha256):
                    return self._idle.pop(at)
        return None

    def is_unchanged(self, copy: Copy) -> bool:
        """A small one whose files are what they were; False also where that takes a longer look."""
        return trees.is_same(copy.folder, copy.tree, copy.known, most=trees.SMALL)

    def read(self, copy: Copy) -> tuple[trees.Tree, bool]:
        """What is there now, and whether all of it could be told."""
        others: list[str] = []
        copy.tree, copy.sha256 = trees.take(copy.folder, self._blobs, copy.known, others), ""
        return copy.tree, not others

    def keep(self, copy: Copy) -> None:
        with self._guard:
            self._idle.append(copy)
            surplus = self._idle[: -self._most_idle]
            del self._idle[: -self._most_idle]
        for one in surplus:
            self.discard(one)

    def discard(self, copy: Copy) -> None:
        remove_tree(copy.folder)

    def _find(self, workspace: str, owner: Owner) -> Copy:
        with self._guard:
            for at in range(len(self._idle) - 1, -1, -1):
                if (self._idle[at].workspace, self._idle[at].owner) == (workspace, owner):
                    return self._idle.pop(at)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._folder))
        folder.chmod(0o755)
        if owner is not None:
            os.chown(folder, *owner)
        return Copy(workspace=workspace, owner=owner, folder=folder)
