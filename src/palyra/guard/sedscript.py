"""A sed command line: which words are scripts, which files the scripts name, and whether they run code.

GNU sed runs code with the `e` command and the `e` flag of `s///`, writes files with `w`, `W` and the `w` flag, reads
them with `r` and `R`. The script is read as sed reads it, far enough to find those; what no reading follows counts as
code. `-f FILE` cannot be seen from here and counts as code. `--sandbox` makes sed itself refuse e, r and w.

Not here: whether a named file is inside the workspace (guard/paths).
"""

from __future__ import annotations

from collections.abc import Sequence

from palyra.late import late
from palyra.values import dataclass

MAX_SCRIPT_CHARS = 8192
"""Longer than any that people write in a line, and read a dozen times: everybody behind this call waits meanwhile."""
_SHORT_VALUES = "efl"
_LONG_VALUES = ("expression", "file", "line-length")
_OUTPUTS = ("/dev/stdout", "/dev/stderr")
_MODES = ("no brackets", "brackets", "brackets without escapes")
_BLANK = " \t\r\f\v"
_LABEL_ENDS = (";}\n \t", ";\n \t", ";\n", "\n")
"""Where a label ends: GNU sed 4.9, GNU sed 4.3 to 4.8, others that keep blanks, and POSIX."""
_CONTROL = late(r"[\x00-\x08\x0b-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class SedReading:
    scripts: tuple[int, ...] = ()
    """Indices of the words that hold script text; such a word is no path."""
    files: tuple[tuple[int, str], ...] = ()
    """(index of the word, name) of every file a script reads or writes."""
    why: str = ""
    """Why it can run code or writes files from its script; empty when it does neither."""


def read_sed(args: Sequence[str]) -> SedReading:
    scripts, sandboxed, from_file = _find_scripts(args)
    indices = tuple(index for index, _ in scripts)
    if sandboxed:
        return SedReading(indices)
    if from_file:
        return SedReading(indices, (), "sed -f runs a script that cannot be seen here")
    # Pieces of several -e are joined by newlines, as sed does: `-e 'a\\' -e text` is one command.
    script = "\n".join(text for _, text in scripts)
    if len(script) > MAX_SCRIPT_CHARS:
        return SedReading(indices, (), f"a sed script of more than {MAX_SCRIPT_CHARS} characters is not followed")
    if _CONTROL.search(script):
        # Seds disagree on which of these are blanks: `:l\fa~;1e id` hides the e behind a label that has not ended.
        return SedReading(indices, (), "a sed script with a control character cannot be followed")
    modes = _MODES if "[" in script else _MODES[:1]
    readings = [_Script(script, mode, label_ends) for mode in modes for label_ends in _LABEL_ENDS]
    for reading in readings:
        reading.read()
    files = dict.fromkeys(name for reading in readings for name in reading.files if name not in _OUTPUTS)
    return SedReading(indices, tuple((indices[0], name) for name in files), _agree(readings))


def _agree(readings: Sequence[_Script]) -> str:
    """Seds differ in whether a delimiter inside [brackets] ends a part, and in what ends a label: code in any reading
    is code.

    A reading that is lost is a syntax error to that sed, which then runs nothing; all lost, and it is not known.
    """
    for reading in readings:
        if reading.why:
            return reading.why
    lost = [reading.lost for reading in readings if reading.lost]
    return f"a sed script that cannot be followed ({lost[0]})" if len(lost) == len(readings) else ""


def _find_scripts(args: Sequence[str]) -> tuple[list[tuple[int, str]], bool, bool]:
    """((word index, script text), …), whether --sandbox is given, whether a script file is."""
    scripts: list[tuple[int, str]] = []
    operands: list[tuple[int, str]] = []
    sandboxed = from_file = False
    at = 0
    while at < len(args):
        word, at = args[at], at + 1
        if word == "--":
            operands += [(place, args[place]) for place in range(at, len(args))]
            break
        if len(word) < 2 or word[0] != "-":
            operands.append((at - 1, word))
            continue
        name, value, holder = _read_option(word, args, at)
        at = max(at, holder + 1)
        sandboxed = sandboxed or name == "sandbox"
        from_file = from_file or name in ("f", "file")
        if name in ("e", "expression"):
            scripts.append((holder, value))
    if not scripts and not from_file and operands:
        scripts.append(operands[0])
    return scripts, sandboxed, from_file


def _read_option(word: str, args: Sequence[str], following: int) -> tuple[str, str, int]:
    """(name, value, index of the word that holds the value)."""
    beside = args[following] if following < len(args) else ""
    if word.startswith("--"):
        given, equals, value = word[2:].partition("=")
        if len(given) > 1 and "sandbox".startswith(given):
            return "sandbox", "", following - 1
        for name in _LONG_VALUES:
            if given and name.startswith(given):
                return (name, value, following - 1) if equals else (name, beside, following)
        return given, "", following - 1
    for place in range(1, len(word)):
        letter = word[place]
        if letter in _SHORT_VALUES:
            glued = word[place + 1 :]
            return (letter, glued, following - 1) if glued else (letter, beside, following)
        if letter == "i":  # -i[SUFFIX] swallows the rest of its word
            break
    return word[1:], "", following - 1


class _Script:
    """One pass over a script. Stops at the first code, or at the first thing it cannot follow."""

    def __init__(self, text: str, mode: str, label_ends: str) -> None:
        self.text = text
        self.mode = mode
        self.label_ends = label_ends
        self.at = 0
        self.why = ""
        self.lost = ""
        self.files: list[str] = []

    def read(self) -> None:
        while not self.why and not self.lost and self._skip(_BLANK + "\n;{}"):
            if self._read_addresses() and self.at < len(self.text):
                self._read_command()

    def _skip(self, characters: str) -> bool:
        while self.at < len(self.text) and self.text[self.at] in characters:
            self.at += 1
        return self.at < len(self.text)

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _take(self) -> str:
        taken = self._peek()
        self.at += 1
        return taken

    def _line(self) -> str:
        end = self.text.find("\n", self.at)
        end = len(self.text) if end < 0 else end
        line, self.at = self.text[self.at : end], end
        return line

    def _read_addresses(self) -> bool:
        for _ in range(2):
            self._skip(_BLANK)
            if self._peek() in ("/", "\\"):
                delimiter = "/" if self._take() == "/" else self._take()
                if not self._skip_pattern(delimiter):
                    self.lost = "an address that does not end"
                    return False
                self._skip("IM")
            else:
                self._skip("0123456789$~+")
            self._skip(_BLANK)
            if self._peek() != ",":
                break
            self._take()
        self._skip(_BLANK + "!")
        return True

    def _skip_pattern(self, delimiter: str) -> bool:
        """Move behind the delimiter that ends a regular expression, as this mode sees it."""
        while self.at < len(self.text):
            character = self._take()
            if character == "\\":
                self._take()
            elif character == delimiter:
                return True
            elif character == "[" and self.mode != _MODES[0] and not self._skip_brackets():
                return False
        return False

    def _skip_brackets(self) -> bool:
        self.at += self._peek() == "^"
        self.at += self._peek() == "]"
        while self.at < len(self.text):
            character = self._take()
            if character == "]":
                return True
            if character == "\\" and self.mode == _MODES[1]:
                self._take()
            elif character == "[" and self._peek() in (":", ".", "="):
                end = self.text.find(self._take() + "]", self.at)
                self.at = self.at if end < 0 else end + 2
        return False

    def _skip_plain(self, delimiter: str) -> bool:
        """A replacement, or a part of y: no brackets, only backslashes."""
        while self.at < len(self.text):
            character = self._take()
            if character == "\\":
                self._take()
            elif character == delimiter:
                return True
        return False

    def _read_command(self) -> None:
        name = self._take()
        if name in "sy":
            self._read_parts(name)
        elif name == "e":
            self.why = "the e command of sed runs a program"
        elif name in "wW":
            self._write(self._line().strip())
        elif name in "rR":
            self.files.append(self._line().strip())
        elif name in "aic":
            self._read_text()
        elif name == "#":
            self._line()
        elif name in "btT:v":
            # `:a e id` runs id where a label ends at a blank, `:l}a~;1e id` where it does not end at a brace.
            self._skip(_BLANK)
            while self.at < len(self.text) and self._peek() not in self.label_ends:
                self.at += 1
        elif name in "lLqQ":
            self._skip(_BLANK + "0123456789")
        elif name not in "{}=dDgGhHnNpPxzF":
            self.lost = f"command {name!r}"

    def _read_text(self) -> None:
        """a, i and c: text up to a line that does not end in a backslash."""
        while (line := self._line()).endswith("\\") and self.at < len(self.text):
            if line.endswith("\\\\"):
                # `a text\\` ends the text or goes on, by how many there are: `e id` on the next line must not hide.
                self.lost = "text that ends in backslashes"
                return
            self.at += 1

    def _read_parts(self, name: str) -> None:
        delimiter = self._take()
        first = self._skip_pattern if name == "s" else self._skip_plain
        if delimiter in ("", "\n", "\\") or not (first(delimiter) and self._skip_plain(delimiter)):
            self.lost = f"a part of {name} that does not end"
        elif name == "s":
            self._read_flags()

    def _read_flags(self) -> None:
        # Blanks may stand before a flag: `s/a/b/ e` runs b.
        while self._peek() and self._peek() in "gpiImM0123456789ew" + _BLANK:
            flag = self._take()
            if flag == "e":
                self.why = "the e flag of sed's s command runs a program"
            elif flag == "w":
                self._write(self._line().strip())
                return

    def _write(self, name: str) -> None:
        self.files.append(name)
        if name not in _OUTPUTS:
            self.why = "the w command of sed writes a file that its script names"
