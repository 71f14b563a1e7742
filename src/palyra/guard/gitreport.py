"""Whether git, behind the work of a call, looks into submodules that the call itself may have brought.

`git checkout`, `git switch`, `git stash pop` and `git bisect reset` end with what is changed now. For each submodule of
the index they have just made that is a `git status` in its folder, where the .gitmodules they have just written says
`ignore = none`: no setting and no environment stands above that. Which repository that will be only a commit tells, and
nobody here reads commits; so where git reports, every repository in the workspace counts (look_git). Pure.

Rules: -q stops it, and is believed where it cannot be anything else: right behind the words that report. Where git's
words cannot be found behind a wrapper, any word that reports does. A rebase, a merge and a pull report where they put
changes aside first and back again, whatever they are told of quiet; they are told to by a word or by a setting. What a
merge has put aside is put back by whatever ends it, a commit too, and any call can write that something was.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

from palyra.guard.gitline import PLAIN, read_git
from palyra.guard.programs import normalise
from palyra.guard.wrappers import command_index

_SWITCHES: Final = frozenset({"checkout", "switch"})
_STASHES: Final = frozenset({"apply", "pop", "branch"})
_JOINS: Final = frozenset({"merge", "rebase", "pull"})
_ENDS: Final = frozenset({"commit", "cherry-pick", "revert", "am"})
_QUIET: Final = ("-q", "--quiet")


class Reports(Enum):
    NEVER = 0
    WITH_A_STASH_LEFT = 1
    """Where something waits to be put back."""
    BEHIND_A_STASH = 2
    """There, and where settings say that changes are put aside and back."""
    ALWAYS = 3


def reports_of(command: str, args: Sequence[str]) -> Reports:
    name, rest = normalise(command), args
    while name != "git":
        at = command_index(name, rest)
        if at < 0:
            return _loosely(args)
        name, rest = normalise(rest[at]), rest[at + 1 :]
    reading = read_git(rest)
    if reading.subcommand not in PLAIN:
        return _loosely(args)
    words = rest[reading.at + 1 :]
    if reading.subcommand in _SWITCHES:
        return Reports.NEVER if _is_quiet(words) else Reports.ALWAYS
    if reading.subcommand == "stash":
        return _of_stash(words)
    if reading.subcommand == "bisect":
        return Reports.ALWAYS
    if reading.subcommand not in _JOINS:
        return Reports.WITH_A_STASH_LEFT if reading.subcommand in _ENDS else Reports.NEVER
    stashes = any(word.startswith("--au") for word in words) or any("autostash" in word.lower() for word in rest)
    return Reports.ALWAYS if stashes else Reports.BEHIND_A_STASH


def _of_stash(words: Sequence[str]) -> Reports:
    if _STASHES.isdisjoint(words) or (words[0] in ("apply", "pop") and _is_quiet(words[1:])):
        return Reports.NEVER
    return Reports.ALWAYS


def _is_quiet(words: Sequence[str]) -> bool:
    return bool(words) and words[0] in _QUIET and not any(word.startswith("--no-q") for word in words)


def _loosely(args: Sequence[str]) -> Reports:
    """One argument of `env -S` or of a shell holds several words."""
    known = (*_SWITCHES, "stash", "bisect", *_JOINS, *_ENDS)
    return Reports.ALWAYS if any(word in argument for argument in args for word in known) else Reports.NEVER
