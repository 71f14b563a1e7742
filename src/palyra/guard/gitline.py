"""A git command line: whether git would run a program that its arguments name.

git starts other programs for settings (`-c core.pager=…`, aliases, filters, helpers), transports (`ext::sh -c …`,
`--upload-pack`), options (`rebase --exec`, `grep -O`) and subcommands it does not know (aliases, `git-foo` on PATH).
Settings are safe by a list of those known to be harmless, subcommands too: what is on neither list counts as code.

Hooks and the settings in .git/config run with commit, checkout, merge and others. They are not named by arguments:
hooks and settings that run something without being asked are switched off through the environment (gitenv), and the
repository's config stays read-only in the sandbox (guard/look), which is the wall. So `git commit` is usable and does
not count as running code. That holds for the repository at the top of the workspace alone: another one (`-C sub`,
`--git-dir`, `push ./sub`, whose hooks git runs without our environment) may be made of the agent's own files.

Not here: paths and hosts among the arguments (guard/paths, egress/preflight).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from palyra.guard.options import Option, Spec, find_options, read_options
from palyra.late import late
from palyra.values import dataclass

_GLOBAL = Spec(
    "C:c:hvpP",
    "version help paginate no-pager no-replace-objects no-lazy-fetch no-optional-locks no-advice bare "
    "literal-pathspecs glob-pathspecs noglob-pathspecs icase-pathspecs exec-path? html-path man-path info-path "
    "git-dir= work-tree= namespace= super-prefix= config-env= attr-source= list-cmds=",
)
PLAIN = frozenset(
    """
    add am annotate apply archive bisect blame branch bundle cat-file check-attr check-ignore check-mailmap
    check-ref-format checkout cherry cherry-pick clean clone column commit commit-graph commit-tree config
    count-objects describe diff diff-files diff-index diff-tree fast-export fetch fmt-merge-msg for-each-ref
    format-patch fsck gc get-tar-commit-id grep hash-object index-pack init init-db log ls-files ls-remote ls-tree
    mailinfo mailsplit merge merge-base merge-file merge-tree mktag mktree multi-pack-index mv name-rev notes
    pack-objects pack-refs patch-id prune prune-packed pull push range-diff read-tree rebase reflog remote repack
    replace rerere reset restore rev-list rev-parse revert rm shortlog show show-branch show-index show-ref
    sparse-checkout stage stash status stripspace submodule switch symbolic-ref tag unpack-file unpack-objects
    update-index update-ref var verify-commit verify-pack verify-tag version whatchanged worktree write-tree
    """.split()
)
_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "clone": ("u", ("upload-pack", "template", "separate-git-dir")),
    "init": ("", ("template", "separate-git-dir")),
    "init-db": ("", ("template", "separate-git-dir")),
    "fetch": ("", ("upload-pack",)),
    "pull": ("", ("upload-pack",)),
    "ls-remote": ("", ("upload-pack", "exec")),
    "push": ("", ("receive-pack", "exec")),
    # What is gone on with stands in files that a call can write: `exec id` in the todo, a strategy in the options.
    "rebase": ("x", ("exec", "continue", "skip", "edit-todo")),
    "cherry-pick": ("", ("continue", "skip")),
    "revert": ("", ("continue", "skip")),
    "grep": ("O", ("open-files-in-pager",)),
    "archive": ("", ("exec", "remote")),  # a repository's own settings say what packs it
    "diff": ("", ("ext-diff",)),
    "log": ("", ("ext-diff",)),
    "show": ("", ("ext-diff",)),
}
_SHOW = frozenset(
    "diff diff-files diff-index diff-tree format-patch log range-diff reflog show stash whatchanged".split()
)
_MOVES = frozenset({"fetch", "pull", "push", "checkout", "switch", "reset", "restore", "read-tree"})
_PUSH = Spec(
    "fnuvqd46o:",
    "all branches prune mirror dry-run porcelain delete tags follow-tags signed? no-signed atomic no-atomic repo= "
    "force push-option= receive-pack= exec= force-with-lease? no-force-with-lease force-if-includes "
    "no-force-if-includes set-upstream thin no-thin quiet verbose progress no-progress recurse-submodules= "
    "no-recurse-submodules verify no-verify ipv4 ipv6",
)
_OPTION_VALUES = {"clone": "bcjou", "rebase": "CsXx", "grep": "ABCefm", "push": "o"}
# `bisect view git/x` starts the workspace's git/x: any name that begins so counts as a program of git's own.
_SUBWORDS = {"bisect": ("run", "view", "visualize"), "submodule": ("foreach",)}
STRATEGIES = frozenset("resolve recursive octopus ours subtree ort".split())
"""Another name NAME runs `git-merge-NAME`, and NAME may hold a slash."""
_STRATEGY_VALUES = {"merge": "FmsSX", "pull": "sSX", "rebase": "CsSXx", "cherry-pick": "mSX", "revert": "mSX"}
"""Which letters end a bundle, for each by itself: the -m of rebase has no value, and `rebase -msNAME` is -m -s NAME."""
_TOPS = {"C": ("", ".", "./"), "work-tree": (".", "./"), "git-dir": (".git", ".git/", "./.git", "./.git/")}
_TRANSPORT = late(r"(?:^|=)[A-Za-z0-9][A-Za-z0-9+.-]*::")
_DASH_HOST = late(r"[a-z+]+://(?:[^/@]*@)?-", re.IGNORECASE)
_REMOTES = frozenset("clone fetch pull push ls-remote remote submodule archive".split())

_SAFE_SECTIONS = frozenset("advice color column i18n log status blame feature index pack commitgraph".split())
_SAFE_SETTINGS = frozenset(
    """
    user.name user.email user.useconfigonly author.name author.email committer.name committer.email core.quotepath
    core.autocrlf core.eol core.safecrlf core.filemode core.ignorecase core.precomposeunicode core.abbrev
    core.longpaths core.whitespace core.commentchar core.compression core.preloadindex core.untrackedcache
    core.checkstat core.bigfilethreshold core.logallrefupdates core.multipackindex core.commitgraph core.fscache
    core.splitindex init.defaultbranch commit.gpgsign commit.verbose commit.cleanup commit.status tag.gpgsign tag.sort
    branch.sort branch.autosetupmerge branch.autosetuprebase merge.conflictstyle merge.ff merge.renames
    merge.renamelimit merge.stat merge.log merge.autostash pull.rebase pull.ff push.default push.followtags
    push.autosetupremote rebase.autostash rebase.autosquash rebase.stat rebase.updaterefs fetch.prune fetch.prunetags
    fetch.parallel fetch.fsckobjects diff.renames diff.renamelimit diff.algorithm diff.context diff.interhunkcontext
    diff.mnemonicprefix diff.noprefix diff.submodule diff.wserrorhighlight diff.colormoved diff.indentheuristic
    diff.ignoresubmodules diff.statgraphwidth grep.linenumber grep.patterntype grep.extendedregexp grep.column gc.auto
    gc.autodetach gc.prune maintenance.auto receive.denycurrentbranch transfer.fsckobjects protocol.version
    safe.directory rerere.enabled stash.showpatch submodule.recurse http.postbuffer http.lowspeedlimit
    http.lowspeedtime http.version http.maxrequests http.useragent
    """.split()
)
_CONFIG = Spec(
    "f:t:lez",
    "global system local worktree file= blob= get get-all get-regexp get-urlmatch replace-all add unset unset-all "
    "rename-section remove-section list fixed-value edit get-color get-colorbool type= bool int bool-or-int "
    "bool-or-str path expiry-date null name-only includes show-origin show-scope default= value= all append comment= "
    "regexp url= show-names",
)
_READS = frozenset("--get --get-all --get-regexp --get-urlmatch --get-color --get-colorbool --list -l -lz -zl".split())
_WRITES = frozenset("unset unset-all rename-section remove-section edit e".split())
_ELSEWHERE = frozenset({"file", "f", "blob"})
_KEPT_SETTINGS = frozenset(
    "user.name user.email init.defaultbranch core.autocrlf core.eol pull.rebase push.default".split()
)
"""What `git config` may keep for every later git, the operator's too: a shorter list than for one call's `-c`."""
_PLAIN_VALUE = late(r"(?:[^\W_]|[_@.+<>(), '])[\w@.+<>(), '-]*|")
_PAGERS_OFF = frozenset({"", "cat", "false", "no", "off", "0"})


@dataclass(frozen=True, slots=True)
class GitReading:
    subcommand: str = ""
    at: int = 0
    """Index of the subcommand among the arguments."""
    why: str = ""
    """Why it can run a program that its arguments name; empty when it cannot."""


def read_git(args: Sequence[str]) -> GitReading:
    scan = read_options(args, _GLOBAL)
    if scan.unknown:
        return GitReading(why=f"git {scan.unknown.partition('=')[0]} is not known here")
    for option in scan.options:
        setting = option.value or ""
        if option.name == "config-env":
            setting = setting.rpartition("=")[0] + "=?"  # the value stands in a variable that the call may set
        if option.name in ("c", "config-env") and not is_safe_setting(setting):
            return GitReading(why="git -c sets something that can run a program")
        if option.name == "bare" or (option.value or "") not in _TOPS.get(option.name, (option.value or "",)):
            dashes = "-" if len(option.name) == 1 else "--"
            why = f"git {dashes}{option.name} can lead to a repository with its own settings and hooks"
            return GitReading(why=f"{why}; without it, with paths as arguments, git can be run")
        if option.name == "exec-path" and option.value is not None:
            return GitReading(why="git --exec-path says where its programs are")
    if scan.rest >= len(args):
        return GitReading()
    subcommand, rest = args[scan.rest], args[scan.rest + 1 :]
    return GitReading(subcommand, scan.rest, _judge(subcommand, rest))


def subcommand_words(args: Sequence[str]) -> Sequence[str]:
    """The subcommand and what is behind it, whatever its options set; nothing where one is not known."""
    scan = read_options(args, _GLOBAL)
    return () if scan.unknown else args[scan.rest :]


_STRICTER = {"diff.ignoresubmodules": "all"}


@cache
def _enforced() -> Mapping[str, str]:
    """What -c says stands above the environment: `-c diff.ignoreSubmodules=none status` looked into a nested
    repository, and obeyed the settings there."""
    from palyra.guard.gitenv import SETTINGS

    return {key.lower(): value for key, value in SETTINGS}


def is_safe_setting(text: str) -> bool:
    """`section.name=value` with a name that is known to start nothing."""
    key, _, value = text.partition("=")
    key = key.lower()
    if key in _enforced():
        return value.lower() in (_enforced()[key], _STRICTER.get(key))
    if key == "core.pager" or key.startswith("pager."):
        return value in _PAGERS_OFF
    return key in _SAFE_SETTINGS or key.partition(".")[0] in _SAFE_SECTIONS


def _judge(subcommand: str, rest: Sequence[str]) -> str:
    if subcommand not in PLAIN:
        return f"git {subcommand[:40]} is an alias, an extension or a command that runs programs"
    letters, names = _OPTIONS.get(subcommand, ("", ()))
    values = _OPTION_VALUES.get(subcommand, "")
    for option in find_options(rest, letters=letters, names=names, values=values):
        return f"git {subcommand} {'--' if len(option.name) > 1 else '-'}{option.name} runs a program"
    for word in _SUBWORDS.get(subcommand, ()):
        if word in rest:
            return f"git {subcommand} {word} runs a program"
    if subcommand in _REMOTES and any(_TRANSPORT.search(word) for word in rest):
        return "a git transport such as ext:: runs a program"
    if subcommand == "push" and (read_options(rest, _PUSH).unknown or is_folder(push_target(rest))):
        return "git push to a folder runs the hooks of the repository there"
    if subcommand in _REMOTES and any(_DASH_HOST.match(word) for word in rest):
        return "a git address whose host begins with a dash is an option to ssh"
    if subcommand in _SHOW and _enters_submodules(rest, "submodule", "short"):
        return f"git {subcommand} --submodule looks into repositories with their own settings"
    if subcommand in _MOVES and _enters_submodules(rest, "recurse-submodules", "no"):
        return f"git {subcommand} --recurse-submodules starts git in repositories with their own settings"
    return _judge_strategy(subcommand, rest) or _judge_settings(subcommand, rest)


def _enters_submodules(rest: Sequence[str], name: str, unless: str) -> bool:
    """`diff --submodule=diff A B` starts a git in each folder that those trees call a submodule, and `=log` may fetch
    there; `fetch --recurse-submodules` and its like do what new commits say: programs of a repository that no index
    holds, so that nobody looked at it. (`git submodule update` goes where the index says.)"""
    for option in find_options(rest, names=(name,)):
        glued = option.end == option.index + 1  # a word that follows is no value, or push's, where it costs a refusal
        if not (glued and option.value == unless):
            return True
    return False


def push_target(rest: Sequence[str]) -> str:
    """The repository `git push` is given: an address, a folder, or the name of a remote. A folder's own name is taken
    for a folder where no remote has it, which only the disk can tell (guard/facts)."""
    scan = read_options(rest, _PUSH)
    named = [option.value or "" for option in scan.options if option.name == "repo"]
    return next(iter((*rest[scan.rest :][:1], *named)), "")


def is_folder(word: str) -> bool:
    """As git reads it: a file: URL, or a path, which has no `scheme://` and no `host:` before its first slash."""
    scheme = word.lower().startswith("file:")
    return scheme or word.startswith((".", "~")) or ("/" in word and ":" not in word.partition("/")[0])


def _judge_strategy(subcommand: str, rest: Sequence[str]) -> str:
    values = _STRATEGY_VALUES.get(subcommand)
    if values is not None:
        letters = "s" if "s" in values else ""  # the -s of cherry-pick and revert signs off
        for option in find_options(rest, letters=letters, names=("strategy",), values=values):
            if option.value not in STRATEGIES:
                return f"git {subcommand} with a strategy of another name runs a program of that name"
    return ""


def _judge_settings(subcommand: str, rest: Sequence[str]) -> str:
    """Settings that clone and config would keep for the next git to obey."""
    if subcommand == "clone":
        for option in find_options(rest, letters="c", names=("config",), values="bcjou"):
            if not is_safe_setting(option.value or ""):
                return "git clone -c sets something that can run a program"
    if subcommand == "config" and _writes_setting(rest):
        return "git config sets something that can run a program"
    return ""


def _writes_setting(rest: Sequence[str]) -> bool:
    """Whether it changes a setting beyond those that are harmless to keep. Options end at the first operand."""
    scan = read_options(rest, _CONFIG)
    if scan.unknown:
        return True
    if any(option.name in _WRITES for option in scan.options):
        return True
    if any(rest[option.index] in _READS for option in scan.options):
        return False  # git itself refuses a second action beside these
    operands = rest[scan.rest :]
    if not operands or operands[0] in ("get", "list"):
        return False
    if operands[0] == "set" and scan.rest == 0:
        return _writes_setting_by_name(operands[1:])
    if len(operands) == 1:  # git itself refuses --add and --replace-all without a value
        return operands[0] == "edit"  # the other verbs need a name, and with one they are two words
    return not _is_kept(scan.options, operands)


def _writes_setting_by_name(rest: Sequence[str]) -> bool:
    """`git config set KEY VALUE`, as git spells it since 2.46."""
    scan = read_options(rest, _CONFIG)
    return bool(scan.unknown) or not _is_kept(scan.options, rest[scan.rest :])


def _is_kept(options: Sequence[Option], operands: Sequence[str]) -> bool:
    key = operands[0].lower() if operands else ""
    harmless = key in _KEPT_SETTINGS or key.startswith("color.")
    elsewhere = any(option.name in _WRITES | _ELSEWHERE for option in options)
    return harmless and not elsewhere and all(_PLAIN_VALUE.fullmatch(word) for word in operands[1:])
