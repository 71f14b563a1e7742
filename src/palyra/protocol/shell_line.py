"""A shell's line → the programs it runs, where that can be told for certain. Pure.

Plain are words, quotes that hide nothing, and programs joined by `&&`, `||`, `;`, `|` or a new line, with output that
is thrown away or joined (`>/dev/null`, `2>&1`). Everything else (variables, substitutions, patterns, redirections, `&`,
comments, assignments, escapes) may become another program than the one that is read here: then the line is code for an
interpreter, and policy is asked about that. Better to call a harmless line code than the other way round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_QUIET = re.compile(r"(?:[12]?>[ \t]*/dev/null|2>&1|&>[ \t]*/dev/null)(?=[ \t\n;|&]|\Z)")
"""Blanks as shells see them: behind any other the file is `\xa0/dev/null`, a link that the repository brought."""
_SEPARATORS = ("&&", "||", ";", "|", "\n")
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,+%@=")
_PLAIN_FOR = {"git": _PLAIN | {"^"}}
"""`HEAD^` is a commit to git. To anybody else `^x` may be every file but x: a pattern, where zsh was told so."""
_IN_DOUBLE = frozenset('$`\\"!')
MAX_LINE_CHARS = 64 * 1024
KEYWORDS = frozenset(
    "if then else elif fi for while until do done case esac in function select time coproc eval exec source export set "
    "unset alias trap return exit shift read wait command builtin declare local readonly let pushd popd . "
    "autoload bg bind break caller chdir compgen complete compopt continue dirs disable disown emulate enable fc fg "
    "float foreach functions getopts hash help history integer jobs limit logout mapfile nocorrect noglob print "
    "private readarray rehash repeat sched setopt shopt suspend times ttyctl type typeset ulimit umask unalias "
    "unfunction unhash unsetopt vared zcompile zformat zle zmodload zparseopts zstyle".split()
)
"""Words that the shell itself obeys: what they run is not in the first word."""
_SETS = ("-v", "-R")
_EVALUATED = frozenset("$`[(=")
_COMPARISONS = frozenset({"=", "==", "!="})
_STEPS = re.compile(r"[^\W\d]\w*\s*(?:\+\+|--)|(?:\+\+|--)\s*[^\W\d]")
"""Sums that set a variable without an equals sign: in zsh `test CDPATH++ -eq 0 && cd docs` goes to 1/docs."""
_NUMBERS = re.compile(r"%[-+ #0-9.']*[diouxXceEfFgGaA]")
_SUMS = frozenset("-eq -ne -lt -le -gt -ge -t".split())
_CONVERSION = re.compile(r"%[-+ #0-9.']*[sdiouxXcbqeEfFgGaA%]")
"""Those of printf that only print; `%n` sets a variable."""


@dataclass(frozen=True, slots=True)
class Program:
    words: tuple[str, ...]
    joined_by: str
    """What stands before it: empty for the first."""


def programs_of(line: str) -> tuple[Program, ...] | None:
    """Each program with its arguments, in order; None when the line is code."""
    if len(line) > MAX_LINE_CHARS:
        return None
    commands: list[tuple[str, list[str]]] = [("", [])]
    at, end = 0, len(line)
    while at < end:
        quiet = _QUIET.match(line, at) if _begins_word(line, at) else None
        if quiet is not None:
            at = quiet.end()
        elif line[at] in " \t":
            at += 1
        elif (separator := next((mark for mark in _SEPARATORS if line.startswith(mark, at)), None)) is not None:
            commands.append((separator, []))
            at += len(separator)
        else:
            word, at = _word(line, at, _PLAIN_FOR.get(commands[-1][1][0], _PLAIN) if commands[-1][1] else _PLAIN)
            if word is None:
                return None
            commands[-1][1].append(word)
    found = tuple(Program(tuple(words), joined_by) for joined_by, words in commands if words)
    return found if found and all(_is_plain(program.words) for program in found) else None


def _begins_word(line: str, at: int) -> bool:
    return at == 0 or line[at - 1] in " \t;|&\n"


def _word(line: str, at: int, plain: frozenset[str]) -> tuple[str | None, int]:
    """The word that begins here and where it ends; None for anything a shell would expand."""
    parts: list[str] = []
    began = at
    while at < len(line) and line[at] not in " \t;|&\n":
        mark = line[at]
        if mark in "'\"":
            closing = line.find(mark, at + 1)
            inner = line[at + 1 : closing]
            if closing < 0 or (mark == '"' and not _IN_DOUBLE.isdisjoint(inner)):
                return None, at
            parts.append(inner)
            at = closing + 1
        elif mark == "=" and at == began and line[at + 1 : at + 2].strip("= \t\n"):
            return None, at  # in zsh `=ls` is the place of that program
        elif mark in plain or (mark > "\x7f" and mark.isalnum()):
            parts.append(mark)
            at += 1
        else:
            return None, at
    return ("".join(parts), at) if at > began else (None, at)


def _is_plain(words: tuple[str, ...]) -> bool:
    first = words[0]
    return bool(first) and "=" not in first and first not in KEYWORDS and not _is_evaluated(words)


def _is_evaluated(words: tuple[str, ...]) -> bool:
    """Shells have a `printf` and a `test` of their own, which read names of variables and sums in their arguments,
    quoted or not: `printf -v PATH ./bin`, `printf %n PATH`, `test -v 'a[$(id)]'`, in zsh `printf %d 'path[1]=5'`."""
    if words[0] not in ("printf", "test"):
        return False
    if any(word.startswith(_SETS) for word in words[1:]):
        return True
    if words[0] == "printf" and any("%" in _CONVERSION.sub("", word) for word in words[1:]):
        return True
    told = words[2:] if words[0] == "printf" else words[1:]  # a format is never evaluated
    counts = any(_NUMBERS.search(word) if words[0] == "printf" else word in _SUMS for word in words[1:])
    if counts and any(_STEPS.search(word) for word in told):
        return True
    return any(not _EVALUATED.isdisjoint(word) for word in told if word not in _COMPARISONS)
