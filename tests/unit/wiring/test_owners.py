"""Who has a call in its hands is told apart from everybody else on the machine, also across containers."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from palyra.model.record import Owner
from palyra.wiring import owners
from palyra.wiring.owners import ProcessOwners

ASK = "from palyra.wiring.owners import ProcessOwners; me = ProcessOwners().me(); print(me.boot_id, me.pid)"


def test_who_lives_here_is_alive_and_nobody_else_with_its_number_is() -> None:
    here = ProcessOwners()
    me = here.me()
    assert (me.pid, here.is_alive(me)) == (os.getpid(), True)
    assert here.is_gone(Owner(me.boot_id, me.pid, me.start_ticks + 1))
    assert here.is_gone(Owner("another boot", me.pid, me.start_ticks))


def test_a_daemon_in_a_container_of_the_same_machine_is_not_looked_up_among_our_numbers() -> None:
    """Its boot id is this machine's, its pid is another process's here: its living calls would be closed as dead."""
    words = ["unshare", "-Urpf", sys.executable, "-c", ASK]
    try:
        said = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if said.returncode:
        pytest.skip("no namespaces for this user")
    boot_id, pid = said.stdout.split()
    assert pid == "1"
    assert boot_id != ProcessOwners().me().boot_id


def test_the_machines_first_namespace_needs_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_namespace", lambda: owners._FIRST_NAMESPACE)
    first = ProcessOwners().me().boot_id
    monkeypatch.setattr(owners, "_namespace", lambda: 4026532000)
    assert ProcessOwners().me().boot_id == f"{first}/4026532000"


def test_where_namespaces_cannot_be_told_apart_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "_NAMESPACE", "/nonexistent/ns")
    assert "/" not in ProcessOwners().me().boot_id
