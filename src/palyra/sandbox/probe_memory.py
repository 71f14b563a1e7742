"""What probes found, remembered in `probe.json` of the state home under keys that change with whatever could change it.

Rules: an entry counts only if the file is nobody else's to write and no link, and if every field has its declared type;
it is written whole or not at all; a home that cannot be written is no reason to fail. A failure is never remembered.

Not here: the keys (probe, probe_container).
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, fields
from typing import Any, TypeVar

CACHE_NAME = "probe.json"
_REMEMBERED = 8
T = TypeVar("T")


def recall(state_home: str, key: str, kind: type[T]) -> T | None:
    """A frozen value of scalars, as `remember` wrote it."""
    types = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]  # a dataclass
    try:
        fd = os.open(os.path.join(state_home, CACHE_NAME), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(fd, encoding="utf-8") as file:
            owner = os.fstat(fd)
            if owner.st_uid not in (0, os.getuid()) or owner.st_mode & 0o022:
                return None
            entry = json.load(file)[key]
        right = entry.keys() == types.keys() and all(type(entry[n]).__name__ == t for n, t in types.items())
        return kind(**entry) if right else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def remember(state_home: str, key: str, found: Any) -> None:
    if not os.path.isdir(state_home):
        return
    import tempfile  # too heavy for every start

    path = os.path.join(state_home, CACHE_NAME)
    entries = {}
    with contextlib.suppress(OSError, ValueError), open(path, encoding="utf-8") as file:
        read = json.load(file)
        entries = read if isinstance(read, dict) else {}
    entries.pop(key, None)
    kept = dict([*entries.items(), (key, asdict(found))][-_REMEMBERED:])
    with contextlib.suppress(OSError):
        fd, temporary = tempfile.mkstemp(prefix=".probe-", dir=state_home)
        with open(fd, "w", encoding="utf-8") as file:
            file.write(json.dumps(kept))
        os.replace(temporary, path)
