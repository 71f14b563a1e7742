"""Searches the files of a workspace line by line: a plain text, or a regular expression.

`.git`, binary files and files past a size are left out and counted; links are not followed. A pattern that takes for
ever is ended by the CPU limit of the sandbox it runs in, together with everything else here.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterator
from typing import Any

from palyra.inside import beneath, listing

Parts = tuple[bytes, ...]

DEFAULT_MATCHES = 100
MAX_FILE_BYTES = 8 << 20
MAX_TOTAL_BYTES = 256 << 20
MAX_LINE_CHARS = 4096
"""Looked at in one line."""
SHOWN_CHARS = 400


class Tally:
    def __init__(self) -> None:
        self.searched = self.skipped = self.bytes = 0
        self.truncated = False


def search(root: int, asked: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    parts = beneath.split(asked.get("path", "."), request["workspace"])
    pattern = _compile(asked)
    literal = b"" if asked.get("regex") or asked.get("ignore_case") else asked["pattern"].encode("utf-8")
    wanted = re.compile(fnmatch.translate(asked["glob"])).match if "glob" in asked else None
    tally, most = Tally(), asked.get("max_matches", DEFAULT_MATCHES)
    matches: list[dict[str, Any]] = []
    size = 0
    for name, content in _contents(root, parts, tally, request, wanted):
        if literal and literal not in content:
            continue
        for match in _matches(pattern, content):
            if len(matches) == most or size > listing.MAX_ANSWER_CHARS:
                tally.truncated = True
                break
            matches.append({"path": name, **match})
            size += len(name) + len(match["text"])
        if tally.truncated:
            break
    return {
        "matches": matches,
        "files_searched": tally.searched,
        "files_skipped": tally.skipped,
        "truncated": tally.truncated,
    }


def _compile(asked: dict[str, Any]) -> re.Pattern[str]:
    text = asked["pattern"] if asked.get("regex") else re.escape(asked["pattern"])
    try:
        return re.compile(text, re.IGNORECASE if asked.get("ignore_case") else 0)
    except (re.error, OverflowError, RecursionError) as error:
        raise beneath.Refused("BAD_PATTERN", f"The pattern is not a regular expression: {str(error)[:200]}.") from None


def _contents(
    root: int, parts: Parts, tally: Tally, request: dict[str, Any], wanted: Any
) -> Iterator[tuple[str, bytes]]:
    for path, folder, name in _files(root, parts, tally):
        shown = beneath.shown(b"/".join(path))
        if shown in request["hidden"] or (wanted is not None and not (wanted(shown) or wanted(beneath.shown(name)))):
            continue
        content = _read(folder, name)
        if content is None or b"\0" in content[:8192]:
            tally.skipped += 1
            continue
        tally.searched += 1
        tally.bytes += len(content)
        yield shown, content
        if tally.bytes > MAX_TOTAL_BYTES:
            tally.truncated = True
            return


def _files(root: int, parts: Parts, tally: Tally) -> Iterator[tuple[tuple[bytes, ...], int, bytes]]:
    """(path, folder's descriptor, name) of every regular file at or below the path."""
    try:
        folder = beneath.open_folder(root, parts)
    except beneath.Refused as refusal:
        if refusal.code != "NOT_A_FOLDER" or not parts:
            raise
        os.close(beneath.open_file(root, parts, links=False))
        yield parts, beneath.open_folder(root, parts[:-1]), parts[-1]
        return
    walk = listing.Walk(recursive=True)
    try:
        for path, where in walk.entries(folder):
            if _is_regular(where, path[-1]):
                yield (*parts, *path), where, path[-1]
    except beneath.Refused:  # too many names: what was found so far counts
        walk.cut = True
    tally.truncated = tally.truncated or walk.cut


def _is_regular(folder: int, name: bytes) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _read(folder: int, name: bytes) -> bytes | None:
    try:
        fd = beneath.open_file(folder, (name,), links=False)
    except beneath.Refused:
        return None
    try:
        return beneath.read_whole(fd, MAX_FILE_BYTES)
    except OSError:
        return None
    finally:
        os.close(fd)


def _matches(pattern: re.Pattern[str], content: bytes) -> Iterator[dict[str, Any]]:
    at = number = 0
    while at < len(content):
        number += 1
        end = content.find(b"\n", at)
        end = len(content) if end < 0 else end
        text = content[at : min(end, at + 4 * MAX_LINE_CHARS)].decode("utf-8", "replace")[:MAX_LINE_CHARS]
        found = pattern.search(text.rstrip("\r"))
        if found is not None:
            start = max(0, found.start() - SHOWN_CHARS // 2) if len(text) > SHOWN_CHARS else 0
            yield {"line": number, "column": found.start() + 1, "text": text.rstrip("\r")[start : start + SHOWN_CHARS]}
        at = end + 1
