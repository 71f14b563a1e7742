"""Touches: a new project's folder. It is written whole or not at all, and never over something that is there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from palyra.skills.project import ProjectError


def write_project(folder: Path, files: Mapping[str, str]) -> None:
    """Raises ProjectError when the folder holds something already, or cannot be made."""
    try:
        if os.path.lexists(folder) and (folder.is_symlink() or not folder.is_dir() or any(folder.iterdir())):
            raise ProjectError(f"{folder} already exists.", "Choose another place with --output, or move it away.")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProjectError(f"{folder}: {error.strerror}.", "Choose another place with --output.") from error
    try:
        for place, text in files.items():
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                file.write(text)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
