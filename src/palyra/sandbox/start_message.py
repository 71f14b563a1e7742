"""What is said to the start program: one message that makes it become the program. Pure.

Everything it needs, with pointers made for the address the message is read to: limits, folder, program, arguments,
environment, and the nonce it writes when any of that fails. That nonce, which the program could not know, and nothing
else, means "the program was never started"; the exit code then is the number of the error.

Not here: the start program (starter), the message for a held shell (launch/message).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from palyra.late import late
from palyra.sandbox.machine_code import HEAD_WORDS, LIMIT_WORDS, MESSAGE_AT, MESSAGE_BYTES

Limit: TypeAlias = tuple[int, int, int]
"""Which (the kernel's number), soft, hard."""

FIRST_PROCESS, ITSELF = 1, 0
MAX_REMEMBERED_CHARS = 4096
"""Of arguments; what may be large is not kept."""
_KEY = late(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = (1 << 64) - 1


def start_message(
    *,
    program: str,
    arguments: Sequence[str],
    env: Sequence[tuple[str, str]],
    cwd: str,
    limits: Sequence[Limit],
    nonce: bytes,
    limit_first: bool,
) -> bytes:
    """`limit_first`: the sandbox's first process gets the limits too. Raises ValueError for what no exec can carry: a
    NUL, a relative program or folder, a key that is no name, more than there is room for."""
    known = sum(map(len, arguments)) <= MAX_REMEMBERED_CHARS
    head, rest = (_parts if known else _parts.__wrapped__)(
        program, tuple(arguments), tuple(env), cwd, tuple(limits), len(nonce) + 1, limit_first=limit_first
    )
    return head + nonce + b"\n" + rest


@lru_cache(maxsize=64)
def _parts(
    program: str,
    arguments: tuple[str, ...],
    env: tuple[tuple[str, str], ...],
    cwd: str,
    limits: tuple[Limit, ...],
    nonce_bytes: int,
    *,
    limit_first: bool,
) -> tuple[bytes, bytes]:
    """What comes before the nonce and after it. Remembered: the same few commands are run over and over."""
    if not program.startswith("/") or not cwd.startswith("/"):
        raise ValueError("the program and its folder must be absolute paths")
    if any(not _KEY.fullmatch(key) for key, _ in env):
        raise ValueError("the name of an environment variable is not one")
    whose = (FIRST_PROCESS, ITSELF) if limit_first else (ITSELF,)
    limited = [(pid, *(number & _WORD for number in limit)) for pid in whose for limit in limits]
    nonce_at = 8 * HEAD_WORDS + 8 * LIMIT_WORDS * len(limited)
    texts = bytearray()

    def put(text: str) -> int:
        raw = text.encode("utf-8", "surrogateescape")
        if b"\0" in raw:
            raise ValueError("an argument, variable or folder holds a NUL")
        at = len(texts)
        texts.extend(raw + b"\0")
        return MESSAGE_AT + nonce_at + nonce_bytes + at

    words = [put(word) for word in (program, *arguments)]
    variables = [put(f"{key}={value}") for key, value in env]
    folder = put(cwd)
    texts += bytes(-(nonce_at + nonce_bytes + len(texts)) % 8)
    arrays_at = nonce_at + nonce_bytes + len(texts)
    arrays = struct.pack(f"<{len(words) + len(variables) + 2}Q", *words, 0, *variables, 0)
    argv, length = MESSAGE_AT + arrays_at, arrays_at + len(arrays)
    if length > MESSAGE_BYTES:
        raise ValueError("its arguments and environment are too large")
    head = (length, words[0], argv, argv + 8 * (len(words) + 1), folder, MESSAGE_AT + nonce_at, nonce_bytes)
    packed = struct.pack("<8Q", *head, len(limited)) + b"".join(struct.pack("<4Q", *limit) for limit in limited)
    return packed, bytes(texts) + arrays
