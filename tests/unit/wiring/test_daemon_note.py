"""A daemon reads its configuration once: whoever asks is told whether it still decides by the one that stands there."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket

import pytest

from palyra.daemon.chores import watch_config
from palyra.wiring.checkup import ADVICE, daemon_checks
from palyra.wiring.daemon_note import config_stamp, decides_by_older, find_socket, write_note


@pytest.fixture
def home(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "palyra.toml").write_text('posture = "standard"\n')
    return tmp_path


@pytest.fixture
def listening(home):
    path = home / "run" / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        yield path


def serve(home, listening, named=None):
    write_note(home, socket_path=listening, url="http://127.0.0.1:1", config=config_stamp(home, named))


def change(path):
    path.write_text('posture = "locked"\n')
    os.utime(path, ns=(1, 1))


def test_a_daemon_that_read_what_stands_there_is_asked(home, listening):
    serve(home, listening)
    assert (find_socket(home), decides_by_older(home), daemon_checks(home)) == (str(listening), False, [])


def test_a_daemon_that_read_what_was_changed_since_is_named_and_not_asked(home, listening):
    serve(home, listening)
    change(home / "palyra.toml")
    (check,) = daemon_checks(home)
    assert (find_socket(home), decides_by_older(home), check.status) == (None, True, ADVICE)


def test_so_is_one_whose_configuration_was_named_by_hand(home, listening, tmp_path):
    named = tmp_path / "other.toml"
    named.write_text('posture = "standard"\n')
    serve(home, listening, str(named))
    assert (find_socket(home), decides_by_older(home)) == (None, False)
    change(named)
    assert decides_by_older(home)


def test_a_daemon_that_is_gone_decides_by_nothing(home, listening):
    serve(home, listening)
    change(home / "palyra.toml")
    listening.unlink()
    assert not decides_by_older(home)


def test_the_daemon_says_so_once_for_each_change(home, caplog):
    read = config_stamp(home)
    chore = watch_config(read, lambda: config_stamp(home))

    async def look(times: int) -> int:
        with caplog.at_level(logging.WARNING, "palyra.daemon"):
            caplog.clear()
            for _ in range(times):
                await chore.work()
        return len(caplog.records)

    assert asyncio.run(look(3)) == 0
    change(home / "palyra.toml")
    assert asyncio.run(look(3)) == 1
    (home / "palyra.toml").unlink()
    assert asyncio.run(look(3)) == 1


def test_the_daemon_of_a_home_does_not_serve_its_copies(home, listening, tmp_path_factory):
    """Who tries something on a copy would do it to the original."""
    serve(home, listening)
    copied = tmp_path_factory.mktemp("copy") / "home"
    shutil.copytree(home, copied, ignore=shutil.ignore_patterns("s"))
    (home / "palyra.toml").unlink()
    (copied / "palyra.toml").unlink()
    serve(home, listening)
    shutil.copy2(home / "run" / "palyrad.json", copied / "run" / "palyrad.json")
    assert (find_socket(home), find_socket(copied), decides_by_older(copied)) == (str(listening), None, False)
