"""Where a blob lies and what a page of it says. Pure: digests, offsets and bytes in, names and pages out."""

from __future__ import annotations

import base64

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.late import late

MAX_PAGE_BYTES = 16 * 1024
_SHA256 = late(r"[0-9a-f]{64}")


def is_sha256(text: str) -> bool:
    return _SHA256.fullmatch(text) is not None


def check_sha256(text: str) -> str:
    """Only a digest may become a path: nothing with dots or separators gets this far."""
    if not is_sha256(text):
        raise ValueError("not a lower-case hex SHA-256")
    return text


def artifact_path_parts(sha256: str) -> tuple[str, ...]:
    """ab/cd/abcd… : folders stay small with a million artifacts."""
    check_sha256(sha256)
    return (sha256[:2], sha256[2:4], sha256)


def slice_text(data: bytes, offset_bytes: int, max_bytes: int) -> dict[str, Json]:
    """A page as text, cut between characters, or as base64 where the bytes are not UTF-8."""
    total = len(data)
    if not 0 <= offset_bytes <= total:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"offset_bytes {offset_bytes} is past the end: the artifact has {total} bytes.",
            "Start at 0 and continue with next_offset_bytes.",
        )
    page = data[offset_bytes : offset_bytes + min(max_bytes, MAX_PAGE_BYTES)]
    text = _whole_characters(page, last=offset_bytes + len(page) == total)
    if text is not None:
        page, body = text.encode("utf-8"), {"encoding": "utf-8", "text": text}
    else:
        body = {"encoding": "base64", "base64": base64.b64encode(page).decode("ascii")}
    end = offset_bytes + len(page)
    return {
        "offset_bytes": offset_bytes,
        "bytes": len(page),
        "total_bytes": total,
        "next_offset_bytes": end if end < total else None,
        **body,
    }


def _whole_characters(page: bytes, *, last: bool) -> str | None:
    """The page without a character that its end cut in two; None when it is not UTF-8 or not even one fits."""
    try:
        return page.decode("utf-8")
    except UnicodeDecodeError as error:
        cut_at_end = not last and error.start >= len(page) - 3 and "unexpected end" in error.reason
        return page[: error.start].decode("utf-8") or None if cut_at_end else None
