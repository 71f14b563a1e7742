"""Names what the machine gives too little of: memory, open files. Checked before a command starts, and when one fails.

Below a few hundred megabytes native libraries abort the process or fail to load in the middle of an import, which no
handler turns into a sentence, so the limit itself is checked. Nothing is imported here: with no memory or descriptors
left an import fails, too.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

LEAST_ADDRESS_SPACE = 192 << 20
"""Bytes. `palyra mcp` and `serve` abort or fail below 160 MiB before they answer anything."""
LEAST_OPEN_FILES = 48
"""A sandboxed call needs 45 descriptors."""
CALLING = ("run", "call", "mcp", "serve")
MEMORY = "There is too little memory for Palyra to start or go on."
MEMORY_HINT = (
    "Raise the limit (ulimit -v unlimited; ulimit -d unlimited; the service's MemoryMax), or end some programs."
)
FILES_HINT = "Raise it: ulimit -n 1024"
_MAPPING = ("failed to map segment", "cannot allocate memory", "cannot allocate version")
_FILES = "too many open files"


def find_low_limit(command: str) -> tuple[str, str] | None:
    """Return a sentence and a hint where a limit of this process is too low for the command."""
    import resource

    memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    if command and resource.RLIM_INFINITY != memory < LEAST_ADDRESS_SPACE:
        return f"The limit on memory is {memory >> 20} MiB; Palyra needs {LEAST_ADDRESS_SPACE >> 20}.", MEMORY_HINT
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if command in CALLING and resource.RLIM_INFINITY != files < LEAST_OPEN_FILES:
        return f"The limit on open files is {files}; palyra {command} needs {LEAST_OPEN_FILES}.", FILES_HINT
    return None


def shortage_of(error: BaseException | None) -> int:
    """Return ENOMEM or EMFILE where this error, or what it came from, says so; otherwise 0."""
    for _ in range(8):
        if error is None:
            return 0
        if isinstance(error, MemoryError):
            return errno.ENOMEM
        if isinstance(error, (ImportError, OSError)):
            number, text = getattr(error, "errno", None), str(error).lower()
            if number == errno.ENOMEM or any(words in text for words in _MAPPING):
                return errno.ENOMEM
            if number == errno.EMFILE or _FILES in text:
                return errno.EMFILE
        error = error.__cause__ or error.__context__
    return 0


def write_plainly(sentence: str, hint: str) -> None:
    """Write the two lines of an error with what is loaded already, on stderr itself."""
    with suppress(OSError):
        os.write(2, f"palyra: {sentence}\nhint: {hint}\n".encode())
