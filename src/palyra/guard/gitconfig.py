"""A repository's own settings: which of them names a program that git would run without being asked for it. Pure.

Through the environment git is told to run no hook, monitor or helper (gitenv). Filters, text conversions, external
diffs and merge drivers have names of their own, and a file that is included holds any of them: those are found here.
The text is read as git reads it. Rules: what git itself could not read, or is too long, counts as naming one; Git LFS,
written as `git lfs install` writes it, is no program of the repository's.

Not here: where those files are (look_git), what it means for a call (facts).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palyra.guard.gitline import PLAIN
from palyra.values import dataclass

MAX_BYTES = 1 << 18
UNREADABLE = "a line that cannot be read"

_ANY = frozenset({"filter", "include", "includeif"})
"""Sections of which every key counts, but for `_HARMLESS`."""
_HARMLESS = frozenset({"required"})
_KEYS = {
    "alias": PLAIN | {"command"},  # obeyed where this git has no such command, or no longer
    "browser": frozenset({"cmd", "path"}),  # `git status --help` asks one of these two
    "man": frozenset({"cmd", "path"}),
    "core": frozenset({"gitproxy", "alternaterefscommand"}),
    "diff": frozenset({"external", "command", "textconv"}),
    "gc": frozenset({"recentobjectshook"}),
    "gpg": frozenset({"defaultkeycommand"}),
    "hook": frozenset({"command"}),  # since 2.54, whatever core.hooksPath says
    "interactive": frozenset({"difffilter"}),
    "lfs": frozenset({"clean", "smudge", "path", "standalonetransferagent"}),  # extensions and agents of Git LFS
    "merge": frozenset({"driver"}),
    "remote": frozenset({"uploadpack", "receivepack", "vcs"}),
    "submodule": frozenset({"update"}),
    "tar": frozenset({"command"}),
    "trailer": frozenset({"command", "cmd"}),
}
_LFS = frozenset(
    ("clean", f"git-lfs clean {rest}".rstrip()) for rest in ("-- %f", "%f")
) | {
    ("smudge", "git-lfs smudge -- %f"), ("smudge", "git-lfs smudge %f"), ("smudge", "git-lfs smudge --skip -- %f"),
    ("process", "git-lfs filter-process"), ("process", "git-lfs filter-process --skip"),
}  # fmt: skip
_UPDATES = frozenset({"checkout", "rebase", "merge", "none"})
_SPACES = " \t\n\r"
_KEY, _SECTION = re.compile("[A-Za-z0-9-]+"), re.compile("[A-Za-z0-9.-]+")
_LINE, _VALUE, _QUOTED = (re.compile(f"[^{stop}]+") for stop in ("\n", '\n"\\\\#;', '\n"\\\\'))
_ESCAPED = {"\n": "", "t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class Reading:
    program: str = ""
    """The first setting that names a program, as `section.key`; empty without one."""
    worktree: str = ""
    """Which folder the files are in, where it is said."""
    sha256: bool = False
    """Whether hashes have 32 bytes, which says how the index is read."""
    stashes: bool = False
    """Whether a rebase, merge or pull is told to put changes aside and back by itself."""


def program_in(data: bytes) -> str:
    return read_config(data).program


def read_config(data: bytes) -> Reading:
    if len(data) > MAX_BYTES:
        return Reading(program="more than can be read")
    worktree, sha256, stashes = "", False, False
    try:
        for section, key, value in _settings(data.decode("latin-1")):
            if _names_program(section, key, value):
                return Reading(program=f"{section}.{key}")
            if (section, key) == ("core", "worktree"):
                worktree = value.encode("latin-1").decode("utf-8", "surrogateescape")
            elif (section, key) == ("extensions", "objectformat"):
                sha256 = value == "sha256"
            stashes = stashes or key == "autostash"
    except ValueError:
        return Reading(program=UNREADABLE)
    return Reading(worktree=worktree, sha256=sha256, stashes=stashes)


def read_settings(data: bytes, most: int = MAX_BYTES) -> Iterator[tuple[str, str, str]]:
    """(section without its subsection, key, value); ValueError where git would stop, or beyond what is read."""
    if len(data) > most:
        raise ValueError(len(data))
    return _settings(data.decode("latin-1"))


def _names_program(section: str, key: str, value: str) -> bool:
    if section in _ANY:
        return key not in _HARMLESS and (key, value) not in _LFS
    if section == "submodule" and key == "update":
        return value not in _UPDATES
    return key in _KEYS.get(section, frozenset())


def _settings(text: str) -> Iterator[tuple[str, str, str]]:
    """(section without its subsection, key, value); ValueError where git would stop."""
    reader = _Reader(text.removeprefix("\xef\xbb\xbf"))
    section = ""
    while (mark := reader.take()) or not reader.ended:
        if mark in "#;" and mark:
            reader.skip_line()
        elif mark == "[":
            section = reader.section()
        elif mark.isascii() and mark.isalpha():
            yield (section, *reader.setting(mark))
        elif mark not in _SPACES:
            raise ValueError(mark)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at > len(self._text)

    def take(self) -> str:
        """The next letter, a new line behind the last one, then nothing."""
        taken = self._text[self._at : self._at + 1] or ("" if self.ended else "\n")
        self._at += 1
        return taken

    def run(self, letters: re.Pattern[str]) -> str:
        """All of these that follow: one by one, a word that fills a file takes seconds."""
        found = letters.match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def skip_line(self) -> None:
        self.run(_LINE)
        self.take()

    def section(self) -> str:
        name = self.run(_SECTION).lower()
        mark = self.take()
        if mark and mark in _SPACES:
            self._subsection(mark)
        elif mark != "]":
            raise ValueError(mark)
        return name.partition(".")[0]

    def _subsection(self, mark: str) -> None:
        while mark and mark in _SPACES and mark != "\n":
            mark = self.take()
        if mark != '"':
            raise ValueError(mark)
        while (mark := self.take()) != '"':
            mark = self.take() if mark == "\\" else mark
            if mark in ("\n", ""):
                raise ValueError(mark)
        if self.take() != "]":
            raise ValueError(mark)

    def setting(self, first: str) -> tuple[str, str]:
        key, mark = (first + self.run(_KEY)).lower(), self.take()
        while mark and mark in " \t":
            mark = self.take()
        if mark in ("\n", ""):
            return key, ""
        if mark != "=":
            raise ValueError(mark)
        return key, self._value()

    def _value(self) -> str:
        value, quoted, length, kept = list[str](), False, 0, 0
        while True:
            read = self.run(_QUOTED if quoted else _VALUE)
            value.append(read if quoted or length else read.lstrip(_SPACES))
            length += len(value[-1])
            kept = length if quoted else kept
            mark = self.take()
            if mark == '"':
                quoted = not quoted
            elif mark == "\\":
                value.append(self._escaped())
                kept = length = length + len(value[-1])
            elif quoted:
                raise ValueError(mark)
            else:
                break
        if mark and mark in "#;":
            self.skip_line()
        text = "".join(value)
        return text[:kept] + text[kept:].rstrip(_SPACES)  # blanks in quotes are the value's own

    def _escaped(self) -> str:
        mark = self.take()
        if mark not in _ESCAPED:
            raise ValueError(mark)
        return _ESCAPED[mark]
