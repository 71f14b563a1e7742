"""Touches: the template files of new projects and the SDK's files, as they were installed with the package."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

_HERE = Path(__file__).parent
_SDK = _HERE.parents[1] / "sdk"
SUFFIX = ".tmpl"
ANY = "any"
"""The folder of what every language has."""


@lru_cache(maxsize=8)
def read_templates(language: str) -> dict[str, str]:
    """Place in a project → text with its holes, of `any` and of one language."""
    found = {}
    for folder in (_HERE / ANY, _HERE / language):
        for path in sorted(folder.rglob(f"*{SUFFIX}")):
            found[path.relative_to(folder).as_posix().removesuffix(SUFFIX)] = path.read_text("utf-8")
    return found


def read_sdk(name: str) -> str:
    return (_SDK / name).read_text("utf-8")
