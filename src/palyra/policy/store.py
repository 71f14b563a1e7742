"""Bundles from the package and the operator's policies beside them; the current bundle, swapped whole.

Rules: the operator's policies are the installed version that the pointer names, else the files of the folder. A change
of either is seen at the next decision (the folder: within a second) and swapped in whole; a bundle that fails any check
never replaces the one in use. Where one is in use already, new text is first parsed in a child process: Cedar's parser
can end a process, and then only the child is gone. At the first load there is nothing to protect: a crash there means
that nothing runs.

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
from functools import cache
from pathlib import Path
from threading import Lock
from types import MappingProxyType
from typing import Protocol

from palyra.errors import StateError
from palyra.policy.bundle import EXAMPLES_FILE, SCHEMA_FILE, PolicyBundle, load_builtin, with_local
from palyra.policy.load import Signature, read_folder, signature_of
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

_STARTER_POLICIES = """\
// Your own policies. They stand beside those of the posture in palyra.toml (palyra policy show lists them all); one
// with the @id of a posture's policy replaces it. Every policy needs an @id; @reason, @hint and @code are shown to
// the caller who is refused. A forbid that an approval lifts makes the call wait for a person: palyra approvals list.
//
// @id("local.no-rm-for-agents")
// @reason("Agents do not delete files here.")
// forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "rm" };
//
// @id("local.ask-before-moving")
// @reason("Moving files needs a person's approval.")
// forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "mv" }
// unless { context.approved };
//
// @id("local.demo-lists-files")
// permit (principal == Agent::"demo", action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "ls" && context.tier == "C" && context.egress == "strict" };
"""
_STARTER_EXAMPLES = """\
# What your policies promise; checked whenever they are loaded, and by `palyra policy test`.
#
# [[example]]
# name = "an agent may not delete files"
# expect = "deny"                       # allow | ask | deny
# principal = "agent:demo"
# facts = { program = "rm" }
"""

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

    def keep(self, bundle: PolicyBundle) -> None:
        """Every bundle that decides anything is kept, so that its decisions can be made again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The bundle in use and what it was made of."""

    bundle: PolicyBundle
    pointer: str | None
    signature: Signature


class PolicyStore:
    """The bundle in use: a posture's, with the operator's policies beside it; swapped whole when these change."""

    def __init__(
        self,
        posture: str,
        folder: Path | None = None,
        *,
        versions: Versions | None = None,
        careful: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._posture = posture
        self._folder = folder
        self._versions = versions
        self._careful = careful
        """Something else decides meanwhile: the text is tried in a child at the first load too, and a folder that is
        not there is an error. It was named to be compared with, and a slip of the keys would look like agreement."""
        self._monotonic = monotonic
        self._held: _Held | None = None
        self._refused: tuple[str | None, Signature] | None = None
        """What was tried last and found bad: not tried again at every call."""
        self._looked_at = 0.0
        self._lock = Lock()

    def current(self) -> PolicyBundle:
        """The bundle to decide by. The first one, or PolicyError; later the last good one, whatever happens."""
        held = self._held
        if held is None:
            with self._lock:
                return self._held.bundle if self._held is not None else self._start().bundle
        return self._followed(held, is_stale=self._is_stale(held))

    def at(self, version: str | None) -> PolicyBundle:
        """The same for whoever has just read which version is in use; None when it is the folder."""
        held = self._held
        if held is None or self._versions is None or version != held.pointer:
            return self.current()
        return self._followed(held, is_stale=self._folder_is_stale(held))

    def _followed(self, held: _Held, *, is_stale: bool) -> PolicyBundle:
        if is_stale:
            with self._lock:
                self._follow(self._held or held)
        return (self._held or held).bundle

    def local(self) -> Mapping[str, str]:
        """The operator's policies as they would be loaded now."""
        pointer = None if self._versions is None else self._versions.pointer()
        if pointer is None or self._versions is None:
            return read_folder(self._folder)
        return self._versions.files(pointer)

    def _is_stale(self, held: _Held) -> bool:
        if self._versions is not None:
            try:
                pointer = self._versions.pointer()
            except StateError:
                return False  # nothing runs without a journal anyway; the walk says so
            if pointer != held.pointer:
                return self._refused is None or self._refused[0] != pointer
        return self._folder_is_stale(held)

    def _folder_is_stale(self, held: _Held) -> bool:
        if held.pointer is not None or self._folder is None:
            return False
        now = self._monotonic()
        if now - self._looked_at < LOOK_AGAIN_SECONDS:
            return False
        self._looked_at = now
        signature = signature_of(self._folder)
        return signature != held.signature and self._refused != (None, signature)

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
        """What the operator changed comes into use if it is good; else the one in use stays, and the log says why."""
        pointer = None if self._versions is None else self._versions.pointer()
        signature = signature_of(self._folder)
        try:
            if pointer is None and held.signature and not signature:
                raise PolicyError("The folder is gone.", "Restart to continue without it.", file=str(self._folder))
            self._swap(self._load(checked=pointer is not None))
        except PolicyError as error:
            self._refused = (pointer, signature)
            log.error("the policies were changed and cannot be used; the last good ones stay in use: %s", error.detail)

    def _load(self, *, checked: bool) -> _Held:
        """`checked`: the text was tried in a child before, when its version was installed."""
        pointer = None if self._versions is None else self._versions.pointer()
        signature = signature_of(self._folder)  # before it is read: what changes meanwhile is seen as a change
        if self._careful and not (signature or (self._folder and self._folder.is_dir())):
            raise PolicyError("There is no such folder.", "Create it, or name another one.", file=str(self._folder))
        local = self.local()
        if local and not checked:
            try_in_child(self._posture, local)
        return _Held(bundle=load_posture(self._posture, local, typed=False), pointer=pointer, signature=signature)

    def _swap(self, held: _Held) -> _Held:
        if self._versions is not None:
            self._versions.keep(held.bundle)
        self._held, self._refused = held, None
        return held

    def _warn_of_draft(self, held: _Held) -> None:
        """With a version in use the folder is a draft: policies in it that are not in force must not be so quietly."""
        if held.pointer is None or self._versions is None:
            return
        try:
            draft = read_folder(self._folder)
            forgotten = any(find_policies(file, text) for file, text in draft.items() if file.endswith(".cedar"))
            if forgotten and draft != self._versions.files(held.pointer):
                log.warning("%s is not in force: version %s is. palyra policy use puts it in force.",
                            self._folder, held.pointer[:12])  # fmt: skip
        except PolicyError as error:
            log.warning("%s is not in force, and could not be: %s", self._folder, error.detail)


def load_posture(posture: str, local: Mapping[str, str] | None = None, *, typed: bool = True) -> PolicyBundle:
    """A built-in bundle; with local policies beside it, these are checked whole, types and examples included.

    `typed` is False at a start: what comes with the package cannot change in between, the command line starts often,
    and our tests validate every posture strictly and run its examples. Should one not fit the Cedar that is installed,
    its errors are refusals all the same.
    """
    bundle = load_builtin(posture, read_posture(posture), typed=typed)
    return with_local(bundle, local) if local else bundle


def starter_files() -> dict[str, str]:
    """What a new home's policies folder begins with: only comments, so the posture alone decides."""
    return {"local.cedar": _STARTER_POLICIES, EXAMPLES_FILE: _STARTER_EXAMPLES}


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
