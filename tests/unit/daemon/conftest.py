"""One daemon for a whole file of tests: opening a home costs more than asking it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons import Daemon, daemon


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    root: Path = tmp_path_factory.mktemp("daemon") / "home"
    with daemon(root) as made:
        yield made
