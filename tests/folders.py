"""Folders that programs under another user can walk into, which those below pytest's `tmp_path` are not."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def open_folder() -> Iterator[Path]:
    """Real and empty; gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="palyra-test-")).resolve()
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
