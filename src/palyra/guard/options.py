"""Reading a command line the way getopt does, from a short description of a program's options.

Two readings. `read_options` walks up to the first operand, as wrappers do (`timeout -s KILL 5 python3`), and says what
it did not know. `find_options` looks at every word for options that matter, whatever stands around it: a word that an
unknown option would have swallowed is still looked at, so nothing is hidden by leaving an option off the table.

Rules: GNU long options may be shortened to any start (`--checkpoint-act=…`); bundles (`-xIsh`) are taken apart.
Not here: what an option means.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    """Without dashes; one letter for a short option."""
    value: str | None
    index: int
    """Of the word that holds the option."""
    end: int = 0
    """Index behind the option and its value."""


@dataclass(frozen=True, slots=True)
class Scan:
    options: tuple[Option, ...]
    rest: int
    """Index of the first operand; the number of words when there is none."""
    unknown: str = ""
    """The first option that the description does not have: from there on nothing is certain."""


@dataclass(frozen=True, slots=True)
class Spec:
    """`short` as getopt writes it (`n:` has a value, `e::` only a glued one); `long` names, `=` a value, `?` maybe."""

    short: str = ""
    long: str = ""


@cache
def _arities(spec: Spec) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """For letters and for names: 0 no value, 1 a value, 2 a value only when glued on."""
    short = {found[1]: len(found[2]) for found in re.finditer("([^:])(:{0,2})", spec.short)}
    long = {word.rstrip("=?"): {"=": 1, "?": 2}.get(word[-1], 0) for word in spec.long.split()}
    return short, long


def read_options(args: Sequence[str], spec: Spec) -> Scan:
    """Options up to the first operand. A lone `-` is an operand; `--` ends the options."""
    short, long = _arities(spec)
    found: list[Option] = []
    at = 0
    while at < len(args):
        word = args[at]
        if word == "--":
            return Scan(tuple(found), at + 1)
        if len(word) < 2 or word[0] != "-":
            break
        following = args[at + 1] if at + 1 < len(args) else None
        if word.startswith("--"):
            taken = _read_long(word, at, following, long, found)
        else:
            taken = _read_bundle(word, at, following, short, found)
        if taken == 0:
            return Scan(tuple(found), at, word)
        at += taken
    return Scan(tuple(found), min(at, len(args)))


def _read_long(word: str, at: int, following: str | None, long: Mapping[str, int], found: list[Option]) -> int:
    """How many words the option takes; 0 when it is not known."""
    given, equals, value = word[2:].partition("=")
    names = [given] if given in long else [name for name in long if name.startswith(given)]
    if not names or len({long[name] for name in names}) > 1:
        return 0
    name = names[0]
    if equals or long[name] != 1:
        found.append(Option(name, value if equals else None, at, at + 1))
        return 1
    found.append(Option(name, following, at, at + 2))
    return 2


def _read_bundle(word: str, at: int, following: str | None, short: Mapping[str, int], found: list[Option]) -> int:
    for place in range(1, len(word)):
        arity = short.get(word[place])
        if arity is None:
            return 0
        glued = word[place + 1 :]
        if arity == 0:
            found.append(Option(word[place], None, at, at + 1))
        elif glued or arity == 2:
            found.append(Option(word[place], glued or None, at, at + 1))
            return 1
        else:
            found.append(Option(word[place], following, at, at + 2))
            return 2
    return 1


def find_options(
    args: Sequence[str], *, letters: str = "", names: Sequence[str] = (), values: str = "", plain: Sequence[str] = ()
) -> Iterator[Option]:
    """Every occurrence of the given options, in any word. `values` are the letters that end a bundle."""
    for at, word in enumerate(args):
        following = args[at + 1] if at + 1 < len(args) else ""
        if word.startswith("--"):
            given, equals, value = word[2:].partition("=")
            if given and given not in plain:
                for name in names:
                    if name.startswith(given):
                        yield Option(name, value if equals else following, at, at + 1 if equals else at + 2)
        elif word[:1] == "-":
            yield from find_in_bundle(word[1:], at, following, letters=letters, values=values)


def find_in_bundle(bundle: str, at: int, following: str, *, letters: str, values: str) -> Iterator[Option]:
    for place, letter in enumerate(bundle):
        if letter in letters:
            glued = bundle[place + 1 :]
            yield Option(letter, glued or following, at, at + 1 if glued else at + 2)
        if letter in values:
            return
