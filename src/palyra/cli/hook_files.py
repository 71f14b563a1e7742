"""Touches: the settings file of an agent's host, and what Palyra keeps about it in its own home.

Rules: before the first change the file is kept as it was, in HOME/hooks; a file is replaced whole, by a rename, and
only if it is still what was read; uninstalling puts back exactly what was there, unless somebody else changed the file
since: then our entries alone are taken out, and the copy stays.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from palyra.cli.hook_config import HOSTS, state_of, with_hook, without_hook
from palyra.errors import ConfigError
from palyra.protocol.agent_events import Agent

ENTRY = Path(__file__).with_name("hook_entry.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFile:
    agent: Agent
    path: Path
    home: Path

    @property
    def command(self) -> str:
        words = [sys.executable, "-I", "-S", str(ENTRY), self.agent.value, str(self.home)]
        return shlex.join(words)

    @property
    def copy(self) -> Path:
        return self.home / "hooks" / f"{self.agent}.before"

    @property
    def note(self) -> Path:
        return self.home / "hooks" / f"{self.agent}.json"

    def read(self) -> bytes | None:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self.path}: {error.strerror}.", "Nothing was changed.") from error

    def state(self) -> str:
        return state_of(self.agent, self.read(), self.command, where=str(self.path))

    def install(self) -> bool:
        """False when it was there already: then nothing was touched."""
        before = self.read()
        after = with_hook(self.agent, before, self.command, where=str(self.path))
        if after == before:
            return False
        if self._known() is None or not self._is_ours(before):
            self._keep(before)
        self._write(before, after)
        self._note_after(after)
        return True

    def uninstall(self) -> str:
        """`restored`, `removed` (there was no such file), `taken out` (somebody changed it since) or `absent`."""
        now, known = self.read(), self._known()
        if now is None:
            self._forget()
            return "absent"
        if known is not None and self._is_ours(now):
            done = self._restore(now, existed=bool(known["existed"]))
        else:
            after = without_hook(now, where=str(self.path))
            done = "absent" if after == now else "taken out"
            if after != now:
                self._write(now, after)
                return done
        self._forget()
        return done

    def _restore(self, now: bytes, *, existed: bool) -> str:
        if existed:
            self._write(now, self.copy.read_bytes())
            return "restored"
        self.path.unlink()
        known = self._known() or {}
        if known.get("made_folder"):
            with suppress(OSError):
                self.path.parent.rmdir()
        return "removed"

    # ── what we keep ──

    def _known(self) -> dict[str, object] | None:
        try:
            value = json.loads(self.note.read_bytes())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) and value.get("file") == str(self.path) else None

    def _is_ours(self, data: bytes | None) -> bool:
        """Exactly what we wrote last."""
        known = self._known()
        return known is not None and data is not None and known.get("after_sha256") == _digest(data)

    def _keep(self, before: bytes | None) -> None:
        folder = self.copy.parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if before is not None:
            _replace(self.copy, before, 0o600)
        value = {
            "file": str(self.path),
            "existed": before is not None,
            "before_sha256": _digest(before) if before is not None else None,
            "made_folder": not self.path.parent.exists(),
        }
        _replace(self.note, json.dumps(value, indent=2).encode() + b"\n", 0o600)

    def _note_after(self, after: bytes) -> None:
        value = {**(self._known() or {}), "after_sha256": _digest(after)}
        _replace(self.note, json.dumps(value, indent=2).encode() + b"\n", 0o600)

    def _forget(self) -> None:
        for path in (self.note, self.copy):
            path.unlink(missing_ok=True)

    def _write(self, before: bytes | None, after: bytes) -> None:
        if self.read() != before:
            raise ConfigError(f"{self.path} was changed by somebody else just now.", "Nothing was changed. Try again.")
        real = Path(os.path.realpath(self.path))  # a link into somebody's dotfiles stays one
        real.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(real.stat().st_mode) if before is not None else 0o600
        _replace(real, after, mode)


def find(agent: Agent, home: Path) -> HookFile:
    host = HOSTS[agent]
    named = os.environ.get(host.environ) if host.environ else None
    folder = Path(named) if named else Path(os.path.expanduser("~")) / host.folder
    return HookFile(agent=agent, path=folder / host.file, home=home)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replace(path: Path, data: bytes, mode: int) -> None:
    fd, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
