"""How open files are shared out: whoever connects takes none that calls need."""

from __future__ import annotations

import pytest

from palyra.daemon.open_files import FILES_A_CALL, connections_within, wanted_files

ASKED = {"connections": 4096, "calls": 256}


def test_where_there_are_enough_there_are_as_many_connections_as_configured() -> None:
    enough = wanted_files(**ASKED)
    assert connections_within(enough, **ASKED) == 4096
    assert (enough - 256) // 2 == 4096 + FILES_A_CALL * 256, "half is for the hosts that calls reach"


@pytest.mark.parametrize(("limit", "allowed"), [(16_384, 4096), (4096, 1024), (1024, 256), (32, 16)])
def test_where_there_are_fewer_connections_get_a_quarter(limit: int, allowed: int) -> None:
    assert connections_within(limit, **ASKED) == allowed


def test_a_quarter_is_never_more_than_what_is_configured() -> None:
    assert connections_within(4096, connections=100, calls=4096) == 100
