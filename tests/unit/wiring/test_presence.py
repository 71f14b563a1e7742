"""Processes that cannot see each other's numbers know by a file of their home who lives."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.model.record import Owner
from palyra.wiring import presence
from palyra.wiring.owners import ProcessOwners
from palyra.wiring.presence import Presence

ANN, BOB = Owner("boot/1", 1, 10), Owner("boot/2", 1, 10)
LIVE = """
import sys
from pathlib import Path
from palyra.wiring.owners import ProcessOwners
here = ProcessOwners(Path(sys.argv[1]))
print(here.me().boot_id, here.me().pid, here.me().start_ticks, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "lock"
    path.touch()
    return path


def test_who_says_so_is_there_until_it_is_gone(lock: Path) -> None:
    ann, bob = Presence(lock, ANN), Presence(lock, BOB)
    assert (bob.is_said(ANN), ann.is_said(BOB), ann.is_said(Owner("boot/1", 1, 11))) == (True, True, False)
    del bob
    gc.collect()
    assert not ann.is_said(BOB)


def test_two_installations_of_one_process_do_not_undo_each_others_word(lock: Path) -> None:
    first, second, asking = Presence(lock, ANN), Presence(lock, ANN), Presence(lock, BOB)
    del second
    gc.collect()
    assert asking.is_said(ANN)
    del first
    gc.collect()
    assert not asking.is_said(ANN)


@pytest.mark.parametrize("what", ["file", "locks"])
def test_where_it_cannot_be_said_nobody_is_seen(lock: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "locks":
        monkeypatch.setattr(presence, "_SAY", None)
    else:
        lock.unlink()
    assert not Presence(lock, ANN).is_said(ANN)


OWN_BOOT_ID = """
echo 01234567-89ab-cdef-0123-456789abcdef > "$1.boot" && mount --bind "$1.boot" /proc/sys/kernel/random/boot_id || exit
exec "$2" -c "$3" "$1"
"""
"""What systemd-nspawn does for each of its containers."""


@pytest.mark.parametrize("boot_id", ["the machine's", "its own"])
def test_the_living_call_of_a_container_with_the_same_home_is_left_alone_and_a_dead_ones_is_not(
    lock: Path, boot_id: str
) -> None:
    """Both have one boot id and pid 1, or another boot id of the same machine: by its number, or by that, it was taken
    for dead, and its call closed as interrupted."""
    words = ["unshare", "-Urpf", "--kill-child", sys.executable, "-c", LIVE, str(lock)]
    if boot_id == "its own":
        words = ["unshare", "-Urpfm", "--kill-child", "sh", "-c", OWN_BOOT_ID, "sh", str(lock), sys.executable, LIVE]
    here = ProcessOwners(lock)
    try:
        living = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        pytest.skip("no unshare")
    with living:
        assert living.stdout is not None
        said = living.stdout.readline().split()
        if not said:
            pytest.skip("no namespaces for this user")
        owner = Owner(said[0], int(said[1]), int(said[2]))
        assert owner.boot_id != here.me().boot_id
        assert here.is_alive(owner)
        assert not ProcessOwners().is_alive(owner), "without the file nothing is known"
        living.communicate("", timeout=30)
    assert here.is_gone(owner)


def test_a_child_that_goes_on_does_not_speak_for_a_parent_that_is_gone(lock: Path) -> None:
    """It held the parent's place for as long as it lived, and nobody in another container closed the parent's calls."""
    program = """
import os, sys
from pathlib import Path
from palyra.wiring.owners import ProcessOwners
here = ProcessOwners(Path(sys.argv[1]))
parent = here.me()
if os.fork():
    os._exit(0)
while os.getppid() == parent.pid:
    pass
print(parent.boot_id, parent.pid, parent.start_ticks, flush=True)
sys.stdin.read()
"""
    words = [sys.executable, "-c", program, str(lock)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        boot_id, pid, ticks = child.stdout.readline().split()
        assert not Presence(lock, ANN).is_said(Owner(boot_id, int(pid), int(ticks)))
        child.communicate("", timeout=30)
