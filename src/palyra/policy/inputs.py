"""Scalar arguments that a policy may look at: `context.input has path && context.input.path like "docs/*"`.

Rules: only the names below, each with the type that its tools' JSON Schemas give it, and only values of exactly that
type: an object in their place never enters, so no `__entity` or `__extn` of a caller's reaches Cedar. A path is given
without `.`, `..` and doubled separators, else `docs/../secret` would be below `docs`; one at or below the workspace is
given relative to it, else `forbid … like "secrets/*"` would not see the same file by its absolute name, or a folder by
`../WORKSPACE/secrets`. What is too long to be looked at makes the decision an error, if some policy looks. Links are
not resolved: the facts and the sandbox see to them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypeAlias

from palyra.canon import MAX_INT, Json

Scalar: TypeAlias = str | bool | int
Input: TypeAlias = tuple[tuple[str, Scalar], ...]

INPUT = "input"
"""The name of the record in the context."""
_TEXTS = "command cwd lifetime process_id artifact_id path url method skill_id tool_id".split()
_NUMBERS = "timeout_ms offset_bytes max_bytes".split()
INPUTS: Mapping[str, type] = MappingProxyType(
    dict.fromkeys(_TEXTS, str) | dict.fromkeys(_NUMBERS, int) | {"background": bool}
)
"""Every argument that is offered, with its type; each of them may be absent."""
_PATHS = frozenset({"path", "cwd"})
_ELSEWHERE = ("/", "..")
"""How a path without detours begins that may name a place outside the workspace, or one in it once more."""
_KINDS = tuple(INPUTS.items())


def read_input(arguments: Mapping[str, Json], workspace: str = "") -> Input:
    """The record's attributes, in a fixed order. `workspace`: absolute, its links followed."""
    found = [(name, arguments[name]) for name, kind in _KINDS if name in arguments and type(arguments[name]) is kind]
    return tuple((name, _path_seen(value, workspace) if name in _PATHS and value else value) for name, value in found)


def names_place(arguments: Mapping[str, Json]) -> bool:
    """What a policy sees of these arguments hangs on where the workspace is."""
    return any(_plain_path(str(arguments.get(name, ""))).startswith(_ELSEWHERE) for name in _PATHS)


def _path_seen(path: str, workspace: str) -> str:
    plain = _plain_path(path)
    if not workspace or not plain.startswith(_ELSEWHERE):
        return plain
    top = _plain_path(workspace)
    absolute = _plain_path(posixpath.join(top, plain))  # what goes up may come down again into the workspace
    return absolute[len(top) + 1 :] or "." if f"{absolute}/".startswith(f"{top}/") else plain


def _plain_path(path: str) -> str:
    plain = posixpath.normpath(path)
    return plain[1:] if plain.startswith("//") else plain  # two slashes at the beginning stay, by an old rule


def check_input(record: Input, *, max_text: int) -> None:
    """Raises ValueError for a value that is too large for the engine."""
    for name, value in record:
        if isinstance(value, str) and len(value) > max_text:
            raise ValueError(f"input.{name} is longer than {max_text} characters")
        if isinstance(value, int) and abs(value) > MAX_INT:
            raise ValueError(f"input.{name} is out of range")
