"""palyra.fs.*: the program that reads and changes a workspace, inside its own sandbox.

Started by path as `python3 -I -S files.py` in the workspace; one JSON request on stdin, one JSON answer on stdout:
{"result": …} with exit code 0, {"error": {"code", "message", …}} with 1. It trusts nothing in the workspace: names,
links and contents may be hostile and may change while it works; every size and count is bounded.

Not here: opening (beneath), listing, searching (search), changing (edits, changes, patch), what becomes of the answer
(engine/inside).
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
from typing import Any

if __name__ == "__main__":  # as a program it stands alone: its own folder is where its modules are
    sys.path.insert(0, os.path.abspath(__file__).rsplit("/palyra/inside/", 1)[0])

from palyra.inside import beneath, listing

WHOLE_BYTES = 8 << 20
"""Files up to here are read whole: they have a digest, and lines can be counted."""
MAX_BYTES = 256 << 10
DEFAULT_BYTES = 64 << 10
DEFAULT_LINES = 2000


def read(root: int, asked: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    parts = beneath.split(asked["path"], request["workspace"])
    refuse_hidden(parts, request)
    fd = beneath.open_file(root, parts)
    try:
        size = os.fstat(fd).st_size
        whole = beneath.read_whole(fd, WHOLE_BYTES) if size <= WHOLE_BYTES else None
        if "start_line" in asked or "max_lines" in asked:
            return {"path": asked["path"], **_lines(whole, asked)}
        offset, most = asked.get("offset_bytes", 0), asked.get("max_bytes", DEFAULT_BYTES)
        data = whole[offset : offset + most] if whole is not None else os.pread(fd, most, offset)
        total = max(size, offset + len(data)) if whole is None else len(whole)
        return {"path": asked["path"], **_page(data, offset, total), "sha256": _digest(whole)}
    finally:
        os.close(fd)


def _page(data: bytes, offset: int, total: int) -> dict[str, Any]:
    """As text where it is UTF-8, cut between characters; as base64 where it is not."""
    text, taken = _decode(data, at_end=offset + len(data) >= total)
    page = {"encoding": "utf-8", "text": text} if text is not None else {"encoding": "base64", "base64": _base64(data)}
    end = offset + (taken if text is not None else len(data))
    return page | {
        "offset_bytes": offset,
        "bytes": end - offset,
        "total_bytes": total,
        "next_offset_bytes": end if end < total and end > offset else None,
    }


def _decode(data: bytes, *, at_end: bool) -> tuple[str | None, int]:
    for cut in range(1 if at_end else 4):
        try:
            return data[: len(data) - cut].decode("utf-8"), len(data) - cut
        except UnicodeDecodeError:
            continue
    return None, 0


def _lines(whole: bytes | None, asked: dict[str, Any]) -> dict[str, Any]:
    if whole is None:
        raise beneath.Refused(
            "TOO_LARGE", f"Lines are counted in files of up to {WHOLE_BYTES} bytes; use offset_bytes."
        )
    first, most = asked.get("start_line", 1), asked.get("max_lines", DEFAULT_LINES)
    start = _skip(whole, 0, first - 1)
    end = start if start < 0 else _skip(whole, start, most)
    if start < 0 or start >= len(whole):
        start = end = len(whole)
    end = len(whole) if end < 0 else end
    cut = min(end, start + asked.get("max_bytes", DEFAULT_BYTES))
    page = _page(whole[start:cut], start, len(whole))
    taken = whole[start : start + page["bytes"]]
    lines = taken.count(b"\n") + (1 if taken and not taken.endswith(b"\n") else 0)
    return page | {"sha256": _digest(whole), "first_line": first, "lines": lines, "total_lines": _count_lines(whole)}


def _skip(whole: bytes, at: int, lines: int) -> int:
    """The offset after so many lines, or -1 when there are fewer."""
    for _ in range(lines):
        at = whole.find(b"\n", at) + 1
        if not at:
            return -1
    return at


def _count_lines(whole: bytes) -> int:
    return whole.count(b"\n") + (1 if whole and not whole.endswith(b"\n") else 0)


def refuse_hidden(parts: tuple[bytes, ...], request: dict[str, Any]) -> None:
    name = beneath.shown(b"/".join(parts))
    if name in request["hidden"]:
        raise beneath.Refused("HIDDEN", f"{name} is hidden from agents.", path=name)


def _digest(whole: bytes | None) -> str | None:
    return None if whole is None else hashlib.sha256(whole).hexdigest()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def answer(request: dict[str, Any]) -> dict[str, Any]:
    root = os.open(b".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return _answer(root, request["op"], request["input"], request)
    finally:
        os.close(root)


def _answer(root: int, operation: str, asked: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    if operation == "read":
        return read(root, asked, request)
    if operation == "list":
        return listing.list_folder(root, asked, request)
    if operation == "search":
        from palyra.inside import search  # only what is asked for is compiled: this program starts for every call

        return search.search(root, asked, request)
    from palyra.inside import edits

    return edits.write(root, asked, request) if operation == "write" else edits.apply_patch(root, asked, request)


def main() -> int:
    try:
        answered: dict[str, Any] = {"result": answer(json.load(sys.stdin))}
    except beneath.Refused as refusal:
        answered = {"error": {"code": refusal.code, "message": refusal.message, **refusal.where}}
    json.dump(answered, sys.stdout, ensure_ascii=True)
    sys.stdout.flush()
    return 1 if "error" in answered else 0


if __name__ == "__main__":
    sys.exit(main())
