"""What git's settings say of other places: of the files read, and of all that those include.

Touches the file system, reading only. Rules: read as git reads it: bytes that are UTF-8 or not, `~` as the operator's
home, an included file relative to the one that includes it, links on the way followed before `..` is. Every condition
(`includeIf`) counts as met: what holds for the operator's git in an hour nobody knows now. Each file is read once while
nothing about it changes, for this is asked before and after each call, and once in a look, so that files which include
each other come to an end. What cannot be read says nothing; where git would stop in a file, what stands before counts.

Not here: what is closed because of it (look_guarded), what of such settings is a program (gitconfig).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from palyra.guard.look_links import MAX_CONFIG_BYTES, USER_STEPS, Allowance, follow_links
from palyra.values import dataclass

MAX_KNOWN = 4096
TOO_MANY = "git's settings for this workspace include too many files to be looked at."
REMEDY = "git config --show-origin --list, in the workspace, says which files they are: include fewer of them."
TOO_LONG = f"git's settings for this workspace are longer than {MAX_CONFIG_BYTES >> 20} MiB in all, and not looked at."
SHORTEN = "git config --show-origin --list, in the workspace, says which files they are: take out what is not needed."
_PLACE = getattr(os, "O_PATH", os.O_NONBLOCK) | os.O_CLOEXEC
_WORDS = (b"hookspath", b"include", b"templatedir", b"worktree", b"safe")


@dataclass(frozen=True, slots=True)
class Told:
    """As it is written: neither expanded nor joined to anything."""

    hooks: tuple[str, ...] = ()
    worktrees: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    """What git copies into each repository that it makes, hooks among it."""
    includes: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    """Repositories of others that git obeys all the same."""


_NOTHING = Told()
_known: dict[str, tuple[tuple[int, ...], Told]] = {}


def told_by(files: Iterable[str], allowance: Allowance) -> tuple[Told, tuple[str, ...]]:
    """What these files and those that they include say, and which were included; missing ones, too."""
    hooks, worktrees, templates, trusted = list[str](), list[str](), list[str](), list[str]()
    waiting, met = list(files), set[str]()
    own = len(waiting)
    for at, file in enumerate(waiting):  # which grows meanwhile
        if allowance.is_spent:
            break
        told = said_in(file, allowance)
        hooks += told.hooks
        templates += told.templates
        trusted += told.trusted
        worktrees += told.worktrees if at < own else ()  # git obeys it in no other file
        for path in _placed(told.includes, file, allowance):
            if path not in met and allowance.include(TOO_MANY, REMEDY):
                met.add(path)
                waiting.append(path)
    found = Told(tuple(hooks), tuple(worktrees), tuple(templates), trusted=tuple(trusted))
    return found, tuple(waiting[own:])


def _placed(includes: Sequence[str], file: str, allowance: Allowance) -> Iterator[str]:
    """Without links on the way to the last name: the same file has one name then, however many loops lead to it."""
    for path in (one for value in includes for one in expanded(value, allowance)):
        folder, name = os.path.split(os.path.join(os.path.dirname(file), path))
        if not is_itself(folder):
            end = follow_links(folder, "/", allowance)
            allowance.remember(end)
            folder = end.path
        if name not in ("", ".", ".."):
            yield f"{folder.rstrip('/')}/{name}"


def expanded(value: str, allowance: Allowance) -> tuple[str, ...]:
    """For each whose git may read it: a workspace's owner is not always who runs this. A text of C's ends at NUL."""
    path = value.partition("\0")[0].removeprefix(":(optional)")
    if path == "~" or path.startswith("~/"):
        return tuple(home + path[1:] for home in allowance.homes or (os.path.expanduser("~"),))
    if path.startswith("~"):
        return (os.path.expanduser(path),) if allowance.step(USER_STEPS) else ()
    return (path,) if path else ()


def real_files(files: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(file, where it really is) of those that exist. The kernel is asked: this is, before and after every call."""
    for file in files:
        try:
            descriptor = os.open(file, _PLACE)
        except (OSError, ValueError):
            continue
        try:
            yield file, os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:  # a system without
            yield file, os.path.realpath(file)
        finally:
            os.close(descriptor)


def is_itself(path: str) -> bool:
    """Whether it exists, and no link leads there: a fifth of what it costs to follow it."""
    return any(file == real for file, real in real_files((path,)))


def said_in(config: str, allowance: Allowance) -> Told:
    """In this one file."""
    try:
        seen = os.stat(config)
    except (OSError, ValueError):
        return _NOTHING
    if not stat.S_ISREG(seen.st_mode) or not allowance.read(config, seen.st_size, TOO_LONG, SHORTEN):
        return _NOTHING
    which = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = _known.get(config)
    if known is None or known[0] != which:
        while len(_known) >= MAX_KNOWN:
            del _known[next(iter(_known))]
        known = _known[config] = which, _read(config)
    return known[1]


def _read(config: str) -> Told:
    from palyra.guard.look_gitfile import Elsewhere, read_file

    try:
        data = read_file(config, MAX_CONFIG_BYTES)
    except Elsewhere:
        return _NOTHING
    lowered = data.lower()
    if not any(word in lowered for word in _WORDS):
        return _NOTHING
    from palyra.guard.gitconfig import read_settings

    settings: list[tuple[str, str, str]] = []
    with suppress(ValueError):
        settings.extend(read_settings(data, MAX_CONFIG_BYTES))  # one by one: what stands before an error stays
    return _sorted([(section, key, os.fsdecode(value.encode("latin-1"))) for section, key, value in settings])


def _sorted(settings: Sequence[tuple[str, str, str]]) -> Told:
    def values(key: str, *sections: str) -> tuple[str, ...]:
        return tuple(value for section, name, value in settings if name == key and section in sections)

    return Told(
        hooks=values("hookspath", "core"),
        worktrees=values("worktree", "core"),
        templates=values("templatedir", "init"),
        includes=values("path", "include", "includeif"),
        trusted=values("directory", "safe"),
    )


def homes_of(owner_uid: int) -> tuple[str, ...]:
    """The home of a workspace's owner, who uses git in it too, where that is not who runs this."""
    if owner_uid == os.geteuid():
        return ()
    from pwd import getpwuid

    try:
        home = getpwuid(owner_uid).pw_dir
    except (KeyError, OverflowError):
        return ()
    return (home,) if home.startswith("/") and home != "/" else ()
