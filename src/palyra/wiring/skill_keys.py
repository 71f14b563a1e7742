"""A publisher's signing key: made once, under the home, readable only by its owner. It is trusted nowhere by that."""

from __future__ import annotations

from pathlib import Path

from palyra.config.load import Home
from palyra.errors import StateError
from palyra.signing import SigningKey
from palyra.skills.manifest import check_publisher
from palyra.state.keyfile import create_key, read_key

FOLDER = "publishers"


def publisher_key(home: Home, publisher: str, *, given: Path | None = None) -> tuple[SigningKey, Path]:
    """The key of `given`, else the home's own for this publisher; it is made where there is none."""
    if given is not None:
        return _read(given), given
    folder = home.root / FOLDER
    home.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"{check_publisher(publisher)}.pem"
    try:
        return create_key(path), path
    except FileExistsError:
        return _read(path), path


def _read(path: Path) -> SigningKey:
    try:
        return read_key(path)
    except StateError as error:
        detail = error.detail.replace("The installation's key", "The signing key")
        raise StateError(detail, error.hint or "Name another with --key.") from error
