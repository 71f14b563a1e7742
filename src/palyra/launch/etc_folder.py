"""Folders that hold all of a sandbox's /etc, made ahead and shown by one bind; and whether one is still right.

A folder holds what a plan's words would have made: synthetic files, links, our own programs, and copies of what the
host shows there. Rules: it is named by a digest of all that is in it and of the identity (device, inode, mode, size,
both times) of every file and folder of the host that was copied, links being told by the time of the folder they are
in. Each of these is looked at while a launcher works, and again when a sandbox that waited is taken: what a program
sees is right or it does not begin. What changed within the last seconds is not copied: a second change in the same tick
of a clock could not be told. What is large, no plain file, or not for everybody to read keeps a bind of its own: a copy
is its maker's, and would show what the kernel keeps from whoever is inside.

It lies in Palyra's own state, out of every program's reach, is read-only inside, and has its name only when it is
complete; a boot makes its own, so that none is found half-written after a power cut. None is used where another user
starts the sandbox, where paths of the workspace are hidden (what stands for them is the sandbox's own), or for one that
stays: what nobody asked for in two days and no process holds is removed. Not here: which words (sandbox/etc_words),
starting (held), holding (in_use).
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from palyra.canon import sha256_hex
from palyra.launch import in_use
from palyra.launch.host_files import Identity, Seen, identity, is_unchanged
from palyra.launch.removing import remove_tree
from palyra.sandbox.etc_words import FOLDER_NAME, Etc, etc_of, shorten
from palyra.sandbox.view import ETC
from palyra.values import change, dataclass

if TYPE_CHECKING:
    from palyra.launch.held import Template
    from palyra.model.host import HostFacts

ALWAYS_BOUND = ("/etc/hosts", "/etc/resolv.conf")
"""The network's, and rewritten while programs run."""
MAX_LOOKS = 16
"""Of one file or folder of the host: each is looked at before every start, and in every call that takes a sandbox which
waited. A bind costs less than more looks, and no call waits for it."""
MAX_ENTRIES = 4096
MAX_BYTES = 8 << 20
SETTLED_NS = 2_000_000_000
UNUSED_NS = 2 * 24 * 3600 * 1_000_000_000
TOUCH_S = 6 * 3600.0
RETRY_S = 5.0
MAX_KEPT = 64
_MAKING = ".making-"
_FORM = "1"
_NO_SYMLINKS = 0x2000  # ST_NOSYMFOLLOW


class _TooMuch(Exception):
    """Not to be copied: large, no plain files, or not for everybody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Host:
    """What of the host belongs to one /etc, as it was a moment ago."""

    seen: Seen
    copied: tuple[str, ...]
    bound: tuple[tuple[str, bool], ...]
    """(path, whether it is a folder)"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    seen: Seen
    folder: str
    which: tuple[int, int]
    template: Template


class EtcFolders:
    """Those of one executor's host. Used on its loop; made in a thread, while the next start does without."""

    def __init__(self, host: HostFacts) -> None:
        self._root = os.path.join(host.state_home, FOLDER_NAME) if host.state_home else ""
        self._made: dict[Template, _Made] = {}
        self._touched: dict[str, float] = {}
        self._held: dict[str, int] = {}
        """Until this process ends: sandboxes that began with one may be running."""
        self._boot = ""
        self._making: threading.Thread | None = None
        self._not_before = 0.0
        self.is_seen_to_work = False
        """A sandbox was started with one of them."""

    def shortened(self, template: Template) -> Template:
        """The same sandbox with one bind for its /etc; or the very same template, where there is no such folder yet:
        then one is made for the next. Whether it is still right is looked at while the launcher works (entering)."""
        known = self._made.get(template)
        if known is not None:
            self._touch(known.folder)
            return known.template
        is_busy = self._making is not None and self._making.is_alive()
        if self._root and not is_busy and time.monotonic() >= self._not_before and _may_be_shortened(template):
            making = threading.Thread(target=self.make, args=(template,), name="palyra-etc", daemon=True)
            with suppress(RuntimeError):  # there is no room for a thread
                making.start()
                self._making = making
        return template

    def is_to_blame(self, template: Template) -> bool:
        """Whether a sandbox that did not start may start without: the folder is not right any more, or none was ever
        seen to work here."""
        known = self._made.get(template)
        if not self.is_seen_to_work:
            self.give_up()  # a launcher may be kept from our state by what we cannot see
        elif known is not None and is_unchanged(known.seen) and _which(known.folder) == known.which:
            return False
        self._made.pop(template, None)
        return True

    def make(self, template: Template) -> None:
        """Here and now."""
        etc, made = etc_of(template.launcher), None
        with suppress(OSError):  # a full or read-only disk, a file that may not be read
            made = self._make(template, etc) if etc is not None and self._root else None
        if made is None:
            self._not_before = time.monotonic() + RETRY_S
            return
        while len(self._made) >= MAX_KEPT:
            self._made.pop(next(iter(self._made)), None)
        self._made[template] = made

    def give_up(self) -> None:
        """No sandbox starts with one here."""
        self._root = ""
        self._made.clear()

    def close(self) -> None:
        if self._making is not None:
            self._making.join()
        while self._held:
            os.close(self._held.popitem()[1])

    def _make(self, template: Template, etc: Etc) -> _Made | None:
        host = _look(etc.shown)
        self._boot = self._boot or _boot_id()
        parts = (_FORM, self._boot, etc.folders, etc.links, host.seen, host.bound)
        files = tuple((place, mode, sha256_hex(template.data[index])) for place, mode, index in etc.files)
        folder = os.path.join(self._root, sha256_hex(repr((*parts, files)).encode("utf-8", "surrogateescape")))
        if not os.path.isdir(folder) and not _write(folder, template, etc, host):
            return None
        if not self._hold(folder) or not _can_be_shown(folder):
            return None
        self._touch(folder)
        bound = [path for path, _ in host.bound]
        words, data = shorten(template.launcher, template.data, etc, folder=folder, bound=bound)
        itself = _itself(folder, etc)
        if any(which is None for _, which in itself):  # it has just been removed
            return None
        seen = (*host.seen, *itself)
        short = change(template, launcher=words, data=data, host_files=seen)
        return _Made(seen=seen, folder=folder, which=_which(folder), template=short)

    def _hold(self, folder: str) -> bool:
        held = self._held.get(folder)
        if held is not None and in_use.is_at(held, folder):
            return True
        fd = in_use.hold(folder)
        if fd is None:
            return False
        if held is not None:
            os.close(held)
        self._held.pop(folder, None)
        self._held[folder] = fd
        while len(self._held) > MAX_KEPT:  # of a process that saw the host's files change that often
            os.close(self._held.pop(next(iter(self._held))))
        return True

    def _touch(self, folder: str) -> None:
        """Told to whoever removes what is not used any more."""
        now = time.monotonic()
        if now - self._touched.get(folder, -TOUCH_S) >= TOUCH_S:
            self._touched[folder] = now
            with suppress(OSError):
                os.utime(folder)


def _itself(folder: str, etc: Etc) -> Seen:
    """A file of the folder's own: by its path, which goes first (`_remove_unused`), it is known to be there still. A
    machine that slept for days wakes up with sandboxes that are seconds old and a folder that nobody asked for."""
    return tuple((path, identity(path)) for path in (folder + place[len(ETC) :] for place, _, _ in etc.files[:1]))


def _may_be_shortened(template: Template) -> bool:
    return template.run_as is None and not any(kind.startswith("hidden") for kind, _ in template.closed)


def _which(folder: str) -> tuple[int, int]:
    try:
        found = os.stat(folder)
    except OSError:
        return (-1, -1)
    return found.st_dev, found.st_ino


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _look(paths: Sequence[str]) -> _Host:
    seen: list[tuple[str, Identity | None]] = []
    copied, bound = [], []
    for path in paths:
        top = identity(path)
        try:
            if top is not None and (path in ALWAYS_BOUND or not _is_for_everybody(top)):
                raise _TooMuch
            found = list(_parts(path, top)) if top is not None else []
        except _TooMuch:
            bound.append((path, top is not None and stat.S_ISDIR(top[2])))
            continue
        if top is None:
            nothing = (_first_missing(path), None)
            seen += [nothing] if nothing not in seen else []
            continue
        seen += [(path, top), *found]
        copied.append(path)
    return _Host(seen=tuple(seen), copied=tuple(copied), bound=tuple(bound))


def _first_missing(path: str) -> str:
    """Where nothing is, there is nothing below: several places are known to be empty by one look."""
    above = os.path.dirname(path)
    return path if os.path.lexists(above) else _first_missing(above)


def _parts(path: str, top: Identity) -> Iterator[tuple[str, Identity | None]]:
    """Every file and folder in it that a change could be told by; a link's change is one of its folder."""
    if stat.S_ISREG(top[2]) and top[3] <= MAX_BYTES:
        return
    if not stat.S_ISDIR(top[2]):
        raise _TooMuch
    looks, entries, size, folders = 1, 0, 0, [path]
    while folders:
        with os.scandir(folders.pop()) as found:
            for entry in found:
                entries += 1
                if entry.is_symlink():
                    continue
                which = identity(entry.path)
                if which is None or not _is_for_everybody(which):
                    raise _TooMuch
                looks, size = looks + 1, size + which[3]
                if looks > MAX_LOOKS or entries > MAX_ENTRIES or size > MAX_BYTES:
                    raise _TooMuch
                folders += [entry.path] if stat.S_ISDIR(which[2]) else []
                yield entry.path, which


def _is_for_everybody(which: Identity) -> bool:
    """Root's engine may read every file, and a program of its sandbox, without a capability, only what it is let."""
    mode = which[2]
    return (stat.S_ISREG(mode) and mode & 0o004 != 0) or (stat.S_ISDIR(mode) and mode & 0o005 == 0o005)


# ── making one ───────────────────────────────────────────────────────────────


def _write(folder: str, template: Template, etc: Etc, host: _Host) -> bool:
    """False where something of the host changed a moment ago: then it is tried again at the next start."""
    root = os.path.dirname(folder)
    with suppress(FileExistsError):
        os.mkdir(root, 0o700)  # not its parents: a home is made by whoever opens it
    making = os.path.join(root, f"{_MAKING}{os.urandom(8).hex()}")
    os.mkdir(making, 0o755)
    try:
        now_ns = os.stat(making).st_mtime_ns
        settled = now_ns - SETTLED_NS
        if any(which is not None and max(which[4:]) > settled for _, which in host.seen):
            return False
        _remove_unused(root, now_ns)
        _fill(making, template, etc, host)
        if not is_unchanged(host.seen):
            return False
        with suppress(OSError):  # somebody else has made the same
            os.rename(making, folder)
        return os.path.isdir(folder)
    finally:
        if os.path.lexists(making):
            remove_tree(making)


def _fill(making: str, template: Template, etc: Etc, host: _Host) -> None:
    for path, mode in etc.folders:
        os.makedirs(inside := making + path[len(ETC) :], exist_ok=True)
        os.chmod(inside, mode)
    for path, target in etc.links:
        os.symlink(target, _placed(making, path))
    for path, mode, index in etc.files:
        _write_file(_placed(making, path), template.data[index], mode)
    for path in host.copied:
        _copy(path, _placed(making, path))
    for path, is_folder in host.bound:
        place = _placed(making, path)
        if is_folder:
            os.makedirs(place, exist_ok=True)
        else:
            _write_file(place, b"", 0o644)


def _placed(making: str, path: str) -> str:
    place = making + path[len(ETC) :]
    os.makedirs(os.path.dirname(place), exist_ok=True)
    return place


def _write_file(place: str, content: bytes, mode: int) -> None:
    with open(place, "xb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)


def _copy(source: str, place: str) -> None:
    if not os.path.isdir(source):
        with open(source, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            _write_file(place, file.read(), mode & 0o755)
        return
    os.mkdir(place)
    os.chmod(place, os.stat(source).st_mode & 0o755)  # whatever the umask is
    with os.scandir(source) as found:
        for entry in found:
            target = os.path.join(place, entry.name)
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), target)
            else:
                _copy(entry.path, target)


def _can_be_shown(folder: str) -> bool:
    """Our start program is run from there, and links are followed; and it is ours alone to change."""
    found = os.stat(folder)
    is_ours = found.st_uid == os.getuid() and not found.st_mode & 0o022
    return is_ours and not os.statvfs(folder).f_flag & (os.ST_NOEXEC | _NO_SYMLINKS)


def _remove_unused(root: str, now_ns: int) -> None:
    with os.scandir(root) as found:
        for entry in found:
            with suppress(OSError):
                if entry.stat(follow_symlinks=False).st_mtime_ns < now_ns - UNUSED_NS:
                    going = os.path.join(root, f"{_MAKING}{os.urandom(8).hex()}")
                    with in_use.alone(entry.path) as is_unused:
                        if is_unused:
                            os.rename(entry.path, going)  # at once: nobody starts with half of it
                            remove_tree(going)
