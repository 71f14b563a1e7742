"""One home that has lived, for every test of the console: making it costs more than looking at it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.consoles import World, world


@pytest.fixture(scope="session")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("console")) as made:
        yield made
