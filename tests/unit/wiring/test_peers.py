"""Whom a client believes at the other end of a socket: by who the kernel says it is, and who may put a socket there."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from palyra.client.wire import Line, Place, Unreachable
from palyra.wiring import peers
from palyra.wiring.daemon_note import find_socket, write_note
from palyra.wiring.peers import is_believed, uid_of
from tests.promises import promise

STRANGER, ANOTHER = 54321, 54322


@pytest.fixture
def listening(tmp_path):
    """A socket's path that somebody listens at."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "s"))
        listener.listen()
        yield str(folder / "s")


@pytest.fixture
def line(listening):
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(listening)
        yield made


@pytest.fixture
def stranger(monkeypatch):
    """The other end is somebody who is neither us nor root, in a folder of neither."""
    monkeypatch.setattr(peers, "uid_of", lambda line: STRANGER)
    owned_by(monkeypatch, ANOTHER)


def owned_by(monkeypatch, uid: int) -> None:
    """Every folder is this user's."""
    monkeypatch.setattr(peers, "_owner_and_mode", lambda folder: (uid, os.stat(folder).st_mode))


@promise("daemon.impostor-socket")
def test_the_kernel_says_who_it_is(line):
    assert uid_of(line) == os.geteuid()


@promise("daemon.impostor-socket")
def test_ourselves_and_the_homes_owner_are_believed(line, listening, monkeypatch):
    assert is_believed(line, listening)
    monkeypatch.setattr(peers, "uid_of", lambda line: STRANGER)
    assert is_believed(line, listening, owner_uid=STRANGER)
    monkeypatch.setattr(peers, "uid_of", lambda line: 0)
    assert is_believed(line, listening, owner_uid=STRANGER)


@promise("daemon.impostor-socket")
def test_a_stranger_in_our_folder_is_not_believed(line, listening, stranger):
    assert not is_believed(line, listening)
    assert not is_believed(line, listening, owner_uid=os.geteuid())


def test_a_user_in_a_folder_of_its_own_is_believed(line, listening, stranger, monkeypatch):
    owned_by(monkeypatch, STRANGER)
    assert is_believed(line, listening)
    assert not is_believed(line, listening, owner_uid=ANOTHER), "a home's daemon is its owner's, wherever it listens"


@promise("daemon.impostor-socket")
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_socket_where_others_may_put_one_is_not_believed(line, listening, stranger, monkeypatch, mode):
    os.chmod(os.path.dirname(listening), mode)
    owned_by(monkeypatch, STRANGER)
    assert not is_believed(line, listening)


@promise("daemon.impostor-socket")
def test_a_folder_that_others_may_replace_is_not_believed(tmp_path, line, listening, stranger, monkeypatch):
    tmp_path.chmod(0o777)
    owned_by(monkeypatch, STRANGER)
    assert not is_believed(line, listening)
    tmp_path.chmod(0o777 | stat.S_ISVTX)
    assert is_believed(line, listening)


@promise("daemon.impostor-socket")
def test_nothing_is_said_to_a_stranger(listening, stranger):
    with pytest.raises(Unreachable, match="Another user is listening"):
        Line(Place(path=listening)).ask("GET", "/healthz", headers={"Authorization": "Bearer secret"})


def test_a_note_that_leads_to_a_stranger_leads_nowhere(tmp_path, listening, stranger):
    home = tmp_path / "home"
    (home / "run").mkdir(parents=True)
    write_note(home, socket_path=listening, url="http://127.0.0.1:1", config=None)
    assert find_socket(home) is None
