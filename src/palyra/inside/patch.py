"""Unified diffs: reading them, and what they make of a file's content. Pure: bytes in, bytes out.

Strict: every context and removed line must be in the file exactly, byte for byte, line ends included; a hunk may have
moved, and then the nearest place counts. `a/` and `b/` in front of names are taken off. Git's headers for new, deleted
and renamed files and for modes are understood; links, submodules, copies and binary patches are refused.

Not here: which names may be changed, and the disk (changes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from palyra.inside.beneath import Refused, shown

MAX_FILES = 128
MAX_HUNKS = 2000
NOWHERE = b"/dev/null"
_HUNK = re.compile(rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_ESCAPES = {b"n": b"\n", b"t": b"\t", b'"': b'"', b"\\": b"\\", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_MODES = {b"100644": 0o644, b"100755": 0o755}


class Hunk:
    def __init__(self, start: int, old: list[bytes], new: list[bytes]) -> None:
        self.start = start
        """Index of its first line, where it has old lines; else the index it is put in at."""
        self.old = old
        self.new = new


class FilePatch:
    def __init__(self) -> None:
        self.old: bytes | None = None
        """Its name before; None: it does not exist."""
        self.new: bytes | None = None
        self.mode: int | None = None
        self.hunks: list[Hunk] = []

    @property
    def name(self) -> str:
        return shown(self.new if self.new is not None else self.old or b"?")


def bad(message: str, **where: object) -> Refused:
    return Refused("BAD_PATCH", message, **where)


def parse(text: bytes) -> list[FilePatch]:
    lines = text.removesuffix(b"\n").split(b"\n")
    files: list[FilePatch] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith(b"diff --git ") or _opens_names(lines, at):
            one, at = _read_file(lines, at)
            files.append(one)
            if len(files) > MAX_FILES:
                raise bad(f"The patch changes more than {MAX_FILES} files.")
        elif _HUNK.match(line):
            raise bad(f"Line {at + 1}: a hunk without the names of its file (--- and +++).")
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            raise bad(f"Line {at + 1}: binary patches are not applied.")
        else:
            at += 1
    if not files:
        raise bad("There is no unified diff in the patch: it needs --- and +++ lines and hunks.")
    _refuse_repeated(files)
    return files


def _opens_names(lines: Sequence[bytes], at: int) -> bool:
    return lines[at].startswith(b"--- ") and at + 1 < len(lines) and lines[at + 1].startswith(b"+++ ")


def _read_file(lines: list[bytes], at: int) -> tuple[FilePatch, int]:
    one = FilePatch()
    head: dict[bytes, bytes] = {}
    first = at
    if lines[at].startswith(b"diff --git "):
        head[b"git"] = _line(lines[at])[11:]
        at += 1
        while at < len(lines) and (key := _header(lines[at])):
            if key in (b"copy from ", b"copy to ", b"GIT binary patch", b"Binary files "):
                raise bad(f"Line {at + 1}: copies and binary patches are not applied.")
            head[key] = _line(lines[at])[len(key) :]
            at += 1
    if at < len(lines) and _opens_names(lines, at):
        one.old, one.new = _names(_line(lines[at])[4:], _line(lines[at + 1])[4:])
        at += 2
        while at < len(lines) and (found := _HUNK.match(lines[at])):
            hunk, at = _read_hunk(lines, at, found, one)
            one.hunks.append(hunk)
            if len(one.hunks) > MAX_HUNKS:
                raise bad(f"{one.name} has more than {MAX_HUNKS} hunks.")
        if not one.hunks:
            raise bad(f"Line {at + 1}: no hunk follows the names of {one.name}.")
    elif len(head) == 1:
        raise bad(f"Line {first + 1}: nothing follows this `diff --git` line.")
    elif b"rename from " not in head:
        one.old = one.new = _git_name(head[b"git"], first)
    _apply_headers(one, head)
    return one, at


_HEADERS = (
    *(b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ", b"rename from ", b"rename to "),
    *(b"similarity index ", b"dissimilarity index ", b"index ", b"copy from ", b"copy to "),
    *(b"GIT binary patch", b"Binary files "),
)


def _header(line: bytes) -> bytes:
    return next((key for key in _HEADERS if line.startswith(key)), b"")


def _line(line: bytes) -> bytes:
    return line[:-1] if line.endswith(b"\r") else line


def _apply_headers(one: FilePatch, head: dict[bytes, bytes]) -> None:
    for key in (b"new file mode ", b"deleted file mode ", b"new mode ", b"old mode "):
        if key in head and head[key] not in _MODES:
            raise bad(f"{one.name}: mode {shown(head[key])} is not that of a regular file.")
    if b"rename from " in head or b"rename to " in head:
        if not (b"rename from " in head and b"rename to " in head):
            raise bad(f"{one.name}: a rename names two files.")
        one.old, one.new = _unquote(head[b"rename from "]), _unquote(head[b"rename to "])
    if b"new file mode " in head:
        one.old = None
    if b"deleted file mode " in head:
        one.new = None
    given = head.get(b"new mode ") or head.get(b"new file mode ")
    one.mode = _MODES[given] if given else None
    if one.old is None and one.new is None:
        raise bad("A file exists neither before nor after: /dev/null twice.")
    renamed = b"rename to " in head
    if one.old is not None and one.new is not None and one.old != one.new and not renamed:
        raise bad(f"{shown(one.old)} and {shown(one.new)} are two files; a rename needs `rename from` and `rename to`.")


def _names(old: bytes, new: bytes) -> tuple[bytes | None, bytes | None]:
    old, new = (_unquote(name if name.startswith(b'"') else name.split(b"\t")[0].rstrip()) for name in (old, new))
    prefixed = all(n == NOWHERE or n.startswith(p) for n, p in ((old, b"a/"), (new, b"b/")))
    cut = [None if name == NOWHERE else name[2:] if prefixed else name for name in (old, new)]
    return cut[0], cut[1]


def _git_name(rest: bytes, at: int) -> bytes:
    """`a/NAME b/NAME`: both the same, or the section would have said so."""
    if rest.startswith(b'"'):
        end = rest.find(b'" "')
        if end > 0:
            return _unquote(rest[: end + 1])[2:]
    half = len(rest) // 2
    old, new = rest[:half], rest[half + 1 :]
    if rest[half : half + 1] != b" " or not old.startswith(b"a/") or old[2:] != new[2:]:
        raise bad(f"Line {at + 1}: the names in this `diff --git` line cannot be read.")
    return old[2:]


def _unquote(name: bytes) -> bytes:
    """Git writes unusual names in quotes, with C's escapes."""
    if not (len(name) >= 2 and name.startswith(b'"') and name.endswith(b'"')):
        return name

    def one(found: re.Match[bytes]) -> bytes:
        text = found[1]
        return bytes([int(text, 8) & 0xFF]) if text.isdigit() else _ESCAPES.get(text, text)

    return re.sub(rb"\\([0-7]{3}|.)", one, name[1:-1])


def _read_hunk(lines: list[bytes], at: int, found: re.Match[bytes], one: FilePatch) -> tuple[Hunk, int]:
    number, first = len(one.hunks) + 1, at + 1
    old_left = int(found[2]) if found[2] is not None else 1
    new_left = int(found[4]) if found[4] is not None else 1
    start = int(found[1]) if not old_left else int(found[1]) - 1
    hunk = Hunk(start, [], [])
    at += 1
    while old_left or new_left:
        if at >= len(lines):
            raise bad(f"Hunk {number} of {one.name} (line {first}) ends too soon.", path=one.name, hunk=number)
        kind, content = lines[at][:1] or b" ", lines[at][1:] + b"\n"
        if kind == b"\\":
            _cut_newline(hunk, lines[at - 1][:1])
            at += 1
            continue
        if kind not in (b" ", b"-", b"+") or (kind != b"+" and not old_left) or (kind != b"-" and not new_left):
            raise bad(
                f"Hunk {number} of {one.name}: line {at + 1} does not fit the counts in its @@ line.",
                path=one.name,
                hunk=number,
            )
        if kind != b"+":
            hunk.old.append(content)
            old_left -= 1
        if kind != b"-":
            hunk.new.append(content)
            new_left -= 1
        at += 1
    if at < len(lines) and lines[at].startswith(b"\\"):
        _cut_newline(hunk, lines[at - 1][:1])
        at += 1
    return hunk, at


def _cut_newline(hunk: Hunk, kind: bytes) -> None:
    """`\\ No newline at end of file` speaks of the line above it."""
    sides = ((hunk.old, b"+"), (hunk.new, b"-"))
    for side, other in sides:
        if kind != other and side and side[-1].endswith(b"\n"):
            side[-1] = side[-1][:-1]


def _refuse_repeated(files: Sequence[FilePatch]) -> None:
    seen: set[bytes] = set()
    for one in files:
        names = {name for name in (one.old, one.new) if name is not None}
        if names & seen:
            raise bad(f"{one.name} is in the patch twice; put its hunks under one header.", path=one.name)
        seen |= names


def apply(content: bytes, one: FilePatch) -> tuple[bytes, list[int]]:
    """(the new content, how many lines each hunk had moved by)."""
    lines = content.split(b"\n")
    lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    result: list[bytes] = []
    done, moved, offsets = 0, 0, []
    for number, hunk in enumerate(one.hunks, 1):
        place = _find(lines, hunk, done, hunk.start + moved)
        if place < 0:
            raise _mismatch(lines, hunk, one, number, max(hunk.start + moved, 0))
        result += lines[done:place]
        result += hunk.new
        moved = place - hunk.start
        offsets.append(moved)
        done = place + len(hunk.old)
    result += lines[done:]
    _check_ends(result, one)
    return b"".join(result), offsets


def _check_ends(result: Sequence[bytes], one: FilePatch) -> None:
    if any(not line.endswith(b"\n") for line in result[:-1]):
        message = f"{one.name} has no newline at its end, and the patch does not say so."
        raise Refused("PATCH_FAILED", message, path=one.name)


def _find(lines: list[bytes], hunk: Hunk, lowest: int, wanted: int) -> int:
    if not hunk.old:
        return wanted if lowest <= wanted <= len(lines) else -1
    return next((at for at in _near(wanted, lowest, len(lines) - len(hunk.old)) if _fits(lines, hunk, at)), -1)


def _near(wanted: int, lowest: int, highest: int) -> Iterator[int]:
    """Every place from the wanted one outwards."""
    for distance in range(max(abs(wanted - lowest), abs(highest - wanted)) + 1):
        for at in (wanted - distance, wanted + distance) if distance else (wanted,):
            if lowest <= at <= highest:
                yield at


def _fits(lines: list[bytes], hunk: Hunk, at: int) -> bool:
    return lines[at] == hunk.old[0] and lines[at : at + len(hunk.old)] == hunk.old


def _mismatch(lines: list[bytes], hunk: Hunk, one: FilePatch, number: int, at: int) -> Refused:
    line = next((n for n, old in enumerate(hunk.old, at) if n >= len(lines) or lines[n] != old), at)
    why = f"line {line + 1} differs from the patch" if line < len(lines) else "the file is shorter"
    if line < len(lines) and hunk.old and lines[line].rstrip(b"\r\n") == hunk.old[line - at].rstrip(b"\r\n"):
        why = f"line {line + 1} ends differently (CRLF, or no newline)"
    message = f"Hunk {number} of {one.name} does not match: {why}."
    return Refused("PATCH_FAILED", message, path=one.name, hunk=number, line=line + 1)
