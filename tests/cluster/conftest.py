"""Many machines on one: a real PostgreSQL, real daemons' processes, real Ray nodes. `make test-cluster` runs these."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.cluster.blobs import BlobFolder, Blobs
from palyra.model.call import Tier
from tests.cluster.machines import Machines
from tests.cluster.ray_settings import RAY_SETTINGS
from tests.cluster.stores_of_blobs import Server, s3_server
from tests.conformance.arena import require
from tests.folders import open_folder

WANTED = bool(os.environ.get("PALYRA_TEST_CLUSTER"))
collect_ignore_glob = [] if WANTED else ["test_*.py"]
if WANTED:  # Ray reads these when it is imported
    os.environ |= RAY_SETTINGS
    os.environ |= {"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where machines keep what they have: a program of theirs must be able to walk in."""
    require(Tier.C)
    with open_folder() as made:
        yield made


@pytest.fixture
def machines(folder: Path) -> Machines:
    """In this process; none is there yet."""
    return Machines(folder)


@pytest.fixture(scope="module")
def ray_machines() -> Iterator[Any]:
    from tests.cluster.ray_machines import ray_cluster  # not before Ray's settings are there

    require(Tier.C)
    with ray_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def store_server() -> Iterator[Server]:
    with s3_server() as running:
        yield running


@pytest.fixture(params=["folder", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, store_server: Server) -> Blobs:
    return BlobFolder(tmp_path / "b") if request.param == "folder" else store_server.blobs(f"b{os.urandom(6).hex()}")
