"""Touches: the configuration file and the environment. Finds the home, reads TOML, names file and line in errors.

Rules: read from `--config`, else HOME/palyra.toml, else /etc/palyra/palyra.toml; **never from the workspace or the
current folder**, because the agent writes there. A file that others may write is refused, and so is anything that
stands where the file should and is none: only a name that nothing bears means "no configuration".
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import replace
from pathlib import Path

from palyra.config.schema import Config, ConfigKeyError, parse_config
from palyra.errors import ConfigError
from palyra.model.ownership import folders_above, is_absent, writable_by
from palyra.values import dataclass

SYSTEM_FILE = Path("/etc/palyra/palyra.toml")
MAX_FILE_BYTES = 1 << 20
_NAME_A_HOME = "Name another folder with --home or PALYRA_HOME."


class HomeError(ConfigError):
    """The home that was asked for cannot be one: wrong usage, whatever the command."""


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
    """`--home`, else $PALYRA_HOME, else below the XDG data folder. A relative one is taken from the command line alone:
    in the environment it would mean whatever lies in the current folder, where agents write."""
    chosen = explicit or os.environ.get("PALYRA_HOME")
    if not chosen:
        data = os.environ.get("XDG_DATA_HOME", "")
        data = data if os.path.isabs(data) else os.path.expanduser("~/.local/share")  # as the XDG specification has it
        chosen = os.path.join(data, "palyra")
        if not os.path.isabs(data):
            raise HomeError("This user has no home folder, so there is no place for Palyra's own.", _NAME_A_HOME)
    elif not explicit and not os.path.isabs(os.path.expanduser(chosen)):
        raise HomeError(
            "PALYRA_HOME is not an absolute path.",
            "Write it starting with /: a relative path would mean a different home in every folder.",
        )
    try:
        root = Path(os.path.abspath(os.path.expanduser(chosen)))
        str(root).encode("utf-8")
        if not is_absent(root, os.lstat, os.stat) and not root.is_dir():
            raise HomeError(f"The home {chosen[:200]} is not a folder.", _NAME_A_HOME)
    except (UnicodeEncodeError, ValueError) as error:
        raise HomeError(f"The home {chosen!r} is not UTF-8 text, or has a NUL in it.", _NAME_A_HOME) from error
    except OSError as error:
        where = "the current folder" if error.filename is None else f"the home {chosen[:200]}"
        raise HomeError(f"Palyra cannot use {where}: {error.strerror}.", _NAME_A_HOME) from error
    return Home(root)


def user_home() -> str:
    """The operator's own home folder; empty for a user who has none."""
    home = os.path.expanduser("~")
    return os.path.realpath(home) if os.path.isabs(home) else ""


def git_files() -> tuple[str, ...]:
    """The settings that the operator's own git obeys everywhere, beside those in the home: named by the environment."""
    chosen = [os.environ.get(key, "") for key in ("GIT_CONFIG_SYSTEM", "GIT_CONFIG_GLOBAL")]
    data = os.environ.get("XDG_CONFIG_HOME", "")
    files = ("/etc/gitconfig", *chosen, f"{data}/git/config")
    return tuple(file for file in files if os.path.isabs(file) and file != "/git/config")


def load_config(home: Home, explicit: str | None = None) -> tuple[Config, Path | None]:
    """The configuration and the file it came from; the built-in default when there is no file."""
    if explicit is not None:
        return _read(Path(explicit)), Path(explicit)
    for candidate in (home.config_file, SYSTEM_FILE):
        if not _absent(candidate):
            return _read(candidate), candidate
    return Config(), None


def read_store_environment() -> tuple[str, str, str]:
    """The blob store's access key, secret key and session token, under the three names such stores' tools know."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    access_key, secret_key, session_token = (os.environ.get(name, "") for name in names)
    return access_key, secret_key, session_token


def read_passphrase(config: Config) -> bytes | None:
    """What opens the installation's key; from a file only, because an environment is inherited and shown in /proc."""
    if not config.journal.passphrase_file:
        return None
    path = Path(config.journal.passphrase_file)
    try:
        data = _trusted_bytes(path)
        open_to_others = stat.S_IMODE(path.stat().st_mode) & 0o077
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}.", "journal.passphrase_file names it.") from error
    if open_to_others:
        raise ConfigError(f"{path} is accessible to other users.", f"Run: chmod go-rwx '{path}'")
    passphrase = data.removesuffix(b"\n").removesuffix(b"\r")
    if not passphrase:
        raise ConfigError(f"{path} is empty.", "It holds the passphrase on its only line.")
    return passphrase


def _absent(path: Path) -> bool:
    try:
        return is_absent(path, os.lstat, os.stat)
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}.",
            "It cannot be determined whether it exists: name another folder with --home, or the file with --config.",
        ) from error


def _read(path: Path) -> Config:
    try:
        text = _trusted_bytes(path).decode("utf-8")
    except OSError as error:
        raise ConfigError(
            f"{path}: {error.strerror}.", "Check the path; if it is a link, check where it leads."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path}: not UTF-8, or a NUL in the name.", "Save it as UTF-8.") from error
    try:
        return _resolved(parse_config(tomllib.loads(text)))
    except RecursionError as error:
        raise ConfigError(
            f"{path}: values within values, too deep to be read.", "Write it as palyra init does."
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}.", "It must be TOML; palyra init writes one with comments.") from error
    except ConfigKeyError as error:
        raise ConfigError(f"{path}:{_line_of(text, error.path)}: {error.detail}", error.hint) from error


def _trusted_bytes(path: Path) -> bytes:
    str(path).encode("utf-8")  # what cannot be written down as text cannot be shown or recorded either
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not hang us
    try:
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise ConfigError(f"{path} is not a file.", "What is read there must be a regular file, or a link to one.")
        _check_writers(path, info)
        with os.fdopen(fd, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(fd)
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_FILE_BYTES} bytes.", "Name the file that was meant.")
    return data


def _resolved(config: Config) -> Config:
    """Granted folders as they really are: what guard compares and the sandbox binds is the link's end."""
    runner = config.tool_call.process_runner
    roots = tuple(os.path.realpath(root) for root in runner.read_roots)
    return replace(config, tool_call=replace(config.tool_call, process_runner=replace(runner, read_roots=roots)))


def _check_writers(path: Path, info: os.stat_result) -> None:
    """A configuration someone else can write, or whose folder they can write, is someone else's configuration."""
    resolved = Path(os.path.realpath(path))
    looked = [(resolved, info, False)]
    looked += [(Path(p), os.stat(p), True) for p in folders_above(resolved, Path(os.path.realpath(path.parent)))]
    for place, found, above in looked:
        who = writable_by(found, own_uid=os.geteuid(), above=above)
        if who is not None:
            raise ConfigError(
                f"{path}: {who} can write {place}.", f"Make it yours, and not writable by others: chmod go-w '{place}'"
            )


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
