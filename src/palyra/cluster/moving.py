"""Which plans may run on another machine, and the same plan with another folder in its workspace's place. Pure.

A plan moves when nothing of it is tied to the daemon: a bubblewrap sandbox without granted hosts (those are served,
with their credentials, where the daemon is), without a stream as stdin, that ends with its call.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import replace

from palyra.errors import TrustError
from palyra.model.plan import ProcessPlan, Word

_BINDS = frozenset({"--bind", "--ro-bind", "--ro-bind-try"})
BACKEND = "bubblewrap"


def why_here(plan: ProcessPlan) -> str:
    """Why a plan has to run where the daemon is; empty for one that may go to a node."""
    reasons = {
        "a node offers bubblewrap sandboxes only": plan.backend != BACKEND or plan.road != "held",
        "its hosts are granted, and those are served where the daemon is": plan.face is not None,
        "its stdin is a stream of a client of the daemon": plan.stdin_streamed,
        "it outlives its call": bool(plan.lifetime),
        "it uses caches of this machine": bool(plan.caches),
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def workspace_of(plan: ProcessPlan) -> str | None:
    """The bound folder that the program works in; None for a plan that has to run where the daemon is."""
    if why_here(plan):
        return None
    shown = [source for source, place in _binds(plan.launcher) if source == place and _holds(place, plan.cwd)]
    return max(shown, key=len, default=None)


def check_changes(plan: ProcessPlan, workspace: str, names: Iterable[str]) -> None:
    """What a node says was changed lies where its sandbox let the program write: the mounts are in its namespace, and
    what it claims is its word alone. `TrustError` for anything else."""
    words = plan.launcher
    mounts = [
        (str(words[at + 2]), word == "--bind")
        for at, word in enumerate(words)
        if word in _BINDS and _holds(workspace, str(words[at + 2]))
    ]
    mounts += [(str(path), False) for kind, path in plan.closed if kind != "parent"]
    for name in names:
        place = posixpath.join(workspace, name)
        over = [mount for mount in mounts if _holds(mount[0], place)]
        if not over or not max(over, key=lambda mount: len(mount[0]))[1]:
            raise TrustError(f"The node says that {name[:80]!r} was changed, which the program could not.")


def moved(plan: ProcessPlan, workspace: str, folder: str) -> ProcessPlan:
    """Inside everything is where it was; outside the workspace is `folder`."""
    words = list(plan.launcher)
    for at, word in enumerate(plan.launcher):
        if word in _BINDS and _holds(workspace, str(plan.launcher[at + 1])):
            inner = posixpath.relpath(str(plan.launcher[at + 1]), workspace)
            words[at + 1] = folder if inner == "." else posixpath.join(folder, inner)
    return replace(plan, launcher=tuple(words))


def _binds(launcher: tuple[Word, ...]) -> list[tuple[str, str]]:
    return [(str(launcher[at + 1]), str(launcher[at + 2])) for at, word in enumerate(launcher) if word in _BINDS]


def _holds(folder: str, place: str) -> bool:
    return place == folder or place.startswith(folder.rstrip("/") + "/")
