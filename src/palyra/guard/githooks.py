"""Which git calls run a hook of the repository although `core.hooksPath` says otherwise. Pure.

git up to at least 2.39 reads `core.hooksPath` with its default settings, and `git bisect` and `git remote` update
references without reading those: `.git/hooks/reference-transaction` runs (git 2.55 obeys the setting). So where such a
hook lies in a repository, only a call whose subcommand is known to obey the setting counts as running no code.

Not here: finding the hook (look_git), the setting (gitenv).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palyra.guard.gitline import PLAIN, read_git
from palyra.guard.programs import normalise
from palyra.guard.wrappers import command_index

IGNORED_HOOK: Final = "hooks/reference-transaction"
"""The one hook that such calls run; tests/escape/test_git_hooks tries every subcommand with every hook."""
OBEYING: Final = PLAIN - frozenset("bisect clone init init-db remote".split())
"""`clone` and `init` make references before they read any setting; newer versions do so in a transaction."""


def obeys_hooks_path(command: str, args: Sequence[str]) -> bool:
    """False where it cannot be told which git is started: behind `find -exec`, `xargs` or `env -S`."""
    name, rest = normalise(command), args
    while name != "git":
        at = command_index(name, rest)
        if at < 0:
            return False
        name, rest = normalise(rest[at]), rest[at + 1 :]
    subcommand = read_git(rest).subcommand
    return not subcommand or subcommand in OBEYING
