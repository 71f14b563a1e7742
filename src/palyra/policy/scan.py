"""A first, linear look at policy text, before Cedar's parser sees it.

Cedar's parser descends recursively: 1,000 nested brackets overflow the stack and end the whole process, and with
the 1 MiB stack of some threads 75 are enough. So size, file count, line length and nesting are capped here by a
scan that uses no recursion. Chains count as nesting too: `a && b && c` is a tree of depth two to the evaluator.

The scan also finds where each policy begins and ends, so that every later error can name file and line.

Not here: grammar, types, ids (bundle). Text that passes may still be no Cedar at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from palyra.errors import ConfigError
from palyra.values import dataclass

MAX_BUNDLE_BYTES = 1 << 20
MAX_FILES = 256
MAX_LINE = 4096
MAX_BRACKETS = 32
"""Half of what a 512 KiB stack survived; written policies need fewer than ten."""
MAX_DEPTH = 128
"""Brackets and operator chains together."""

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n\r]*)
  | (?P<string>"(?:[^"\\]|\\.)*+")
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark>&&|\|\||::|==|!=|<=|>=|[()\[\]{}<>;,.!+*"-])
  | (?P<other>\S)
""",
    re.VERBOSE | re.DOTALL,
)
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")
_CHAIN = frozenset({"&&", "||", "if", "when", "unless"})
_LINK = frozenset({".", "::", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "has", "like", "in", "is"})


class PolicyError(ConfigError):
    """A bundle that cannot be used. Says which file, line and policy is at fault."""

    def __init__(
        self, detail: str, hint: str | None = None, *, file: str = "", line: int = 0, policy: str = ""
    ) -> None:
        place = f"{file}:{line}: " if line else f"{file}: " if file else ""
        super().__init__(f"{place}{f'policy {policy!r}: ' if policy else ''}{detail}", hint)
        self.file = file
        self.line = line
        self.policy = policy


@dataclass(frozen=True, slots=True)
class Span:
    """One policy's place in its file: `text[start:end]`, beginning on `line`."""

    start: int
    end: int
    line: int


@dataclass(slots=True)
class _Level:
    """What was seen between one pair of brackets."""

    chain: int = 0
    link: int = 0
    longest_link: int = 0
    child: int = 0
    deepest: int = 0

    @property
    def depth(self) -> int:
        return max(self.deepest, self.chain + self.longest_link + self.child)

    def next_item(self) -> None:
        """After a comma a new expression begins beside the last, not inside it."""
        self.deepest = self.depth
        self.chain = self.link = self.longest_link = self.child = 0


def check_caps(files: Mapping[str, str]) -> None:
    """Refuse a bundle by its measures alone, before anything reads its text."""
    if len(files) > MAX_FILES:
        raise PolicyError(f"A bundle has at most {MAX_FILES} files; this one has {len(files)}.")
    # A character is at least one byte, so a huge text is refused before it is encoded.
    if (
        sum(map(len, files.values())) > MAX_BUNDLE_BYTES
        or sum(_size(f, t) for f, t in files.items()) > MAX_BUNDLE_BYTES
    ):
        raise PolicyError(
            f"A bundle has at most {MAX_BUNDLE_BYTES} bytes.", "Split it, or use sets instead of lists of policies."
        )
    for file, text in files.items():
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) > MAX_LINE:
                raise PolicyError(f"A line has at most {MAX_LINE} characters.", file=file, line=number)


def _size(file: str, text: str) -> int:
    try:
        return len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise PolicyError("The text is not valid Unicode.", file=file) from None


def find_policies(file: str, text: str) -> tuple[Span, ...]:
    """Where each `…;` of the file lies. Raises PolicyError for nesting that could crash the parser."""
    spans: list[Span] = []
    levels = [_Level()]
    begin: tuple[int, int] | None = None
    line, counted = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", counted, match.start())
        counted = match.start()
        if match.lastgroup == "comment":
            continue
        if begin is None:
            begin = (match.start(), line)
        token = match.group()
        _take(token, levels, file=file, line=line)
        if token == ";" and len(levels) == 1:
            spans.append(Span(begin[0], match.end(), begin[1]))
            begin, levels = None, [_Level()]
    if begin is not None:
        raise PolicyError("The policy that begins here does not end with `;`.", file=file, line=begin[1])
    return tuple(spans)


def _take(token: str, levels: list[_Level], *, file: str, line: int) -> None:
    here = levels[-1]
    if token in _OPEN:
        levels.append(_Level())
        if len(levels) - 1 > MAX_BRACKETS:
            raise PolicyError(f"Brackets are nested deeper than {MAX_BRACKETS}.", file=file, line=line)
    elif token in _CLOSE:
        if len(levels) == 1:
            raise PolicyError(f"`{token}` closes nothing.", file=file, line=line)
        levels.pop()
        levels[-1].child = max(levels[-1].child, here.depth + 1)
    elif token in _CHAIN:
        here.chain += 1
        here.link = 0
    elif token in _LINK:
        here.link += 1
        here.longest_link = max(here.longest_link, here.link)
    elif token == ",":
        here.next_item()
    elif token == '"':
        raise PolicyError("A string that begins here does not end.", file=file, line=line)
    if levels[-1].depth > MAX_DEPTH:
        raise PolicyError(
            f"Expressions are nested or chained deeper than {MAX_DEPTH}.",
            "Write a long chain of || as a set with .contains(), or as several policies.",
            file=file,
            line=line,
        )
