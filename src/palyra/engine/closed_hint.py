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

_SAID = (
    *(b"Device or resource busy", b"Read-only file system", b"could not remove '"),
    *(b"EBUSY", b"EROFS", b"os error 16", b"os error 30"),
)
"""As C, node and Rust print it. `could not remove` is git's, of a rebase that it cannot end."""
_DENIED = (b"Permission denied", b"EACCES")
"""What a write to a hidden file is answered; of other paths it says nothing."""
_GOES_ON = {
    "rebase-merge": '["rebase", "--continue"]',
    "rebase-apply": '["am", "--continue"]',
    "sequencer": '["cherry-pick", "--continue"]',
}
"""What git left half done, and how it goes on (guard/gitsteps)."""
MAX_BYTES = 1 << 16
"""Of the end of what it said, in which every closed path is looked for."""


def closed_hint(closed: Sequence[tuple[str, str]], stderr: bytes, *, workspace: str, cwd: str) -> str | None:
    """Return the hint about the closed path that the program most likely failed on.

    `closed` is the plan's. The path that says most comes first: `.git/hooks` before `.git`."""
    stderr = stderr[-MAX_BYTES:]
    is_busy = any(said in stderr for said in _SAID)
    if not closed or not (is_busy or any(said in stderr for said in _DENIED)):
        return None
    told = stderr.decode("utf-8", "surrogateescape")
    ordered = sorted(closed, key=lambda one: len(one[1]), reverse=True)
    for names_of in (_names, _names_inside):
        for kind, path in ordered:
            named = path.isprintable() and any(name in told for name in names_of(kind, path, workspace, cwd))
            if named and (is_busy or kind == "hidden_file"):
                return _about(kind, posixpath.relpath(path, workspace))
    return None


def _about(kind: str, path: str) -> str:
    name = posixpath.basename(path)
    if kind == "hidden_file":
        return (
            f"{path} was not made by this run alone, and is kept from agents: programs neither read nor change it. "
            f"Export the variables in the shell that needs them, or use a file of another name. {_OUTSIDE}"
        )
    if name.startswith(".env"):
        return f"{path} is its owner's: programs read it and do not change it. Write a file of another name. {_OUTSIDE}"
    if kind == "parent":
        return (
            f"{path} holds files that are closed to programs, so it stays where it is: other programs of this machine "
            f"run or obey them. Work on a copy (cp -r), which is the run's own, or on single files. {_OUTSIDE}"
        )
    return (
        f"{path} is closed to programs, and cannot be changed or removed by one: other programs of this machine run or "
        f"obey what is in it. {_instead(name)}"
    )


_OUTSIDE = "An operator can do that outside."


def _instead(name: str) -> str:
    words = _GOES_ON.get(name)
    if words is None:
        return (
            "A setting of git's can be given for one call with git -c; a copy (cp -r) or a repository that the run "
            f"creates is its own. {_OUTSIDE}"
        )
    return (
        f'git itself goes on with it in a call of its own, without a shell: command="git", args={words} (or --skip, '
        f"--abort, --quit), at the top of the workspace, where no step of it is an exec. {_OUTSIDE}"
    )


def _names(kind: str, path: str, workspace: str, cwd: str) -> Iterator[str]:
    """Yield what a program may have called it. A folder that only has a closed path in it may be called anything, so
    its name counts in quotes alone."""
    yield path
    for start in (workspace, cwd):
        name = posixpath.relpath(path, start)
        yield name if kind != "parent" else f"'{name}'"


def _names_inside(kind: str, path: str, workspace: str, cwd: str) -> Iterator[str]:
    """Yield what git calls it after `cd proj`, which the call's own folder does not tell."""
    _, found, inner = path.rpartition("/.git/")
    if kind != "parent" and found:
        yield f".git/{inner}"
