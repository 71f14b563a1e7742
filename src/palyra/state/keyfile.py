"""The installation's private key on disk: written once, whole or not at all, readable only by its owner.

Rules: a key file never replaces another; one that somebody else could have written or read is refused, because then
its signatures prove nothing. A passphrase comes as bytes from whoever read it, never from the environment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from palyra.errors import StateError, TrustError
from palyra.model.reasons import SHORTAGES
from palyra.signing import LOCKED_PEM, SigningKey, parse_locked_pem, parse_pem, write_locked_pem, write_pem

KEY_FILE = "installation.key"
MAX_KEY_BYTES = 4096


def create_key(path: Path, *, passphrase: bytes | None = None) -> SigningKey:
    """A new key at `path`, durable before it is used. FileExistsError when there is one already.

    With a passphrase the file is encrypted (PKCS #8, scrypt and AES-256, as `openssl pkey` reads it).
    """
    key = SigningKey.generate()
    text = write_pem(key) if passphrase is None else write_locked_pem(key, passphrase)
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename, a link cannot overwrite
    finally:
        temporary.unlink()
    sync_folder(path.parent)
    return key


def read_key(path: Path, *, passphrase: bytes | None = None) -> SigningKey:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise StateError(
            f"The installation's key {path} cannot be read: {error.strerror}.",
            SHORTAGES.get(error.errno or 0, "Restore it from a backup; without it nothing can be signed."),
        ) from error
    try:
        check_private(path, os.fstat(fd), is_kind=stat.S_ISREG)
        text = os.read(fd, MAX_KEY_BYTES)
    finally:
        os.close(fd)
    if text.startswith(LOCKED_PEM):
        if passphrase is None:
            raise StateError(
                f"The installation's key {path} is locked by a passphrase.",
                "Name the file that holds it: journal.passphrase_file in the configuration.",
            )
        try:
            return parse_locked_pem(text.decode("ascii"), passphrase)
        except (UnicodeDecodeError, TrustError) as error:
            raise StateError(f"The passphrase does not open the installation's key {path}.") from error
    try:
        return parse_pem(text.decode("ascii"))
    except (UnicodeDecodeError, TrustError) as error:
        raise StateError(f"The installation's key {path} is damaged.", "Restore it from a backup.") from error


def is_locked(path: Path) -> bool:
    """Whether a passphrase opens it; one that cannot be read is told of by who needs it."""
    try:
        with path.open("rb") as file:
            return file.read(len(LOCKED_PEM)) == LOCKED_PEM
    except OSError:
        return False


def check_private(path: Path, found: os.stat_result, *, is_kind: Callable[[int], bool]) -> None:
    """Ours, of the kind expected, and closed to everyone else."""
    if not is_kind(found.st_mode):
        raise StateError(f"{path} was replaced by something else.", f"Move {path} away.")
    if found.st_uid != os.geteuid():
        raise StateError(
            f"{path} belongs to user {found.st_uid}, not to {os.geteuid()}.",
            "Use another folder with --home, or start Palyra as that user.",
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise StateError(f"{path} is accessible to other users.", f"Run: chmod go-rwx '{path}'")


def sync_folder(path: Path) -> None:
    """Make names that were just added to a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
