"""Changes of the host's mounts are told once to each that asks; where there is no telling nothing passes for unchanged.

That the kernel tells of real ones: tests/conformance/test_host_mounts.py.
"""

from __future__ import annotations

import gc
import os

import pytest

from palyra.launch import host_mounts as module
from palyra.launch.host_mounts import HostMounts


def open_tables() -> int:
    return sum(is_table(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))


def is_table(link: str) -> bool:
    try:
        return os.readlink(link).endswith("/mountinfo")
    except OSError:  # the listing's own; or a place whose name is too long to be told
        return False


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_while_nothing_is_mounted_the_number_stays_and_nothing_is_left_open(how: str) -> None:
    before = open_tables()
    mounts = HostMounts()
    first = mounts.changes()
    assert (mounts.changes(), open_tables()) == (first, before + 1)
    if how == "closed":
        mounts.close()
    else:
        del mounts
        gc.collect()
    assert open_tables() == before


def test_after_an_end_nothing_passes_for_unchanged() -> None:
    mounts = HostMounts()
    first = mounts.changes()
    mounts.close()
    assert mounts.changes() != first
    mounts.close()


def test_where_there_is_no_telling_each_answer_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without a descriptor to spare must not use what it cannot check."""
    monkeypatch.setattr(module, "_TABLE", "/nonexistent/mountinfo")
    mounts = HostMounts()
    assert len({mounts.changes() for _ in range(3)}) == 3


def test_a_fork_begins_anew_and_takes_no_news_from_its_parent() -> None:
    mounts = HostMounts()
    first = mounts.changes()
    child = os.fork()
    if child == 0:
        os._exit(int(mounts.changes() == first))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert mounts.changes() == first
    mounts.close()
