"""Touches: the configuration file and the environment. Finds the home, reads TOML, names file and line in errors.

Rules: read from `--config`, else HOME/palyra.toml, else /etc/palyra/palyra.toml; **never from the workspace or the
current folder**, because the agent writes there. A file that others may write is refused.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from palyra.config.schema import Config, ConfigKeyError, parse_config
from palyra.errors import ConfigError

SYSTEM_FILE = Path("/etc/palyra/palyra.toml")
MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Home:
    """The folder that holds everything an installation keeps. Who can read it is the operator."""

    root: Path

    @property
    def config_file(self) -> Path:
        return self.root / "palyra.toml"

    @property
    def policies(self) -> Path:
        return self.root / "policies"

    @property
    def state(self) -> Path:
        return self.root / "state"


def find_home(explicit: str | None = None) -> Home:
    """`--home`, else $PALYRA_HOME, else below the XDG data folder."""
    chosen = explicit or os.environ.get("PALYRA_HOME")
    if not chosen:
        data = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
        chosen = str(Path(data) / "palyra")
    return Home(Path(os.path.abspath(os.path.expanduser(chosen))))


def user_home() -> str:
    return os.path.realpath(os.path.expanduser("~"))


def load_config(home: Home, explicit: str | None = None) -> tuple[Config, Path | None]:
    """The configuration and the file it came from; the built-in default when there is no file."""
    if explicit is not None:
        return _read(Path(explicit)), Path(explicit)
    for candidate in (home.config_file, SYSTEM_FILE):
        if candidate.is_file():
            return _read(candidate), candidate
    return Config(), None


def _read(path: Path) -> Config:
    try:
        info = path.stat()
        if info.st_size > MAX_FILE_BYTES:
            raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes.")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}.", "Check the path given with --config.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8.") from error
    _check_writers(path, info)
    try:
        return _resolved(parse_config(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}.") from error
    except ConfigKeyError as error:
        raise ConfigError(f"{path}:{_line_of(text, error.path)}: {error.detail}", error.hint) from error


def _resolved(config: Config) -> Config:
    """Granted folders as they really are: what guard compares and the sandbox binds is the link's end."""
    runner = config.tool_call.process_runner
    roots = tuple(os.path.realpath(root) for root in runner.read_roots)
    return replace(config, tool_call=replace(config.tool_call, process_runner=replace(runner, read_roots=roots)))


def _check_writers(path: Path, info: os.stat_result) -> None:
    """A configuration someone else can write is someone else's configuration."""
    if info.st_mode & stat.S_IWOTH:
        raise ConfigError(f"{path} may be written by everyone on this machine.", f"chmod o-w {path}")
    if info.st_uid not in (0, os.geteuid()):
        raise ConfigError(f"{path} belongs to another user (uid {info.st_uid}).", f"chown it to yourself: {path}")


def _line_of(text: str, path: tuple[str, ...]) -> int:
    """Where a key stands: the line of `key =` (or of a table's header) below the right header."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.fullmatch(r"\s*\[+\s*([^\[\]]+?)\s*\]+\s*(#.*)?", line)
        if header:
            table = tuple(part.strip().strip("\"'") for part in header[1].split("."))
            if table == path or table[: len(path)] == path:
                return number
            continue
        key = re.match(r"\s*([^=#]+?)\s*=", line)
        if key:
            full = (*table, *(part.strip().strip("\"'") for part in key[1].split(".")))
            if full == path:
                return number
    return 1
