"""Which store `[cluster.blobs]` means, opened; and its credentials as a value that may be sealed to a node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from palyra.canon import Json
from palyra.cluster.blobs import BlobFolder, Blobs
from palyra.cluster.s3 import S3Blobs, Store
from palyra.cluster.sigv4 import Credentials
from palyra.config.cluster import BlobsConfig
from palyra.errors import TrustError

Ask = Callable[[], Credentials]


def open_blobs(config: BlobsConfig, credentials: Ask, now_unix_ms: Callable[[], int]) -> Blobs:
    """`credentials` is asked with every request, so that changed ones are taken up; never for a folder."""
    if not config.is_remote:
        return BlobFolder(Path(config.folder))
    store = Store(
        endpoint=config.endpoint,
        bucket=config.bucket,
        region=config.region,
        prefix=config.prefix,
        ca_file=config.ca_file,
    )
    return S3Blobs(store, credentials, now_unix_ms)


def to_box(credentials: Credentials) -> dict[str, Json]:
    return dict(asdict(credentials))


def from_box(told: Mapping[str, Any]) -> Credentials:
    if set(told) != {"access_key", "secret_key", "session_token"} or {type(one) for one in told.values()} != {str}:
        raise TrustError("The box holds no credentials.")
    return Credentials(**told)
