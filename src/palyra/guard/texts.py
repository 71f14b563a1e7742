"""Which words of a command line are text and so cannot be paths: patterns, scripts, messages, delimiters.

`sed -n '/x/p'`, `grep '../lib' src` and `git commit -m '/api: fix'` name no file outside the workspace. Only what a
well-known program surely reads as text is left out; every other word stays a possible path. A mistake here costs a
clear refusal, not a wall: the sandbox holds either way. Code that is handed over (`bash -c`, `python3 -c`) is text too:
what files and hosts it comes to is for nobody to read out of it.

Not here: reading paths out of words (guard/paths).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from palyra.guard.gitline import read_git
from palyra.guard.options import Spec, read_options
from palyra.guard.programs import AWKS, normalise
from palyra.guard.sedscript import read_sed
from palyra.guard.wrappers import command_index
from palyra.values import dataclass

MAX_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Texts:
    spec: Spec
    text: frozenset[str]
    """Options whose value is text."""
    first: bool = False
    """The first operand is text …"""
    instead: frozenset[str] = frozenset()
    """… unless one of these options is given."""


def _texts(short: str, long: str, text: str, instead: str | None = None) -> Texts:
    """`instead` given, even empty, means that the first operand is text."""
    words = frozenset((instead or "").split())
    return Texts(Spec(short, long), frozenset(text.split()), instead is not None, words)


_GREP = _texts(
    "e:f:m:A:B:C:d:D:EFGPivwxcLloqsbHhnTzZaIrRUyu0123456789",
    "regexp= file= max-count= after-context= before-context= context= binary binary-files= devices= directories= "
    "exclude= exclude-from= exclude-dir= include= label= group-separator=",
    "e regexp exclude exclude-dir include label group-separator",
    "e f regexp file",
)
_GIT_HISTORY = _texts(
    "S:G:n:L:pqsz",
    "grep= author= committer= format= pretty= since= until= after= before= date= grep-reflog=",
    "S G grep author committer format pretty since until after before date grep-reflog",
)
_GIT_MESSAGE = _texts(
    "m:F:C:c:t:aepqsvnzofd",
    "message= file= author= date= trailer= cleanup= reuse-message= reedit-message= template=",
    "m message author date trailer",
)
TEXTS: dict[str, Texts] = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "zgrep", "git grep"), _GREP),
    **dict.fromkeys(("git log", "git diff", "git show", "git shortlog", "git reflog", "git blame"), _GIT_HISTORY),
    **dict.fromkeys(("git commit", "git tag", "git merge", "git stash", "git notes"), _GIT_MESSAGE),
    "rg": _texts(
        "e:f:g:r:t:T:m:A:B:C:j:M:E:d:FHINLPSUVabchilnopqsuvwxz0",
        "regexp= file= glob= iglob= replace= type= type-not= type-add= type-clear= max-count= after-context= "
        "before-context= context= threads= max-columns= encoding= max-depth= sort= sortr= color= colors= engine= "
        "ignore-file= path-separator= max-filesize= context-separator= field-match-separator= pre= pre-glob= "
        "field-context-separator= dfa-size-limit= regex-size-limit= hostname-bin= generate= files type-list ignore",
        "e g r regexp glob iglob replace path-separator context-separator field-match-separator",
        "e f regexp file files type-list",
    ),
    **dict.fromkeys(AWKS, _texts("F:v:f:E:i:l:", "field-separator= assign= file= exec=", "F v", "f E file exec")),
    "cut": _texts("d:f:b:c:snz", "delimiter= output-delimiter= fields= bytes=", "d delimiter output-delimiter"),
    "sort": _texts("t:k:o:S:T:bdfghiMnRrVcCmsuz", "field-separator= key= output=", "t field-separator"),
    "paste": _texts("d:sz", "delimiters=", "d delimiters"),
    "join": _texts("t:1:2:j:a:e:o:v:iz", "", "t e"),
    "column": _texts("s:o:c:N:tex", "separator= output-separator=", "s o separator output-separator"),
    "nl": _texts("b:d:f:h:i:l:n:s:v:w:p", "number-separator= section-delimiter=", "b d f h s number-separator"),
    "seq": _texts("s:f:w", "separator= format=", "s f separator format"),
    "date": _texts("d:f:r:s:uRI", "date=", "d date"),
    "diff": _texts("I:x:F:L:U:C:W:X:rquNabBwyl", "exclude= ignore-matching-lines= label=", "I x F L exclude label"),
    "ls": _texts("I:w:T:", "ignore= hide= time= time-style=", "I ignore hide time-style"),
    "tree": _texts("I:P:L:o:adfhpsu", "", "I P"),
    "du": _texts("B:d:t:X:ahscx", "exclude= max-depth= threshold=", "exclude"),
    "tar": _texts("", "transform= xform= exclude=", "transform xform exclude"),
}
_SHELL = Spec(
    "abcefhiklmnprstuvxBCDEHPTO:o:",
    "debugger init-file= login noediting noprofile norc posix pretty-print rcfile= restricted verbose",
)
_INLINE: dict[str, tuple[Spec, str]] = {
    **dict.fromkeys("sh bash dash ash zsh ksh mksh rbash".split(), (_SHELL, "")),  # the first operand, if -c is there
    **dict.fromkeys(("python", "pypy"), (Spec("bBdEhiIOPqsSuvVxc:W:X:m:"), "c")),
    **dict.fromkeys(("node", "nodejs"), (Spec("e:p:ir:", "eval= print= require= input-type="), "e p eval print")),
    "perl": (Spec("acnpswWtTuUvXl::0::i::e:E:M:m:I:F:"), "e E"),
    "ruby": (Spec("acnplswve:I:r:F:i::W::"), "e"),
}
TEXT_ONLY = frozenset({"tr", "expr", "echo", "printf", "basename", "dirname"})
"""They open no file, whatever they are given."""
_LN = Spec("bfFiLnPsTvS:", "symbolic force interactive logical physical verbose no-dereference no-target-directory")
FIND_TESTS = frozenset(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -lname -ilname -printf -regextype".split()
)


def text_arguments(program: str, args: Sequence[str]) -> tuple[frozenset[int], tuple[tuple[int, str], ...]]:
    """(indices of words that are text, (index, file) for every file that a text names)."""
    name, offset = _unwrapped(program, args)
    indices, files = _read(name, args[offset:])
    return frozenset(at + offset for at in indices), tuple((at + offset, file) for at, file in files)


def code_arguments(program: str, args: Sequence[str]) -> frozenset[int]:
    """Indices of words that are code for an interpreter, none of them before a script's own name."""
    name, offset = _unwrapped(program, args)
    return frozenset(at + offset for at in _read_code(name, args[offset:]))


def _unwrapped(program: str, args: Sequence[str]) -> tuple[str, int]:
    """(the program behind simple wrappers, where its own arguments begin)."""
    offset = 0
    for _ in range(MAX_DEPTH):
        inner = command_index(normalise(program), args[offset:])
        if inner < 0:
            break
        program, offset = args[offset + inner], offset + inner + 1
    return normalise(program), offset


def _read_code(name: str, args: Sequence[str]) -> Iterator[int]:
    if name not in _INLINE:
        return
    spec, letters = _INLINE[name]
    scan = read_options(args, spec)
    if scan.unknown:
        return
    if not letters and any(option.name == "c" for option in scan.options):
        yield from range(scan.rest, min(scan.rest + 1, len(args)))
    for option in scan.options:
        if option.name in letters.split() and option.value is not None:
            yield option.end - 1
        if name in ("python", "pypy") and option.name in "cm":
            return  # what follows is for the code, or for the module


def _read(name: str, args: Sequence[str]) -> tuple[Sequence[int], Sequence[tuple[int, str]]]:
    if name in ("sed", "gsed"):
        reading = read_sed(args)
        return reading.scripts, reading.files
    if name in TEXT_ONLY:
        return range(len(args)), ()
    if name == "find":
        return [at + 1 for at, word in enumerate(args) if word in FIND_TESTS], ()
    if name == "jq":
        return list(_read_jq(args)), ()
    if name == "ln":
        return _read_ln(args)
    if name in _INLINE:
        return list(_read_code(name, args)), ()
    if name == "git":
        git = read_git(args)
        texts = TEXTS.get(f"git {git.subcommand}")
        return [at + git.at + 1 for at in _read_texts(texts, args[git.at + 1 :])] if texts else (), ()
    return list(_read_texts(TEXTS[name], args)) if name in TEXTS else (), ()


def _read_ln(args: Sequence[str]) -> tuple[Sequence[int], Sequence[tuple[int, str]]]:
    """What a symbolic link says is a path for whoever stands where the link is: `ln -s ../src/x docs/x` leads to src/x.
    Whether the last word is the link or the folder for it, only the disk can tell; so it is read as both."""
    scan = read_options(args, _LN)
    operands = range(scan.rest, len(args))
    symbolic = any(option.name in ("s", "symbolic") for option in scan.options)
    if scan.unknown or not symbolic or len(operands) < 2 or any(args[at][:1] == "-" for at in operands):
        return (), ()
    *targets, last = operands
    folders = (args[last].rpartition("/")[0] or ("/" if args[last][:1] == "/" else "."), args[last])
    relative = [at for at in targets if args[at][:1] not in ("/", "~")]
    return relative, [(at, f"{folder}/{args[at]}") for at in relative for folder in folders]


def _read_texts(texts: Texts, args: Sequence[str]) -> Iterator[int]:
    operands: list[int] = []
    given: set[str] = set()
    at = 0
    while at < len(args):
        scan = read_options(args[at:], texts.spec)
        given |= {option.name for option in scan.options}
        for option in scan.options:
            if option.name in texts.text and option.value is not None:
                yield at + option.end - 1
        at += scan.rest
        if scan.unknown:
            at += 1
        elif at > 0 and args[at - 1] == "--":
            operands += range(at, len(args))
            break
        elif at < len(args):
            operands.append(at)
            at += 1
    if texts.first and operands and not given & texts.instead:
        yield operands[0]


def _read_jq(args: Sequence[str]) -> Iterator[int]:
    """The filter is the first operand, unless -f names a file; --arg and its like take two values."""
    at = 0
    while at < len(args):
        word = args[at]
        if word in ("--arg", "--argjson"):
            yield from (at + 1, at + 2)
            at += 2
        elif word in ("--slurpfile", "--rawfile"):
            at += 2
        elif word in ("--indent", "--tab", "-L"):
            at += word != "--tab"
        elif word.startswith(("-f", "--from-file")):
            return
        elif word[:1] != "-" or word == "-":
            yield at
            return
        at += 1
