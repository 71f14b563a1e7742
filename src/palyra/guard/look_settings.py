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

from palyra.guard.look_links import Allowance, follow_links
from palyra.values import dataclass

MAX_KNOWN = 4096
MAX_CONFIG_BYTES = 1 << 22
TOO_MANY = "git's settings for this workspace include too many files to be looked at."
REMEDY = "git config --show-origin --list, in the workspace, says which files they are: include fewer of them."
TOO_LONG = "Settings of git's for this workspace are longer than can be read, and name hooks or include files."
SHORTEN = "git config --show-origin --list, in the workspace, says which file it is: take out of it what is not needed."
_PLACE = getattr(os, "O_PATH", os.O_NONBLOCK) | os.O_CLOEXEC
_WORDS = (b"hookspath", b"include", b"templatedir")


@dataclass(frozen=True, slots=True)
class Told:
    """As it is written: neither expanded nor joined to anything."""

    hooks: tuple[str, ...] = ()
    worktrees: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    """What git copies into each repository that it makes, hooks among it."""
    includes: tuple[str, ...] = ()
    is_cut: bool = False
    """Whether more is said than was read."""


_NOTHING = Told()
_known: dict[str, tuple[tuple[int, ...], Told]] = {}


def told_by(files: Iterable[str], allowance: Allowance) -> tuple[Told, tuple[str, ...]]:
    """What these files and those that they include say, and which were included; missing ones, too."""
    hooks, worktrees, templates = list[str](), list[str](), list[str]()
    waiting, met = list(files), set[str]()
    own = len(waiting)
    for at, file in enumerate(waiting):  # which grows meanwhile
        told = said_in(file)
        if told.is_cut:
            allowance.refuse(TOO_LONG, SHORTEN)
        hooks += told.hooks
        templates += told.templates
        worktrees += told.worktrees if at < own else ()  # git obeys it in no other file
        for path in _placed(told.includes, file, allowance):
            if path not in met and allowance.include(TOO_MANY, REMEDY):
                met.add(path)
                waiting.append(path)
    return Told(tuple(hooks), tuple(worktrees), tuple(templates)), tuple(waiting[own:])


def _placed(includes: Sequence[str], file: str, allowance: Allowance) -> Iterator[str]:
    """Without links on the way to the last name: the same file has one name then, however many loops lead to it."""
    for path in (one for value in includes for one in expanded(value, allowance)):
        folder, name = os.path.split(os.path.join(os.path.dirname(file), path))
        end = follow_links(folder, "/", allowance)
        allowance.links.update(end.links)
        if name not in ("", ".", ".."):
            yield f"{end.path.rstrip('/')}/{name}"


def expanded(value: str, allowance: Allowance) -> tuple[str, ...]:
    """For each whose git may read it: a workspace's owner is not always who runs this. A text of C's ends at NUL."""
    path = value.partition("\0")[0].removeprefix(":(optional)")
    if path == "~" or path.startswith("~/"):
        return tuple(home + path[1:] for home in allowance.homes or (os.path.expanduser("~"),))
    return (os.path.expanduser(path),) if path.startswith("~") else (path,) if path else ()


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


def said_in(config: str) -> Told:
    """In this one file."""
    try:
        seen = os.stat(config)
    except (OSError, ValueError):
        return _NOTHING
    which = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = _known.get(config)
    if known is None or known[0] != which:
        while len(_known) >= MAX_KNOWN:
            del _known[next(iter(_known))]
        known = _known[config] = which, _read(config, seen)
    return known[1]


def _read(config: str, seen: os.stat_result) -> Told:
    if not stat.S_ISREG(seen.st_mode):
        return _NOTHING
    from palyra.guard.look_gitfile import Elsewhere, read_file

    try:
        data = read_file(config, MAX_CONFIG_BYTES + 1)
    except Elsewhere:
        return _NOTHING
    lowered = data.lower()
    tells = any(word in lowered for word in _WORDS)
    if not tells and b"worktree" not in lowered and len(data) <= MAX_CONFIG_BYTES:
        return _NOTHING
    from palyra.guard.gitconfig import MAX_BYTES, read_settings

    if len(data) > MAX_BYTES:
        return Told(is_cut=tells or len(data) > MAX_CONFIG_BYTES)
    settings: list[tuple[str, str, str]] = []
    with suppress(ValueError):
        settings.extend(read_settings(data))  # one by one: what stands before an error stays
    return _sorted([(section, key, os.fsdecode(value.encode("latin-1"))) for section, key, value in settings])


def _sorted(settings: Sequence[tuple[str, str, str]]) -> Told:
    def values(key: str, *sections: str) -> tuple[str, ...]:
        return tuple(value for section, name, value in settings if name == key and section in sections)

    return Told(
        hooks=values("hookspath", "core"),
        worktrees=values("worktree", "core"),
        templates=values("templatedir", "init"),
        includes=values("path", "include", "includeif"),
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
