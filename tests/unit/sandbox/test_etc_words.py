"""One bind for all of /etc: only where it says the same as the words it stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palyra.model.face import Trust
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import Hole, ProcessPlan
from palyra.sandbox.bwrap import BubblewrapBackend
from palyra.sandbox.etc_words import etc_of, is_shortened, shorten
from palyra.sandbox.mounts import planned_mounts, workspace_of
from palyra.sandbox.view import HIDDEN_TEXT
from tests.unit.sandbox.jobs import make_host, make_job

FOLDER = "/home/alice/.local/state/palyra/sandbox-etc/" + "0" * 64


def plan(**changes: Any) -> ProcessPlan:
    return BubblewrapBackend().plan(make_job(**changes), make_host(starter=True, localtime="/usr/share/zoneinfo/UTC"))


def test_every_word_about_etc_is_understood() -> None:
    made = plan()
    etc = etc_of(made.launcher)
    assert etc is not None
    assert etc.folders == (("/etc", 0o755), ("/etc/.palyra-empty.d", 0o555))
    assert etc.links == (
        ("/etc/os-release", "/usr/lib/os-release"),
        ("/etc/localtime", "/usr/share/zoneinfo/UTC"),
    )
    assert [(path, mode) for path, mode, _ in etc.files] == [
        ("/etc/.palyra-empty", 0o444),
        ("/etc/passwd", 0o644),
        ("/etc/group", 0o644),
        ("/etc/nsswitch.conf", 0o644),
        ("/etc/hosts", 0o644),
        ("/etc/resolv.conf", 0o644),
        ("/etc/.palyra-start", 0o555),
    ]
    assert [made.data[index][:6] for *_, index in etc.files[:2]] == [HIDDEN_TEXT[:6], b"agent:"]
    assert etc.shown == (
        "/etc/alternatives",
        "/etc/ld.so.cache",
        "/etc/ssl/certs",
        "/etc/ssl/openssl.cnf",
        "/etc/pki/tls/certs",
        "/etc/pki/ca-trust/extracted",
        "/etc/services",
        "/etc/protocols",
        "/etc/mime.types",
    )
    rest = (*made.launcher[: etc.first], *made.launcher[etc.after : -1])
    assert not [word for word in rest if isinstance(word, str) and word.startswith("/etc")]


def test_shortened_words_differ_in_etc_alone_and_name_the_data_that_is_left() -> None:
    made = plan()
    etc = etc_of(made.launcher)
    assert etc is not None
    words, data = shorten(made.launcher, made.data, etc, folder=FOLDER, bound=["/etc/ssl/certs"])
    own = (*("--ro-bind", FOLDER, "/etc"), *("--ro-bind-try", "/etc/ssl/certs", "/etc/ssl/certs"))
    assert words[: etc.first + 6] == (*made.launcher[: etc.first], *own)
    assert [replace(w, index=7) if isinstance(w, Hole) and w.index >= 0 else w for w in words[etc.first + 6 :]] == list(
        made.launcher[etc.after :]
    )
    assert data == (made.data[7],)
    assert words[words.index("--seccomp") + 1] == Hole(0)
    assert workspace_of(words) == workspace_of(made.launcher)
    outside = [pair for pair in planned_mounts(made.launcher) if not pair[0].startswith("/etc")]
    assert planned_mounts(words) == (
        *(planned_mounts(made.launcher)[0], ("/etc", FOLDER), ("/etc/ssl/certs", "/etc/ssl/certs")),
        *outside[1:],
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"read_roots": ("/etc/hostname",)},
        {"trust": Trust(hosts=(), bundle=b"a certificate", system_path="/etc/ssl/certs/ca-certificates.crt")},
    ],
    ids=["granted", "certificates"],
)
def test_a_plan_that_mounts_into_etc_later_stays_as_it_is(changes: dict[str, Any]) -> None:
    assert etc_of(plan(**changes).launcher) is None


def test_the_files_of_a_shared_network_are_the_hosts() -> None:
    etc = etc_of(plan(net=NetGrant(EgressMode.NONE)).launcher)
    assert etc is not None
    assert etc.shown[-2:] == ("/etc/hosts", "/etc/resolv.conf")
    assert "/etc/hosts" not in [path for path, *_ in etc.files]


@pytest.mark.parametrize(
    "words",
    [
        ("bwrap", "--dir", "/etc", "--ro-bind-try", "/root/etc", "/etc/x", "--"),
        ("bwrap", "--dir", "/etc", "--file", Hole(0), "/etc/x", "--"),
        ("bwrap", "--dir", "/etc", "--symlink", Hole(0), "/etc/x", "--"),
        ("bwrap", "--ro-bind", "/etc", "/etc", "--"),
        ("bwrap", "--dir", "/usr", "--"),
        ("/etc",),
        (),
    ],
)
def test_words_no_plan_of_ours_has_stay_as_they_are(words: tuple[str | Hole, ...]) -> None:
    assert etc_of(words) is None


@pytest.mark.parametrize(
    ("words", "is_ours"),
    [
        (["bwrap", "--ro-bind", FOLDER, "/etc", "--proc", "/proc"], True),
        (["bwrap", "--ro-bind", "/usr", "/usr", "--ro-bind", FOLDER, "/etc"], True),
        (["bwrap", "--ro-bind", "/etc", "/etc"], False),
        (["bwrap", "--ro-bind", "/sandbox-etc", "/etc"], False),
        (["bwrap", "--bind", FOLDER, "/etc"], False),
        (["--ro-bind", FOLDER], False),
        ([], False),
    ],
)
def test_a_launcher_of_ours_is_told_by_its_etc(words: list[str], *, is_ours: bool) -> None:
    assert is_shortened([word.encode() for word in words]) is is_ours
