"""Where the vault's master key comes from: a file of its own, the system's keyring, or a passphrase.

Rules: a key file is written once, whole, readable by its owner alone, and one that others could have read is refused; a
passphrase goes through scrypt with a salt of the vault's own and is kept nowhere; nothing comes from the environment,
which other processes of the user can read.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from palyra.errors import StateError
from palyra.state.keyfile import check_private, sync_folder
from palyra.vault.box import KEY_BYTES

SERVICE = "palyra-vault"
MAX_FILE_BYTES = 4096
SCRYPT = {"n": 1 << 16, "r": 8, "p": 1, "maxmem": 128 << 20, "dklen": KEY_BYTES}

Ask = Callable[[], str]
"""Asks a person for the passphrase."""


def read_or_create_key_file(path: Path, *, create: bool) -> bytes:
    if create:
        with suppress(FileExistsError):
            _write_once(path, os.urandom(KEY_BYTES).hex().encode() + b"\n")
    text = read_private(path, what="The vault's key")
    try:
        key = bytes.fromhex(text.decode("ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise StateError(f"The vault's key {path} is damaged.", "Restore it from a backup.")
    return key


def from_keyring(account: str, *, create: bool) -> bytes:
    try:
        keyring: Any = import_module("keyring")
    except ImportError:
        raise StateError(
            "The vault's key is in the system's keyring, and the Python package keyring is not installed.",
            "In a checkout of Palyra: pip install '.[keyring]'.",
        ) from None
    try:
        found = keyring.get_password(SERVICE, account)
        if found is None and create:
            keyring.set_password(SERVICE, account, os.urandom(KEY_BYTES).hex())
            found = keyring.get_password(SERVICE, account)
    except Exception as error:  # noqa: BLE001  # every backend has errors of its own
        raise StateError(f"The system's keyring does not answer: {type(error).__name__}.", "Unlock it.") from None
    key = bytes.fromhex(found) if isinstance(found, str) and _is_hex(found) else b""
    if len(key) != KEY_BYTES:
        raise StateError("The vault's key is not in the system's keyring.", "Restore it, or create a new vault.")
    return key


def from_passphrase(passphrase: str, salt: bytes) -> bytes:
    if len(passphrase) < 8:
        raise StateError("The passphrase is shorter than 8 characters.", "Choose a longer one.")
    return hashlib.scrypt(passphrase.encode("utf-8"), salt=salt, **SCRYPT)


def passphrase_of(file: str, ask: Ask | None) -> str:
    if file:
        text = read_private(Path(file), what="The passphrase file").split(b"\n", 1)[0]
        return text.decode("utf-8", "surrogateescape").rstrip("\r")
    if ask is None:
        raise StateError(
            "The vault is locked: its key is made from a passphrase, and nobody can be asked here.",
            "Name a file with it: passphrase_file in [vault].",
        )
    return ask()


def read_private(path: Path, *, what: str, most: int = MAX_FILE_BYTES) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise StateError(f"{what} {path} cannot be read: {error.strerror}.", "Restore it from a backup.") from error
    with os.fdopen(fd, "rb") as file:
        check_private(path, os.fstat(file.fileno()), is_kind=stat.S_ISREG)
        return file.read(most)


def _write_once(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}")
    write_durably(temporary, data)
    try:
        os.link(temporary, path)  # unlike a rename, a link cannot overwrite
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def write_durably(path: Path, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _is_hex(text: str) -> bool:
    return len(text) == 2 * KEY_BYTES and all(letter in "0123456789abcdef" for letter in text)
