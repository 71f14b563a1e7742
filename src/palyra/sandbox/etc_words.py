"""A launcher's words about /etc taken apart, and the same sandbox said with one bind of a folder that was made ahead.

For every bind bubblewrap reads its whole table of mounts, a tenth of a millisecond each, and a small file is seven
system calls: of a plan's words those about /etc cost most. The plan stays what it says; a folder that holds exactly
what these words would have made shows a program the same. Words that stand for something else than files, folders and
links below /etc, or that put something there later, are not shortened.

Not here: the plan (bwrap), making such a folder and knowing that it is still right (launch/etc_folder).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from palyra.model.plan import Hole, Word
from palyra.sandbox.starter import START_FILE
from palyra.sandbox.view import ETC
from palyra.values import dataclass

FOLDER_NAME = "sandbox-etc"
"""Of the folder in Palyra's state that holds them: what tells a launcher of ours from others (launch/orphans)."""
_BELOW = ETC + "/"
_WORDS = {"--dir": 2, "--file": 3, "--symlink": 3, "--ro-bind-try": 3}
"""How many words each takes, its own among them; the last one is where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Etc:
    """What a launcher was told to make below /etc; paths are those inside."""

    first: int
    after: int
    """Which of its words these are."""
    folders: tuple[tuple[str, int], ...]
    """(path, mode)"""
    links: tuple[tuple[str, str], ...]
    """(path, where it leads)"""
    files: tuple[tuple[str, int, int], ...]
    """(path, mode, which of the plan's data)"""
    shown: tuple[str, ...]
    """The host's own files and folders, each at its own path."""


@lru_cache(maxsize=64)
def etc_of(launcher: tuple[Word, ...]) -> Etc | None:
    """None where these words cannot be said by one bind."""
    first = launcher.index(ETC) - 1 if ETC in launcher else -1
    if first < 0 or launcher[first] != "--dir":
        return None
    said = list(_said_of_etc(launcher, first))
    after = said[-1].after
    if _is_named_again(launcher, after) or any(_is_strange(one) for one in said):
        return None
    return Etc(
        first=first,
        after=after,
        folders=tuple((one.place, one.mode or 0o755) for one in said if one.kind == "--dir"),
        links=tuple((one.place, str(one.given)) for one in said if one.kind == "--symlink"),
        files=tuple((one.place, one.mode, one.given.index) for one in said if isinstance(one.given, Hole)),
        shown=tuple(one.place for one in said if one.kind == "--ro-bind-try"),
    )


class _Said(NamedTuple):
    kind: str
    mode: int
    """0 where it was not said."""
    given: Word
    place: str
    after: int


def _said_of_etc(launcher: tuple[Word, ...], at: int) -> Iterator[_Said]:
    """One after the other, up to the first that is about something else."""
    while True:
        mode = int(str(launcher[at + 1]), 8) if launcher[at] == "--perms" else 0
        begun = at + 2 if mode else at
        kind = str(launcher[begun])
        at = begun + _WORDS.get(kind, 0)
        place = launcher[at - 1]
        if at == begun or not isinstance(place, str) or not (place == ETC or place.startswith(_BELOW)):
            return
        yield _Said(kind, mode, launcher[begun + 1], place, at)


def _is_strange(one: _Said) -> bool:
    """Not as our plans say it: a file of the host's shown under another name, a file nobody said the mode of."""
    if one.kind == "--ro-bind-try":
        return one.given != one.place
    return (one.kind == "--file") != isinstance(one.given, Hole) or (one.kind == "--file" and not one.mode)


def _is_named_again(launcher: Sequence[Word], at: int) -> bool:
    """A later mount below /etc would need a place there, which nobody can make in a folder that is shown read-only."""
    rest = [word for word in launcher[at:] if isinstance(word, str)]
    if rest and rest[-1] == START_FILE:
        rest.pop()
    return any(word == ETC or word.startswith(_BELOW) for word in rest)


def shorten(
    launcher: tuple[Word, ...], data: tuple[bytes, ...], etc: Etc, *, folder: str, bound: Sequence[str]
) -> tuple[tuple[Word, ...], tuple[bytes, ...]]:
    """The words and the data they name, with `folder` of the host as /etc. `bound`: what is still shown by a bind of
    its own, and may go at any time, as resolv.conf does while a network changes; the folder has a place for each."""
    words: list[Word] = list(launcher[: etc.first])
    words += ["--ro-bind", folder, ETC]
    for path in bound:
        words += ["--ro-bind-try", path, path]
    words += launcher[etc.after :]
    kept: list[int] = []
    for at, word in enumerate(words):
        if isinstance(word, Hole) and word.index >= 0:
            if word.index not in kept:
                kept.append(word.index)
            words[at] = replace(word, index=kept.index(word.index))
    return tuple(words), tuple(data[index] for index in kept)


def is_shortened(words: Sequence[bytes]) -> bool:
    """Of a launcher's command line: whether it shows a folder of ours as /etc."""
    for at, word in enumerate(words[:-2]):
        if word == b"--ro-bind" and words[at + 2] == ETC.encode():
            return words[at + 1].split(b"/")[-2:-1] == [FOLDER_NAME.encode()]
    return False
