"""Why a program could not write a file of its own workspace: the path is closed, which nothing it was told says.

The kernel answers a write to a closed path with words that programs print as they are ("Device or resource busy",
"Read-only file system"), if they print any, and whoever reads them looks for a broken disk. Where a program failed,
said one of them and named such a path, that is most likely why. Rules: a hint only, from what a program printed, which
may be made up.

Not here: what is closed, and why (guard/protected), how (sandbox/view).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

_SAID = (b"Device or resource busy", b"Read-only file system", b"could not remove '")
"""The last is git's, of a rebase that it cannot end."""
_GOES_ON = {
    "rebase-merge": '["rebase", "--continue"]',
    "rebase-apply": '["am", "--continue"]',
    "sequencer": '["cherry-pick", "--continue"]',
}
"""What git left half done, and how it goes on (guard/gitsteps)."""
MAX_BYTES = 1 << 16
"""Of the end of what it said, in which every closed path is looked for."""


def closed_hint(closed: Sequence[tuple[str, str]], stderr: bytes, *, workspace: str, cwd: str) -> str | None:
    """`closed`: of the plan. The path that says most comes first: `.git/hooks` before `.git`."""
    stderr = stderr[-MAX_BYTES:]
    if not closed or not any(said in stderr for said in _SAID):
        return None
    told = stderr.decode("utf-8", "surrogateescape")
    for kind, path in sorted(closed, key=lambda one: len(one[1]), reverse=True):
        if path.isprintable() and any(name in told for name in _names(kind, path, workspace, cwd)):
            return (
                f"{posixpath.relpath(path, workspace)} is closed to programs, and cannot be changed or removed by one: "
                f"other programs of this machine run or obey what is in it. {_instead(path)}"
            )
    return None


def _instead(path: str) -> str:
    words = _GOES_ON.get(posixpath.basename(path))
    if words is None:
        return "Do that outside; a setting of git's can be given for one call with git -c."
    return (
        f'git itself goes on with it in a call of its own, without a shell: command="git", args={words} (or --skip, '
        "--abort, --quit), at the top of the workspace, where no step of it is an exec. Otherwise do that outside."
    )


def _names(kind: str, path: str, workspace: str, cwd: str) -> Iterator[str]:
    """How a program may have called it. A folder that only has a closed path in it may be called anything."""
    yield path
    if kind != "parent":
        yield posixpath.relpath(path, workspace)
        yield posixpath.relpath(path, cwd)
