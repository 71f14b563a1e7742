"""Whether a call pushes with git, and what the push is given: what git is told, and what it may reach, hangs on it.

A push is the subcommand, not the word: a commit's message, a branch or a file may be called so, and `git stash push`
sends nothing anywhere. Where git stands behind a wrapper that says where its command begins (`timeout 5 git push`) it
is read there. Rules: where that cannot be said (`env -S`, `find -exec`, an alias, an option of git's that is not known
here) any word that says push is one, in whatever quotes; nobody loses more by that than a folder to push to.

Not here: where a push to a folder leads (gitline), what git is told then (gitenv).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palyra.guard.gitline import PLAIN, read_git
from palyra.guard.programs import normalise
from palyra.guard.wrappers import command_index

_WITHOUT_QUOTES: Final = str.maketrans("", "", "'\"")


def push_words(command: str, args: Sequence[str]) -> tuple[str, ...] | None:
    """What stands behind `push`; None for a call that does not push."""
    name, rest = normalise(command), args
    while name != "git":
        at = command_index(name, rest)
        if at < 0:
            return _loosely(args)
        name, rest = normalise(rest[at]), rest[at + 1 :]
    reading = read_git(rest)
    if reading.subcommand == "push":
        return tuple(rest[reading.at + 1 :])
    return None if reading.subcommand in PLAIN else _loosely(args)


def _loosely(args: Sequence[str]) -> tuple[str, ...] | None:
    """One argument of `env -S` holds several words, quotes and all."""
    words = [word for argument in args for word in (argument.translate(_WITHOUT_QUOTES).split() or [argument])]
    return tuple(words[words.index("push") + 1 :]) if "push" in words else None
