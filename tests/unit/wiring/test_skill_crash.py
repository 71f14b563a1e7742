"""A crash at any point of an installation leaves a consistent state; installations beside each other end in one row.

Each step is a system call or a journal entry of the child that installs: it is killed right before the n-th of them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from palyra.state.db import read_home
from palyra.state.transaction import Transaction
from palyra.state.verifying import verify_journal
from tests.making_skills import House, open_house, package
from tests.promises import promise

pytestmark = promise("skills.interrupted-installation")

KILLED = 9
MOST_STEPS = 200


def start(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(99)
    return pid


def end_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def dying_at(step: int) -> None:
    """From now on this process ends before its n-th step that leaves a trace."""
    left = [step]

    def counted(function):
        def call(*arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                os._exit(KILLED)
            return function(*arguments, **options)

        return call

    for name in ("mkdir", "open", "fsync", "fchmod", "rename", "rmdir", "unlink"):
        setattr(os, name, counted(getattr(os, name)))
    Transaction.append = counted(Transaction.append)  # type: ignore[method-assign]
    Transaction.execute = counted(Transaction.execute)  # type: ignore[method-assign]


def is_sound(house: House) -> None:
    """Every row that is not removed has its files, whole; the journal tells of every row as it stands."""
    for shown in house.desk.list_skills():
        assert house.files.read(shown["sha256"])
        assert house.desk.show_skill(shown["skill_id"])["audit"] is not None
    assert not verify_journal(read_home(house.writer.home.root), is_alive=lambda _: True).findings


def each_step(home: Path, act: Callable[[House], None]) -> int:
    """Kill the act at each of its steps, one after the other, until it ends by itself; returns how many there were."""
    for step in count():
        assert step < MOST_STEPS

        def work(step: int = step) -> None:
            house = open_house(home)
            dying_at(step)
            act(house)

        ended = end_of(start(work))
        house = open_house(home)
        is_sound(house)
        house.writer.close()
        if ended == 0:
            return step
        assert ended == KILLED, ended
    raise AssertionError


def test_a_crash_at_any_step_of_an_installation_leaves_nothing_or_a_skill_in_quarantine(home):
    house = open_house(home).trust_acme()
    house.writer.close()
    assert each_step(home, lambda house: house.install(package()) and None) > 25
    house = open_house(home)
    assert house.status() == {"0.1.0": "quarantined"}
    assert os.listdir(house.files.root) == [house.desk.list_skills()[0]["sha256"]]
    assert house.acts()[1:] == [
        ("skill.changed", None, "ingested", "user:alice"),
        ("skill.changed", "ingested", "quarantined", "palyra"),
    ]


def test_a_crash_at_any_step_of_an_update_leaves_the_active_version_alone(home):
    house = open_house(home).trust_acme()
    house.install(package())
    house.enable()
    house.writer.close()
    each_step(home, lambda house: house.install(package(version="0.2.0")) and None)
    house = open_house(home)
    assert house.status() == {"0.1.0": "active", "0.2.0": "quarantined"}
    assert house.skills.find("acme.echo", version="", tool_id="").version == "0.1.0"


def test_a_crash_at_any_step_of_a_removal_leaves_it_whole_or_gone(home):
    house = open_house(home).trust_acme()
    house.install(package())
    house.writer.close()

    def remove(house: House) -> None:
        if house.status() == {"0.1.0": "removed"}:
            house.install(package("acme.other"))  # what was left behind is swept by the next one
        else:
            house.do("remove", "acme.echo", by="user:alice")

    each_step(home, remove)
    house = open_house(home)
    assert house.status() == {"0.1.0": "removed"}


@pytest.mark.parametrize("versions", [("0.1.0",) * 4, ("0.1.0", "0.2.0", "0.3.0", "0.4.0")], ids=["same", "others"])
def test_installations_beside_each_other_end_in_one_consistent_row_each(home, versions):
    open_house(home).trust_acme().writer.close()
    packages = [package(version=version) for version in versions]

    def install(data: bytes) -> None:
        house = open_house(home)
        asyncio.run(house.desk.install(data, by="user:alice", allow_downgrade=True))

    children = [start(lambda data=data: install(data)) for data in packages]
    assert [end_of(pid) for pid in children] == [0] * 4
    house = open_house(home)
    is_sound(house)
    assert house.status() == dict.fromkeys(versions, "quarantined")
    assert sorted(os.listdir(house.files.root)) == sorted(
        row[0] for row in house.writer.rows("SELECT sha256 FROM skills")
    )
    moves = [act[1:3] for act in house.acts() if act[0] == "skill.changed"]
    assert moves == [(None, "ingested"), ("ingested", "quarantined")] * len(set(versions))
