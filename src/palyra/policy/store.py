"""Bundles from the package and the operator's policies beside them; the current bundle, swapped whole.

Rules: the operator's policies are the installed version that the pointer names, else the files of the folder. A change
of either is seen at the next decision (the folder: within a second) and swapped in whole. Text that fails any check
never replaces the policies in use: the last good ones stay in force, in a new process too, found by their digest, and
the bundle says so (`stale`). Files that cannot be read refuse everything, as any fault does with `strict`. Where one is
in use already, new text is first parsed in a child process: Cedar's parser can end a process, and then only the child
is gone. At the first load there is nothing to protect: a crash there means that nothing runs.

Not here: any check of the text itself (bundle, scan), reading folders (load), keeping versions (wiring/versions).
"""

from __future__ import annotations

import json
import logging
import os
import subprocess  # noqa: TID251 - starts nothing but this interpreter, on code of ours, to lose it instead of the daemon
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Protocol

from palyra.canon import digest
from palyra.errors import StateError
from palyra.policy.bundle import EXAMPLES_FILE, SCHEMA_FILE, PolicyBundle, load_builtin, with_local
from palyra.policy.load import Signature, is_exception_file, read_folder, signature_of
from palyra.policy.scan import PolicyError, find_policies
from palyra.values import dataclass

log = logging.getLogger("palyra.policy")

LOOK_AGAIN_SECONDS = 1.0
"""How often a folder that is in use is looked at for changes."""

POSTURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "locked": ("shared/walls.cedar", "locked/guards.cedar"),
        "standard": ("shared/walls.cedar", "standard/guards.cedar", "working/asks.cedar", "working/permits.cedar"),
        "developer": (
            "shared/walls.cedar",
            "developer/guards.cedar",
            "developer/permits.cedar",
            "working/asks.cedar",
            "working/permits.cedar",
        ),
    }
)
"""Which files make up each posture."""

_CHILD_SECONDS = 20
_CHILD = """\
import json, sys
given = json.load(sys.stdin)
sys.path.insert(0, given["package"])
from palyra.policy.bundle import PolicyError, load_builtin, with_local
try:
    with_local(load_builtin(given["name"], given["files"]), given["local"])
except PolicyError as error:
    json.dump([error.detail, error.hint], sys.stdout)
"""


class Versions(Protocol):
    """Installed versions of the operator's policies; wiring/versions fits."""

    def pointer(self) -> str | None:
        """The version in use; None when it is the folder. Asked before every decision."""

    def files(self, version: str) -> Mapping[str, str]:
        """What was installed, exactly; PolicyError when it is no longer that."""

    def last_good(self, place: str) -> Mapping[str, str] | None:
        """The operator's policies that were in force last, of the folder `place`, found by their digest."""

    def settle(
        self,
        bundle: PolicyBundle,
        *,
        pointer: str | None,
        place: str,
        own: Mapping[str, str],
        fault: str,
        is_current: Callable[[], bool],
    ) -> None:
        """Every bundle that decides anything is kept, so that its decisions can be made again; and which of the
        operator's policies it is made of. `fault`: the digest of later ones that cannot be used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The bundle in use and what it was made of."""

    bundle: PolicyBundle
    pointer: str | None
    signature: Signature
    own: Mapping[str, str]
    """The operator's policies, without exceptions."""
    exceptions: Mapping[str, str]
    fault: str = ""
    """The digest of the files that cannot be used, where these are the last good ones."""


class PolicyStore:
    """The bundle in use: a posture's, with the operator's policies beside it; swapped whole when these change."""

    def __init__(
        self,
        posture: str,
        folder: Path | None = None,
        *,
        versions: Versions | None = None,
        careful: bool = False,
        strict: bool = False,
        exceptions: Path | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._posture = posture
        self._folder = folder
        self._versions = versions
        self._careful = careful
        """Something else decides meanwhile: the text is tried in a child at the first load too, and a folder that is
        not there is an error. It was named to be compared with, and a slip of the keys would look like agreement."""
        self._strict = strict
        self._exceptions = folder if exceptions is None else exceptions
        """The folder whose exceptions count: of policies to compare with, it is the home's."""
        self._monotonic = monotonic
        self._held: _Held | None = None
        self._tried: tuple[str | None, Signature] | None = None
        """What was read last, usable or not: not tried again at every call."""
        self._refusal: PolicyError | None = None
        """Why nothing may run: the policies cannot be read, or `strict` is set and they cannot be used."""
        self._looked_at = 0.0
        self._lock = Lock()

    def current(self) -> PolicyBundle:
        """Return the bundle to decide by. Raise PolicyError where the policies cannot be read."""
        held = self._held
        if held is None:
            with self._lock:
                return self._held.bundle if self._held is not None else self._start().bundle
        return self._followed(held, is_changed=self._is_changed(held))

    def at(self, version: str | None) -> PolicyBundle:
        """The same for a caller that has just read which version is in use; None when it is the folder."""
        held = self._held
        if held is None or self._versions is None or version != held.pointer:
            return self.current()
        return self._followed(held, is_changed=self._folder_changed(held.pointer))

    def look_again(self) -> PolicyBundle:
        """Return the bundle to decide by, the folder looked at now."""
        self._looked_at = self._monotonic() - LOOK_AGAIN_SECONDS
        return self.current()

    def _followed(self, held: _Held, *, is_changed: bool) -> PolicyBundle:
        if is_changed:
            with self._lock:
                self._follow(self._held or held)
        if (refusal := self._refusal) is not None:
            raise PolicyError(refusal.detail, refusal.hint)
        return (self._held or held).bundle

    def local(self) -> Mapping[str, str]:
        """The operator's policies as they would be loaded now, exceptions included."""
        own, exceptions = self._read(None if self._versions is None else self._versions.pointer())
        return {**own, **exceptions}

    def in_force(self) -> Mapping[str, str]:
        """The operator's policies and exceptions that the bundle in use is made of."""
        self.current()
        assert self._held is not None, "current() loads it"
        return {**self._held.own, **self._held.exceptions}

    def exceptions(self) -> Mapping[str, str]:
        """The operator's exceptions, by the names of their files."""
        return read_folder(self._exceptions, is_exception_file)

    def _read(self, pointer: str | None) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Exceptions are the folder's, whichever version is in use: rolling back takes none away and brings none."""
        if pointer is None or self._versions is None:
            files = read_folder(self._folder)
            own = without_exceptions(files)
            here = {name: text for name, text in files.items() if name not in own}
            return own, here if self._exceptions == self._folder else self.exceptions()
        return without_exceptions(self._versions.files(pointer)), self.exceptions()

    def _signature(self, pointer: str | None) -> Signature:
        exceptions = signature_of(self._exceptions, is_exception_file)
        if pointer is not None:
            return exceptions
        whole = signature_of(self._folder)
        return whole if self._exceptions == self._folder else whole + exceptions

    def _is_changed(self, held: _Held) -> bool:
        pointer = held.pointer
        if self._versions is not None:
            try:
                pointer = self._versions.pointer()
            except StateError:
                return False  # nothing runs without a journal anyway; the walk says so
            if self._tried is None or pointer != self._tried[0]:
                return True
        return self._folder_changed(pointer)

    def _folder_changed(self, pointer: str | None) -> bool:
        if self._folder is None:
            return False
        now = self._monotonic()
        if now - self._looked_at < LOOK_AGAIN_SECONDS:
            return False
        self._looked_at = now
        return self._tried != (pointer, self._signature(pointer))

    def _start(self) -> _Held:
        try:
            held = self._load(checked=not self._careful)  # else a crash of the parser means that nothing runs
        except PolicyError as error:
            if error.hint is None and self._folder is not None:
                error.advise(f"Fix the file in {self._folder}; palyra policy check tests it without using it.")
            raise
        self._looked_at = self._monotonic()
        self._warn_of_draft(held)
        return self._swap(held)

    def _follow(self, held: _Held) -> None:
        """Use what the operator changed where it is good. Where it cannot be read, nothing runs until it can."""
        pointer = None if self._versions is None else self._versions.pointer()
        signature = self._signature(pointer)
        try:
            if pointer is None and self._folder is not None and held.signature and not self._folder.is_dir():
                raise PolicyError("The folder is gone.", "Put it back, or restart without it.", file=str(self._folder))
            self._swap(self._load(checked=pointer is not None))
        except PolicyError as error:
            self._tried, self._refusal = (pointer, signature), error
            log.error("the policies were changed and cannot be used, so nothing runs: %s", error.detail)

    def _load(self, *, checked: bool) -> _Held:
        """`checked`: the text was tried in a child before, when its version was installed."""
        pointer = None if self._versions is None else self._versions.pointer()
        signature = self._signature(pointer)  # before it is read: what changes meanwhile is seen as a change
        if self._careful and not (self._folder and self._folder.is_dir()):
            raise PolicyError("There is no such folder.", "Create it, or name another one.", file=str(self._folder))
        own, exceptions = self._read(pointer)
        try:
            bundle = self._compile(own, exceptions, checked=checked)
        except PolicyError as error:
            if self._strict:
                raise
            return self._fall_back(error, pointer, signature, own, exceptions)
        return _Held(bundle=bundle, pointer=pointer, signature=signature, own=own, exceptions=exceptions)

    def _compile(self, own: Mapping[str, str], exceptions: Mapping[str, str], *, checked: bool) -> PolicyBundle:
        local = {**own, **exceptions}
        if local and not checked:
            try_in_child(self._posture, local)
        return load_posture(self._posture, local, typed=False)

    def _fall_back(
        self,
        error: PolicyError,
        pointer: str | None,
        signature: Signature,
        own: Mapping[str, str],
        exceptions: Mapping[str, str],
    ) -> _Held:
        """Load the last of the operator's policies that could be used, with the exceptions of now that can.

        Exceptions only permit: one that is left out takes nothing away. What another process found good last is newer
        than what this one remembers.
        """
        kept = None if self._versions is None else self._versions.last_good(str(self._folder))
        remembered = None if self._held is None else self._held.own
        usable = {name: text for name, text in exceptions.items() if self._stands_alone(name, text)}
        for files in (own if usable != exceptions else None, kept, remembered):
            if files is None:
                continue
            try:
                bundle = self._compile(files, usable, checked=files is not own)
            except PolicyError:
                continue
            log.error("the policies cannot be used as they are; the last good ones stay in force: %s", error.detail)
            left_out = {name: text for name, text in exceptions.items() if name not in usable}
            fault = digest({"files": {**own, **left_out}})
            bundle = replace(bundle, stale=error.detail)
            return _Held(bundle=bundle, pointer=pointer, signature=signature, own=files, exceptions=usable, fault=fault)
        raise error

    def _stands_alone(self, name: str, text: str) -> bool:
        try:
            self._compile({}, {name: text}, checked=False)
        except PolicyError:
            return False
        return True

    def _swap(self, held: _Held) -> _Held:
        read = (held.pointer, held.signature)
        if self._versions is not None:

            def is_current() -> bool:
                return self._signature(held.pointer) == held.signature

            place = str(self._folder)
            self._versions.settle(
                held.bundle,
                pointer=held.pointer,
                place=place,
                own=held.own,
                fault=held.fault,
                is_current=is_current,
            )
        self._held, self._tried, self._refusal = held, read, None
        return held

    def _warn_of_draft(self, held: _Held) -> None:
        """With a version in use the folder is a draft: policies in it that are not in force must not be so quietly."""
        if held.pointer is None or self._versions is None:
            return
        try:
            draft = without_exceptions(read_folder(self._folder))
            forgotten = any(find_policies(file, text) for file, text in draft.items() if file.endswith(".cedar"))
            if forgotten and draft != self._versions.files(held.pointer):
                log.warning("%s is not in force: version %s is. palyra policy use puts it in force.",
                            self._folder, held.pointer[:12])  # fmt: skip
        except PolicyError as error:
            log.warning("%s is not in force, and could not be: %s", self._folder, error.detail)


def without_exceptions(files: Mapping[str, str]) -> dict[str, str]:
    """Return the operator's policies; exceptions belong to one home, and to no version."""
    return {name: text for name, text in files.items() if not is_exception_file(name)}


def load_posture(posture: str, local: Mapping[str, str] | None = None, *, typed: bool = True) -> PolicyBundle:
    """A built-in bundle; with local policies beside it, these are checked whole, types and examples included.

    `typed` is False at a start: what comes with the package cannot change in between, the command line starts often,
    and our tests validate every posture strictly and run its examples. Should one not fit the Cedar that is installed,
    its errors are refusals all the same.
    """
    for name, text in (local or {}).items():
        if is_exception_file(name):
            from palyra.policy.exceptions import check_exception  # only where there are any

            check_exception(name, text)
    bundle = load_builtin(posture, read_posture(posture), typed=typed)
    return with_local(bundle, local) if local else bundle


@cache
def read_posture(posture: str) -> Mapping[str, str]:
    """The files of a built-in bundle, examples and the common schema included."""
    if posture not in POSTURES:
        raise PolicyError(f"There is no posture {posture[:40]!r}.", f"Choose one of {', '.join(POSTURES)}.")
    texts = {name: _packaged(name) for name in POSTURES[posture]}
    texts[SCHEMA_FILE] = _packaged(f"shared/{SCHEMA_FILE}")
    texts[EXAMPLES_FILE] = _packaged(f"{posture}/{EXAMPLES_FILE}")
    return MappingProxyType(texts)


def _packaged(name: str) -> str:
    # The loader itself, not importlib.resources or pkgutil, which ask it too after milliseconds of imports.
    read = getattr(__spec__.loader, "get_data", None)
    if read is None:
        raise PolicyError("The file is missing from the installed package.", file=name)
    return str(read(os.path.join(os.path.dirname(__file__), "bundles", *name.split("/"))), "utf-8")


def try_in_child(posture: str, local: Mapping[str, str]) -> None:
    """Load the bundle in a process of its own. Raises PolicyError when it is refused there, or ends the process."""
    given = {
        "package": str(Path(__file__).parents[2]),
        "name": posture,
        "files": dict(read_posture(posture)),
        "local": dict(local),
    }
    try:
        child = subprocess.run(  # noqa: S603 - a fixed argv; the untrusted text goes in through stdin
            [sys.executable, "-I", "-c", _CHILD],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            env={},
            timeout=_CHILD_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PolicyError(f"The policies could not be tried out: {type(error).__name__}.") from None
    if child.returncode != 0:
        raise PolicyError(f"Reading the policies crashed the process that tried it ({child.returncode}).")
    if child.stdout:
        detail, hint = json.loads(child.stdout)
        raise PolicyError(detail, hint)
