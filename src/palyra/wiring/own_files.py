"""Reads Palyra's own programs for sandboxes from the package, once a process.

They are copied into each sandbox under a path of their own, so that neither where Palyra is installed nor who may read
that folder matters inside.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from palyra import inside
from palyra.sandbox.view import OWN_FOLDER

MODULES = ("beneath", "changes", "edits", "files", "learner", "listing", "page", "patch", "search")


@cache
def read_own_files() -> tuple[tuple[str, bytes], ...]:
    folder = Path(str(inside.__file__)).parent
    return tuple((f"{OWN_FOLDER}/{name}.py", (folder / f"{name}.py").read_bytes()) for name in MODULES)
