"""Whether git may go on with what it left half done: a rebase, a series of picks or reverts, a mailbox.

What comes next stands in folders of the repository, commands of a shell among it (`exec id`), and the operator's own
`git rebase --continue` obeys them: they are closed (guard/protected), and by its words alone going on counts as code.
There is one exception: what stands there was read and names no program, and the call is git itself with nothing but
`--continue`, `--skip`, `--abort` or `--quit`, told to run no hook or editor (gitenv). Then git is all that runs, it
writes there what any git would have written, and the call needs no interpreter. Pure.

Not here: reading those folders (look_git), which words of git's count as code (gitline).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from palyra.guard.gitconfig import read_settings
from palyra.guard.gitline import STRATEGIES, read_git, subcommand_words
from palyra.guard.programs import normalise

MERGING, MAILS, PICKS = "rebase-merge", "rebase-apply", "sequencer"
FOLDERS: Final = (MERGING, MAILS, PICKS)
TODO: Final = {MERGING: "git-rebase-todo", PICKS: "todo"}
"""What comes next, a line each. `git am` has none: its steps are mails."""
OPTIONS: Final = {MERGING: "strategy", PICKS: "opts"}
"""Where a strategy is named, as a word and as a setting: another than git's own is a program's name."""

_WAYS = frozenset({"--continue", "--skip", "--abort", "--quit"})
_GOES_ON: Final = {
    "rebase": ((MERGING, MAILS), _WAYS),
    "am": ((MAILS,), _WAYS | {"--resolved", "-r"}),
    "cherry-pick": ((PICKS,), _WAYS),
    "revert": ((PICKS,), _WAYS),
}
_STEPS = frozenset(
    """
    pick p revert edit e reword r fixup f squash s label l reset t merge m update-ref u noop break b drop d
    """.split()
)
"""Every step that git knows but `exec`."""


def names_no_program(folder: str, todo: bytes, options: bytes) -> bool:
    """Of one such folder: its steps, and what it says of a strategy."""
    lines = (line.split() for line in todo.decode("latin-1").split("\n"))
    if not all(not words or words[0].startswith("#") or words[0] in _STEPS for words in lines):
        return False
    if folder != PICKS:
        return options.decode("latin-1").strip() in (*STRATEGIES, "")
    try:
        settings = list(read_settings(options))
    except ValueError:
        return False
    return all(section == "options" and (key != "strategy" or value in STRATEGIES) for section, key, value in settings)


def opened_steps(command: str, args: Sequence[str], workspace: str, resumable: Sequence[str]) -> tuple[str, ...]:
    """Of the folders that were read and name no program, those that this call goes on with; nothing for another."""
    words = subcommand_words(args) if resumable and normalise(command) == "git" else ()
    folders, ways = _GOES_ON.get(words[0] if words else "", ((), frozenset[str]()))
    if len(words) != 2 or words[1] not in ways or read_git(args[:-1]).why:
        return ()
    return tuple(path for path in (f"{workspace}/.git/{name}" for name in folders) if path in resumable)
