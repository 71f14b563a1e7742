"""Acts of a home's owner name who the system says that is."""

from __future__ import annotations

import os
import pwd

import pytest

from palyra.state import person


def test_it_is_who_the_process_is_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert person.owner_principal() == f"user:{pwd.getpwuid(os.geteuid()).pw_name}"


@pytest.mark.parametrize(
    ("name", "principal"),
    [("alice", "user:alice"), ("a b/c", "user:a_b_c"), ("._", "user:unknown"), ("x" * 200, "user:" + "x" * 128)],
)
def test_a_name_is_spelled_as_principals_are(monkeypatch: pytest.MonkeyPatch, name: str, principal: str) -> None:
    entry = pwd.struct_passwd((name, "x", 1, 1, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: entry)
    assert person.owner_principal() == principal


def test_a_user_without_a_name_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert person.owner_principal() == f"user:uid-{os.geteuid()}"
