"""A form that brings a file (`multipart/form-data`): read as it comes, strictly, and out of memory until it is whole.

Rules: the fields come first, then the one file, then the end; the CSRF token is judged when the file begins, so not a
byte of a forged form's file is kept. The file's own name is never used for anything. What is not exactly of this shape
is refused: two readers, two meanings. `Parts` does no I/O and sees any split of the bytes alike.

Not here: what becomes of the file (the route), how much may come and how slowly (its bound, daemon/reading).
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Callable
from typing import IO

from starlette.requests import Request

from palyra.daemon.reading import take_body
from palyra.daemon.routes import Refused

MAX_HEAD_BYTES = 4096
MAX_VALUE_BYTES = 4096
MAX_FIELDS = 16
_BOUNDARY = re.compile(r'multipart/form-data; *boundary="?([A-Za-z0-9\'()+_,./:=?-]{1,70})"?', re.IGNORECASE)
_DISPOSITION = re.compile(
    rb'(?:^|\r\n)content-disposition: *form-data; *name="([a-z_]{1,64})"(; *filename(\*?)=[^\r\n]*)?(?:\r\n|$)',
    re.IGNORECASE,
)
OnFile = Callable[[dict[str, str]], None]


def malformed(message: str) -> Refused:
    return Refused(400, "MALFORMED", message, "Send the form of the console's own page.")


def boundary_of(content_type: str) -> bytes:
    found = _BOUNDARY.fullmatch(content_type.strip())
    if found is None:
        raise malformed("The body is not a form with a file.")
    return found[1].encode()


class Parts:
    """Bytes in, fields and the file's bytes out."""

    def __init__(self, boundary: bytes, *, on_file: OnFile, write: Callable[[bytes], object]) -> None:
        """`on_file` is told the fields when the file begins; it may refuse."""
        self._mark = b"\r\n--" + boundary
        self._rest = b"\r\n"  # the first mark stands without the line's end that all others have
        self._step: Callable[[], bool] = self._between
        self._on_file, self._write = on_file, write
        self._name: str | None = None
        self._value = b""
        self.fields: dict[str, str] = {}
        self.file_name: str | None = None
        """Of the form's field; what the sender calls the file is nobody's business."""
        self.is_whole = False

    def feed(self, data: bytes) -> None:
        self._rest += data
        while self._step():
            pass

    # ── steps: True where there may be more to take from what is there ──

    def _between(self) -> bool:
        needed = len(self._mark) + 2
        if len(self._rest) < needed:
            if not (self._mark + b"\r\n").startswith(self._rest) and not (self._mark + b"--").startswith(self._rest):
                raise malformed("The form does not begin with its boundary.")
            return False
        mark, end = self._rest[: needed - 2], self._rest[needed - 2 : needed]
        if mark != self._mark or end not in (b"\r\n", b"--"):
            raise malformed("The form's parts are not separated correctly.")
        self._rest = self._rest[needed:]
        self._step = self._head if end == b"\r\n" else self._end
        return True

    def _head(self) -> bool:
        end = self._rest.find(b"\r\n\r\n")
        if end < 0:
            if len(self._rest) > MAX_HEAD_BYTES:
                raise malformed("A part of the form has headers that do not end.")
            return False
        found = _DISPOSITION.search(self._rest, 0, end + 2)
        named = self._rest[:end].lower().count(b"content-disposition:")
        if end > MAX_HEAD_BYTES or found is None or named != 1:
            raise malformed("A part of the form has no name, or an invalid one.")
        self._begin(found[1].decode().lower(), is_file=found[2] is not None)
        self._rest = self._rest[end + 4 :]
        self._step = self._body
        return True

    def _begin(self, name: str, *, is_file: bool) -> None:
        if self.file_name is not None:
            raise malformed("Something follows the file; it must be the last part of the form.")
        if name in self.fields or len(self.fields) >= MAX_FIELDS:
            raise malformed("A field appears twice in the form, or there are too many.")
        if is_file:
            self.file_name, self._name = name, None
            self._on_file(self.fields)
        else:
            self._name, self._value = name, b""

    def _body(self) -> bool:
        at = self._rest.find(self._mark)
        ends = at >= 0
        upto = at if ends else max(0, len(self._rest) - len(self._mark) + 1)
        self._take(self._rest[:upto])
        self._rest = self._rest[upto:]
        if ends:
            self._finish()
            self._step = self._between
        return ends

    def _take(self, data: bytes) -> None:
        if self._name is None:
            self._write(data)
            return
        self._value += data
        if len(self._value) > MAX_VALUE_BYTES:
            raise malformed("A field of the form is too long.")

    def _finish(self) -> None:
        if self._name is not None:
            try:
                self.fields[self._name] = self._value.decode("utf-8")
            except UnicodeDecodeError:
                raise malformed("A field of the form is not UTF-8.") from None

    def _end(self) -> bool:
        self.is_whole = True
        if len(self._rest) > 2 or not b"\r\n".startswith(self._rest):
            raise malformed("Something follows the form.")
        return False


async def read_upload(
    request: Request, *, max_bytes: int, timeout_s: float, check_csrf: Callable[[dict[str, str]], None]
) -> tuple[dict[str, str], bytes]:
    """(fields, the file). Until it is whole it lies in a file without a name, which a crash leaves nothing of."""
    boundary = boundary_of(request.headers.get("content-type", ""))
    with tempfile.TemporaryFile() as kept:
        parts = Parts(boundary, on_file=check_csrf, write=kept.write)
        await take_body(request, parts.feed, max_bytes=max_bytes, timeout_s=timeout_s)
        if not parts.is_whole or parts.file_name is None:
            raise malformed("The form ended early, or has no file.")
        return parts.fields, await asyncio.to_thread(_read, kept)


def _read(kept: IO[bytes]) -> bytes:
    kept.seek(0)
    return kept.read()
