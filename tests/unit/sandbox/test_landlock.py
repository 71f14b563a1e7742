"""Rules and bytes of every version of Landlock, on a machine that may have none of them."""

from __future__ import annotations

import struct

import pytest

from palyra.model.call import Tier
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant
from palyra.model.plan import LandlockRules
from palyra.sandbox import landlock as ll
from tests.unit.sandbox.jobs import make_host, make_job

OPEN = NetGrant(EgressMode.NONE)
WS = "/home/alice/project"


def rules(*, abi: int = 7, net: NetGrant = NO_NETWORK, **changes: object) -> LandlockRules:
    return ll.rules_for(make_job(tier=Tier.B, net=net, **changes), make_host(landlock_abi=abi))


def test_the_workspace_is_the_only_writable_tree() -> None:
    made = rules()
    assert made.writable == WS
    granted = [rights for _, rights in ll.accesses(made)]
    writes = ll.WRITE_FILE | ll.TRUNCATE | ll.REMOVE_DIR | ll.REMOVE_FILE | ll.REFER | ll.MAKE_REG | ll.MAKE_DIR
    assert {rights & writes for rights in granted} == {0, ll.WRITE_FILE}
    assert {path for path, rights in ll.accesses(made) if rights & ll.WRITE_FILE} == set(ll.DEVICES)


def test_no_home_and_no_process_is_readable() -> None:
    made = rules()
    assert not [
        p for p in (*made.runnable, *made.readable) if p in ("/", "/home", "/root", "/tmp", "/proc", "/etc", "/var")
    ]
    assert not [p for p in made.readable if p.startswith("/proc/") and p[6:7].isdigit()]
    assert "/etc/shadow" not in made.readable
    assert "/proc/self" not in made.readable


def test_files_that_name_the_hosts_neighbours_are_shown_only_with_its_network() -> None:
    assert not set(ll.ETC_NETWORK) & set(rules().readable)
    assert set(ll.ETC_NETWORK) <= set(rules(net=OPEN).readable)


def test_device_nodes_are_never_made_and_devices_never_controlled() -> None:
    every = ll.WORK | ll.RUN | ll.READ | ll.DEVICE
    assert every & (ll.MAKE_CHAR | ll.MAKE_BLOCK | ll.IOCTL_DEV) == 0


def test_granted_folders_and_a_toolchains_own_are_run_but_not_written() -> None:
    made = rules(read_roots=("/opt/tools/", "/opt/tools"), program="/home/alice/.cargo/bin/cargo")
    assert made.runnable[-2:] == ("/opt/tools", "/home/alice/.cargo/bin")
    stray = rules(program="/home/alice/tool")
    assert stray.runnable[-1] == "/home/alice/tool"
    own = rules(program=f"{WS}/bin/tool")
    assert own.runnable == ll.SYSTEM


def test_a_link_to_a_toolchain_brings_both_folders() -> None:
    made = rules(program="/opt/bin/tool", program_file="/opt/lib/tool/tool")
    assert made.runnable[-2:] == ("/opt/bin", "/opt/lib/tool")


@pytest.mark.parametrize(
    ("abi", "bits", "tcp", "scopes"),
    [
        (1, 13, 0, 0),
        (2, 14, 0, 0),
        (3, 15, 0, 0),
        (4, 15, 3, 0),
        (5, 16, 3, 0),
        (6, 16, 3, 3),
        (7, 16, 3, 3),
        (9, 16, 3, 3),
    ],
)
def test_each_version_takes_away_what_it_knows(abi: int, bits: int, tcp: int, scopes: int) -> None:
    assert ll.handled(abi) == ((1 << bits) - 1, tcp, scopes)


@pytest.mark.parametrize(("abi", "size"), [(3, 8), (4, 16), (5, 16), (6, 24), (7, 24), (12, 24)])
def test_the_kernel_is_told_no_field_it_does_not_know(abi: int, size: int) -> None:
    attr = ll.ruleset_attr(rules(abi=abi))
    assert len(attr) == size
    told = struct.unpack(f"={size // 8}Q", attr)
    assert told == ll.handled(abi)[: size // 8]


def test_a_shared_network_leaves_tcp_alone_but_not_signals() -> None:
    assert struct.unpack("=QQQ", ll.ruleset_attr(rules(net=OPEN))) == (ll.handled(7)[0], 0, 3)


def test_no_right_is_asked_for_that_the_version_does_not_handle() -> None:
    for abi in range(3, 8):
        for _, rights in ll.accesses(rules(abi=abi)):
            assert rights & ~ll.handled(abi)[0] == 0


def test_a_rule_is_packed() -> None:
    assert ll.path_attr(ll.RUN, 7) == struct.pack("<Q", 13) + struct.pack("<i", 7)
    assert len(ll.path_attr(0, 0)) == 12


def test_palyras_state_in_a_granted_folder_is_noticed() -> None:
    made = rules(read_roots=("/srv/shared",))
    for path in (f"{WS}/.state", "/srv/shared/palyra", "/srv", "/home/alice", "/usr/local/palyra"):
        assert ll.shows(made, path)
    assert not ll.shows(made, "/home/alice/.local/state/palyra")
    assert not ll.shows(made, "/home/alice/project2")


def test_a_granted_folder_in_the_workspace_is_no_rule_of_its_own() -> None:
    """The program could put a link to anything in its place, and the rule would follow it."""
    roots = ("/opt/tools", f"{WS}/vendor", WS, "/usr/lib")
    made = rules(read_roots=roots, granted_roots=roots)
    assert (made.runnable, made.granted) == ((*ll.SYSTEM, "/opt/tools", "/usr/lib"), ("/opt/tools", "/usr/lib"))
