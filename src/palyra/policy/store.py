"""Bundles from the package and an operator's policies from a folder; the current bundle, swapped whole.

Rules: the folder is read once per load, by size caps, and a forbid is never lost quietly: a file that is neither a
policy nor `examples.toml` is an error, as is anything but a folder in the folder's place, and whatever somebody else
could write, along the whole way that links lead. A bundle that fails any check never replaces the one in use. Where
one is in use already, new text is first parsed in a child process: Cedar's parser can end a process, and then only
the child is gone. At the first load there is nothing to protect: a crash there means that nothing runs.

Not here: any check of the text itself (bundle, scan), versions and rollback.
"""

from __future__ import annotations

import json
import os
import pkgutil
import stat
import subprocess  # noqa: TID251 - starts nothing but this interpreter, on code of ours, to lose it instead of the daemon
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from threading import Lock
from types import MappingProxyType

from palyra.model.ownership import folders_above, is_absent, writable_by
from palyra.policy.bundle import EXAMPLES_FILE, SCHEMA_FILE, PolicyBundle, load_builtin, with_local
from palyra.policy.scan import MAX_BUNDLE_BYTES, MAX_FILES, PolicyError

POSTURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "locked": ("shared/walls.cedar", "locked/guards.cedar"),
        "standard": ("shared/walls.cedar", "standard/guards.cedar", "working/asks.cedar", "working/permits.cedar"),
        "developer": ("shared/walls.cedar", "developer/guards.cedar", "working/asks.cedar", "working/permits.cedar"),
    }
)
"""Which files make up each posture."""

_STARTER_POLICIES = """\
// Your own policies. They stand beside those of the posture in palyra.toml (palyra policy show lists them all); one
// with the @id of a posture's policy replaces it. Every policy needs an @id; @reason, @hint and @code are shown to
// whoever is refused.
//
// @id("local.no-rm-for-agents")
// @reason("Agents do not delete files here.")
// forbid (principal is Agent, action == Action::"tool::execute", resource == Tool::"palyra.process.run")
// when { context.effective_program == "rm" };
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


class PolicyStore:
    """The bundle in use: a posture's, with the folder's policies beside it."""

    def __init__(self, posture: str, folder: Path | None = None) -> None:
        self._posture = posture
        self._folder = folder
        self._current: PolicyBundle | None = None
        self._lock = Lock()

    def current(self) -> PolicyBundle:
        bundle = self._current
        if bundle is not None:
            return bundle
        with self._lock:
            if self._current is None:
                self._current = load_posture(self._posture, read_folder(self._folder))
            return self._current

    def reload(self) -> PolicyBundle:
        """Read the folder again. Raises PolicyError and keeps the bundle in use when the new one is not good."""
        with self._lock:
            local = read_folder(self._folder)
            if local:
                try_in_child(self._posture, local)
            self._current = load_posture(self._posture, local)
            return self._current


def load_posture(posture: str, local: Mapping[str, str] | None = None) -> PolicyBundle:
    """A built-in bundle; with local policies beside it, these are checked whole, examples included."""
    # The examples of built-in bundles are run by our tests, not at each start: they cannot change in between, and
    # the command line starts often. Parsing and strict validation are never skipped.
    bundle = load_builtin(posture, read_posture(posture))
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
    # pkgutil, not importlib.resources: the same loaders, without five milliseconds of imports at each start.
    data = pkgutil.get_data("palyra.policy", f"bundles/{name}")
    if data is None:
        raise PolicyError("The file is missing from the installed package.", file=name)
    return data.decode("utf-8")


def read_folder(folder: Path | None) -> dict[str, str]:
    """An operator's policies; nothing when the folder's name is not there at all."""
    if folder is None:
        return {}
    try:
        return {} if is_absent(folder, os.lstat, os.stat) else _read_all(folder)
    except OSError as error:
        place = os.fsdecode(error.filename or folder)
        raise PolicyError(f"{error.strerror}.", "If it is a link, check where it leads.", file=place) from error


def _read_all(folder: Path) -> dict[str, str]:
    _check_writers(folder, folder.stat(), top=folder.parent)
    texts: dict[str, str] = {}
    room = MAX_BUNDLE_BYTES
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith("~") or path.name == "README.md":
            continue
        if len(texts) >= MAX_FILES:
            raise PolicyError(f"A bundle has at most {MAX_FILES} files.", file=str(folder))
        data = _read(path, room)
        room -= len(data)
        try:
            texts[path.name] = data.decode("utf-8")
        except UnicodeDecodeError:
            raise PolicyError("The file is not UTF-8 text.", file=str(path)) from None
    return texts


def _read(path: Path, room: int) -> bytes:
    # Not blocking, and judged by what was opened: a FIFO must not hang the start.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise PolicyError("Only files belong here.", "Move it elsewhere.", file=str(path))
        _check_writers(path, found, top=path.parent)
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(room + 1)
    finally:
        os.close(fd)
    if len(data) > room:
        raise PolicyError(f"A bundle has at most {MAX_BUNDLE_BYTES} bytes.", file=str(path))
    return data


def _check_writers(path: Path, found: os.stat_result, *, top: Path) -> None:
    """Whoever can write a policy, or swap its folder, decides everything."""
    resolved = Path(os.path.realpath(path))
    looked = [(resolved, found, False)]
    looked += [(Path(p), os.stat(p), True) for p in folders_above(resolved, Path(os.path.realpath(top)))]
    for place, info, above in looked:
        who = writable_by(info, own_uid=os.geteuid(), above=above)
        if who is not None:
            raise PolicyError(f"{who} can write here.", f"Own it, and close it: chmod go-w '{place}'", file=str(place))


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
        raise PolicyError(f"Reading the policies ended the process that tried it ({child.returncode}).")
    if child.stdout:
        detail, hint = json.loads(child.stdout)
        raise PolicyError(detail, hint)
