"""Which words of a git command line can name a host: `main:main` behind a remote is a refspec, alone it is a host.

git writes both alike. The first operand of fetch, pull and push says where; those behind it say what, and archive's say
what unless it is given a remote. Rules: only where every option is one that is known here, for an option that takes the
next word, or makes a remote of each operand (`fetch --multiple`), would move them; otherwise every word is looked at.
And git stays at home only with a subcommand that is known to: `git subtree pull`, `git lfs fetch` and whatever else is
installed beside it go out with their own words.

Not here: reading a host out of a word (preflight).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

REACHES: Final = frozenset({"clone", "fetch", "pull", "push", "ls-remote", "remote", "submodule", "archive"})
_STAYS: Final = frozenset(
    """add am annotate apply bisect blame branch bundle cat-file check-attr check-ignore check-mailmap check-ref-format
    checkout cherry cherry-pick clean column commit commit-graph commit-tree config count-objects describe diff
    diff-files diff-index diff-tree fast-export fmt-merge-msg for-each-ref format-patch fsck gc get-tar-commit-id grep
    hash-object help index-pack init init-db log ls-files ls-tree mailinfo mailsplit merge merge-base merge-file
    merge-tree mktag mktree multi-pack-index mv name-rev notes pack-objects pack-refs patch-id prune prune-packed
    range-diff read-tree rebase reflog repack replace rerere reset restore rev-list rev-parse revert rm shortlog show
    show-branch show-index show-ref sparse-checkout stage stash status stripspace switch symbolic-ref tag unpack-file
    unpack-objects update-index update-ref var verify-commit verify-pack verify-tag version whatchanged worktree
    write-tree""".split()
)
_GLOBAL_FLAGS: Final = frozenset(
    """-p --paginate -P --no-pager --no-replace-objects --no-lazy-fetch --no-optional-locks --no-advice --bare
    --literal-pathspecs --glob-pathspecs --noglob-pathspecs --icase-pathspecs""".split()
)
_GLOBAL_VALUES: Final = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env"})
_FLAGS: Final = {
    "fetch": frozenset(
        """-a -f -k -n -p -P -q -t -u -v -4 -6 --all --append --atomic --dry-run --force --keep --no-tags --prefetch
        --prune --prune-tags --progress --no-progress --quiet --set-upstream --tags --unshallow --update-head-ok
        --verbose --write-fetch-head --no-write-fetch-head --recurse-submodules --no-recurse-submodules""".split()
    ),
    "push": frozenset(
        """-d -f -n -q -u -v -4 -6 --all --atomic --branches --delete --dry-run --follow-tags --force
        --force-if-includes --force-with-lease --mirror --no-verify --porcelain --progress --no-progress --prune --quiet
        --set-upstream --tags --thin --no-thin --verbose --verify""".split()
    ),
    "archive": frozenset({"-v", "--verbose", "--worktree-attributes", "-0", "-1", "-9"}),
}
_FLAGS_OF_PULL: Final = frozenset(
    "-r --rebase --no-rebase --ff --ff-only --no-ff --autostash --no-autostash --commit --no-commit --no-edit --squash "
    "--stat --no-stat -n --allow-unrelated-histories --no-verify".split()
)
_VALUES: Final = {
    "fetch": frozenset("--depth --deepen --jobs -j --shallow-since --server-option -o".split()),
    "push": frozenset({"--push-option", "-o"}),
    "archive": frozenset("--format --prefix --output -o".split()),
}
_SAYS_WHERE: Final = {"fetch": 1, "pull": 1, "push": 1, "archive": 0}


def subcommand_at(args: Sequence[str]) -> int:
    """Its index among the arguments, their number where there is none; -1 where an option is not known here."""
    at = 0
    while at < len(args) and args[at].startswith("-"):
        name, glued, _ = args[at].partition("=")
        if not (name in _GLOBAL_VALUES or args[at] in _GLOBAL_FLAGS):
            return -1
        at += 2 if name in _GLOBAL_VALUES and not glued else 1
    return min(at, len(args))


def stays_home(args: Sequence[str]) -> bool:
    """Whether this git surely goes to no remote."""
    at = subcommand_at(args)
    return at == len(args) or (at >= 0 and args[at] in _STAYS)


def may_reach(args: Sequence[str]) -> bool:
    """Whether it goes to a remote of git's own kind, `host:path` too; where that cannot be told, it may."""
    at = subcommand_at(args)
    return not stays_home(args) and any(word in REACHES for word in args[max(at, 0) :])


def without_refspecs(args: Sequence[str]) -> Sequence[str]:
    """The words that are left when those that surely name no remote are taken out."""
    at = subcommand_at(args)
    command = args[at] if 0 <= at < len(args) else ""
    if command not in _SAYS_WHERE:
        return args
    operands = _operands(command, args, at + 1)
    refspecs = set() if operands is None else set(operands[_SAYS_WHERE[command] :])
    return [word for number, word in enumerate(args) if number not in refspecs]


def _operands(command: str, args: Sequence[str], at: int) -> list[int] | None:
    """Where they stand; None where an option is not known."""
    like = "fetch" if command == "pull" else command
    flags = _FLAGS[like] | (_FLAGS_OF_PULL if command == "pull" else frozenset())
    found: list[int] = []
    while at < len(args):
        name, glued, _ = args[at].partition("=")
        if not args[at].startswith("-"):
            found.append(at)
        elif name in _VALUES[like]:
            at += 0 if glued else 1
        elif name not in flags and not all(f"-{letter}" in flags for letter in args[at][1:]):  # -fu
            return None
        at += 1
    return found
