"""`--learn`: the watcher's lines leave no trace in stderr, and what is advised is small and nobody's secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.engine import learn
from palyra.engine.learn import MARK, LearningCollector, Wanted, suggest
from palyra.engine.trip import CallRequest, Trip
from palyra.inside import learner
from palyra.model.outcome import Connection, Status, StreamName
from palyra.testing import FakeLook, fake_ports, fake_run


def collector(look: FakeLook | None = None) -> LearningCollector:
    ports = fake_ports(look=look or FakeLook())
    request = CallRequest(tool="palyra.process.run", input={}, run=fake_run(), learn=True)
    return LearningCollector(Trip(request=request, call_id="c", received_unix_ms=0, started_us=0), ports)


def line(record: object) -> bytes:
    return MARK + json.dumps(record).encode() + b"\n"


def learned(sink: LearningCollector) -> Any:
    return sink.extra()["learned"]


def test_the_mark_is_the_one_the_watcher_writes() -> None:
    assert learner.MARK == MARK
    assert learner.MOST <= learn.MAX_PATHS


@given(
    st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([b"/a", b"/b", b"/c"])), max_size=8),
    st.lists(st.integers(1, 40), max_size=40),
)
def test_however_it_is_cut_the_programs_stderr_is_its_own(parts: list[bytes], cuts: list[int]) -> None:
    whole, own = b"", b""
    for part in parts:
        if part in (b"/a", b"/b", b"/c"):
            whole += line({"path": part.decode(), "want": "read"})
        else:
            clean = part.replace(b"\x1e", b".")
            whole, own = whole + clean, own + clean
    sink = collector()
    for cut in [*cuts, len(whole) + 1]:
        sink.feed(StreamName.STDERR, whole[:cut])
        whole = whole[cut:]
    sink.finish(Status.COMPLETED)
    assert sink.bytes_of(StreamName.STDERR) == own
    asked = {part.decode() for part in parts if part in (b"/a", b"/b", b"/c")}
    assert set(learned(sink)["read"]) == asked


@pytest.mark.parametrize(
    "forged",
    [
        b"not json",
        b"[]",
        b"[" * 5000,
        b'{"path": 3, "want": "read"}',
        b'{"path": "/x", "want": "own"}',
        b'{"path": "relative", "want": "read"}',
        b'{"path": "/x\\u001b[2J", "want": "read"}',
        b'{"path": "/x", "want": "read", "grant": true}',
    ],
)
def test_a_line_of_another_shape_teaches_nothing(forged: bytes) -> None:
    sink = collector()
    sink.feed(StreamName.STDERR, MARK + forged + b"\n")
    sink.finish(Status.COMPLETED)
    assert (learned(sink)["read"], learned(sink)["complete"]) == ([], True)


def test_a_mark_without_its_end_is_shown_as_the_program_wrote_it() -> None:
    sink = collector()
    sink.feed(StreamName.STDERR, b"x" + MARK + b"tail")
    sink.finish(Status.COMPLETED)
    assert sink.bytes_of(StreamName.STDERR) == b"x" + MARK + b"tail"


def test_a_mark_and_then_a_flood_is_not_held_back_and_copied_for_ever() -> None:
    sink = collector()
    flood = MARK + b"a" * 100_000
    for at in range(0, len(flood), 4096):
        sink.feed(StreamName.STDERR, flood[at : at + 4096])
    assert len(sink.bytes_of(StreamName.STDERR)) > len(flood) - 2 * 4096
    sink.finish(Status.COMPLETED)
    assert sink.bytes_of(StreamName.STDERR) == flood


def test_only_what_the_host_has_is_missing() -> None:
    sink = collector(FakeLook(missing=frozenset({"/nowhere"})))
    for path in ("/nowhere", "/opt/tool/lib.so"):
        sink.feed(StreamName.STDERR, line({"path": path, "want": "read"}))
    sink.finish(Status.COMPLETED)
    assert learned(sink) == {
        "read": ["/opt/tool/lib.so"],
        "write": [],
        "secret": [],
        "hosts": [],
        "grant": {"read_roots": ["/opt/tool/lib.so"], "allowed_egress_hosts": []},
        "complete": True,
        "problem": None,
    }


def test_a_link_in_the_workspace_gets_no_key_advised() -> None:
    sink = collector(FakeLook(links={"/work/x": "/home/me/.ssh/id_ed25519"}))
    sink.feed(StreamName.STDERR, line({"path": "/work/x", "want": "read"}))
    sink.finish(Status.COMPLETED)
    assert learned(sink)["secret"] == ["/home/me/.ssh/id_ed25519"]
    assert learned(sink)["grant"]["read_roots"] == []


def advised(*wanted: tuple[str, str], connections: tuple[Connection, ...] = ()) -> dict[str, Any]:
    paths = [Wanted(path=path, want=want) for path, want in wanted]
    return suggest(paths, {path: path for path, _ in wanted}, connections)


@pytest.mark.parametrize(
    "path",
    [
        "/root/.ssh/config",
        "/home/me/.aws",
        "/home/me/.config/gcloud/x.json",
        "/etc/shadow",
        "/srv/app/.env.production",
        "/home/me/.netrc",
        "/etc/ssl/private/key.pem",
        "/home/me/.docker/config.json",
    ],
)
def test_what_looks_like_a_secret_is_told_and_never_advised(path: str) -> None:
    told = advised((path, "read"))
    assert (told["secret"], told["read"], told["grant"]["read_roots"]) == ([path], [], [])


def test_many_files_of_a_folder_are_its_folder_and_a_top_folder_never_is() -> None:
    assert advised(*[(f"/opt/tool/{n}", "read") for n in range(4)])["grant"]["read_roots"] == ["/opt/tool"]
    assert len(advised(*[(f"/opt/{n}", "read") for n in range(9)])["grant"]["read_roots"]) == 9
    nested = [("/opt/tool", "read"), ("/opt/tool/deep/file", "read")]
    assert advised(*nested)["grant"]["read_roots"] == ["/opt/tool"]


@pytest.mark.parametrize("folder", ["/root", "/home/some", "/home/some/.config", "/Users/x/Library", "/var/lib"])
def test_four_harmless_files_do_not_get_a_home_advised(folder: str) -> None:
    """A program asks for what it likes: the folder around would open the keys that lie there too."""
    files = [f"{folder}/.rc{n}" for n in range(6)]
    assert advised(*[(path, "read") for path in files])["grant"]["read_roots"] == files


@pytest.mark.parametrize(
    "path",
    ["/home/x/.config/gh/hosts.yml", "/home/x/.cargo/credentials.toml",
     "/home/x/.local/share/palyra/state/installation.key", "/srv/tls/server.key",
     "/home/x/.password-store/a.gpg", "/home/x/.local/share/keyrings/login.keyring"],
)  # fmt: skip
def test_credentials_of_common_programs_are_never_advised(path: str) -> None:
    assert (advised((path, "read"))["secret"], advised((path, "read"))["grant"]["read_roots"]) == ([path], [])


def test_writes_cannot_be_granted_and_are_told_apart() -> None:
    told = advised(("/etc/x", "write"), ("/etc/x", "read"), ("/proc/1/mem", "read"), ("/", "read"))
    assert (told["write"], told["read"], told["grant"]["read_roots"]) == (["/etc/x"], [], [])


def test_refused_hosts_keep_a_port_that_is_not_the_webs() -> None:
    def denied(host: str, port: int, *grants: str, verdict: str = "denied") -> Connection:
        return Connection(host=host, port=port, verdict=verdict, grants=grants)

    connections = (
        denied("pypi.example.org", 53, "pypi.example.org"),
        denied("pypi.example.org", 443, "pypi.example.org"),
        denied("db.example.org", 53, "db.example.org"),
        denied("db.example.org", 5432, "db.example.org:5432"),
        denied("*", 0),
        denied("granted.example.org", 443, verdict="allowed"),
        denied("2001:db8::1", 80, "2001:db8::1"),
        denied("mail.example.org", 25, "mail.example.org:25 raw"),
    )
    assert advised(connections=connections)["hosts"] == [
        *("2001:db8::1", "db.example.org:5432", "mail.example.org:25 raw", "pypi.example.org"),
    ]


def test_for_a_granted_name_that_leads_to_a_private_address_the_address_is_advised() -> None:
    """The name again, which was granted, led round in a circle."""
    leads = Connection(host="index.test", port=443, verdict="denied", why="leads to 10.0.0.5", grants=("10.0.0.5",))
    assert advised(connections=(leads, leads))["hosts"] == ["10.0.0.5"]
