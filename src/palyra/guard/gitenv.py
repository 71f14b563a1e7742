"""What git is told through its environment when a call was judged to run no code: then git runs none either.

git obeys what lies in a repository, and a call can make one: hooks, `core.fsmonitor`, an ssh command, a bare repository
in a folder. Settings given by the environment stand above every file; they reach the repositories of submodules too.
So a hook does not run for `git commit` where the call may not run interpreters; where it may, nothing here is set.
A push reaches no folder at all: the hooks there run without these settings, and which remote is a folder can stand in a
file that the agent wrote (`.git/remotes/NAME`, `.git/branches/NAME`).

What cannot be set this way, because any name will do: filters, text conversions, external diffs and merge drivers of a
repository whose config the agent wrote itself: where there was none to close (guard/protected), and nested ones that
`git add` or `.gitmodules` leads git into. Those are looked for (gitconfig). Arguments are never rewritten.

Not here: which git commands count as code (gitline), which of them push (gitpush).
"""

from __future__ import annotations

from typing import Final

NOWHERE: Final = "/dev/null"

SETTINGS: Final = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", NOWHERE),
    ("core.sshCommand", "ssh"),
    ("credential.helper", ""),  # an empty one forgets those named before it
    # Looking into them obeys their own settings. Which commit they are at is read without, and has to be seen: with
    # "all" a submodule that moved was in no status, no diff and no commit.
    ("diff.ignoreSubmodules", "dirty"),
    ("diff.submodule", "short"),  # longer ones are told by a git, or a fetch, in whatever folder a tree names
    ("fetch.recurseSubmodules", "false"),
    ("gc.auto", "0"),
    ("gpg.program", "gpg"),
    ("gpg.ssh.program", "ssh-keygen"),
    ("gpg.x509.program", "gpgsm"),
    ("maintenance.auto", "false"),
    ("protocol.ext.allow", "never"),
    ("push.recurseSubmodules", "no"),
    ("safe.bareRepository", "explicit"),
    ("status.submoduleSummary", "false"),
    ("submodule.recurse", "false"),
)
_FIXED: Final = (
    ("GIT_ASKPASS", ""),
    ("GIT_CONFIG_GLOBAL", NOWHERE),  # in tier B the home is the workspace
    ("GIT_EDITOR", ":"),
    ("GIT_SEQUENCE_EDITOR", ":"),
    ("GIT_TERMINAL_PROMPT", "0"),
)


PUSHING: Final = (("protocol.file.allow", "never"),)
CLOSED: Final = (("branch.autoSetupMerge", "false"),)
"""Where the repository's settings are closed: which branch follows which cannot be written there, and git, which then
switches all the same, says first that it could not and then that it did."""


ALONE: Final = (("GIT_NO_LAZY_FETCH", "1"),)
"""A commit that is not there is fetched by the program that settings name (`remote.x.uploadpack`), those of a nested
repository too that no index holds, in the middle of a merge. Without a network nothing else could come of it."""


def git_environment(*, pushes: bool = False, alone: bool = False, closed: bool = False) -> tuple[tuple[str, str], ...]:
    """`alone`: the call reaches no host. `closed`: it cannot write the repository's settings."""
    settings = (*SETTINGS, *(PUSHING if pushes else ()), *(CLOSED if closed else ()))
    numbered = [
        pair
        for number, (key, value) in enumerate(settings)
        for pair in ((f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value))
    ]
    return (*_FIXED, *(ALONE if alone else ()), ("GIT_CONFIG_COUNT", str(len(settings))), *numbered)
