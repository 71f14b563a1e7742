from __future__ import annotations

import json
from typing import Any

from palyra.sandbox import seccomp as s
from palyra.sandbox.seccomp_oci import profile

RULES: list[dict[str, Any]] = json.loads(profile())["syscalls"]


def verdict(name: str, *args: int, rules: list[dict[str, Any]] = RULES) -> int:
    """What an engine's filter would answer: the errno of the first rule that fits, 0 when none does."""
    padded = (*args, 0, 0, 0, 0, 0, 0)
    for rule in rules:
        fits = all(padded[a["index"]] & a["value"] == a["valueTwo"] for a in rule.get("args", ()))
        if name in rule["names"] and fits:
            return int(rule["errnoRet"])
    return 0


def test_it_refuses_what_the_assembled_filter_refuses() -> None:
    assert {verdict(name) for name in s.REFUSED} == {s.EPERM}
    assert {verdict(name) for name in s.ABSENT} == {s.ENOSYS}
    assert {verdict(name) for name in ("read", "execve", "openat", "fork")} == {0}


def test_new_namespaces_are_refused_whatever_else_is_asked() -> None:
    for bit in (0x80, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert verdict("clone", bit | 0xF00) == verdict("unshare", 1 << 40 | bit) == s.EPERM
    assert verdict("clone", 0x3D0F00) == verdict("unshare", 0x200) == 0


def test_only_three_families_of_sockets_are_left_and_of_netlink_what_lists_interfaces() -> None:
    assert {family for family in range(64) if verdict("socket", family) == 0} == {1, 2, 10, 16}
    assert verdict("socket", 1 << 32 | 17) == verdict("socketpair", 38) == s.EAFNOSUPPORT
    others = (*range(1, 512), 1 << 31, 0xFFFF_FFFF)
    for call in ("socket", "socketpair"):
        for high in (0, 1 << 32, 0xDEAD_0000_0000_0000):
            found = {verdict(call, 16 | high, 3, protocol | high) for protocol in others}
            assert found == {s.EPROTONOSUPPORT}
            assert verdict(call, 16 | high, 3, high) == 0


def test_in_the_hosts_network_there_is_no_netlink() -> None:
    rules = json.loads(profile(own_network=False))["syscalls"]
    assert {family for family in range(64) if verdict("socket", family, rules=rules) == 0} == {2, 10}
    assert {verdict("socket", 16, 3, protocol, rules=rules) for protocol in range(64)} == {s.EAFNOSUPPORT}


def test_the_host_loads_no_module_for_a_protocol_that_a_program_asks_for() -> None:
    refused = {
        verdict("socket", family, 1, protocol) for family in (2, 10) for protocol in (33, 115, 132, 136, 256, 262)
    }
    assert refused == {s.EPROTONOSUPPORT}
    assert {verdict("socket", family, 1, protocol) for family in (1, 2, 10) for protocol in s.PROTOCOLS} == {0}


def test_the_host_loads_no_module_for_a_kind_of_socket_or_a_request() -> None:
    for family in (2, 10):
        assert {kind for kind in range(16) if verdict("socket", family, kind | 0x80000) == 0} == {0, 1, 2, 3}
    assert verdict("socket", 2, 6) == verdict("socket", 2, 10) == s.ESOCKTNOSUPPORT
    assert {verdict("ioctl", 3, request) for request in s.LOADING} == {s.EPERM}


def test_huge_pages_cannot_be_taken() -> None:
    assert (
        verdict("mmap", 0, 1, 3, 0x40021) == verdict("memfd_create", 0, 5) == verdict("shmget", 0, 1, 0o4600) == s.EPERM
    )
    assert verdict("mmap", 0, 1, 3, 0x21) == verdict("memfd_create", 0, 1) == verdict("shmget", 0, 1, 0o600) == 0


def test_typing_into_a_terminal_is_refused() -> None:
    assert verdict("ioctl", 0, 1 << 32 | 0x5412) == verdict("ioctl", 0, 0x541C) == s.EPERM
    assert verdict("ioctl", 0, 0x5413) == 0


def test_where_the_network_is_shared_only_connected_pairs_of_unix_sockets_are_made() -> None:
    rules = json.loads(profile(own_network=False))["syscalls"]
    assert {verdict("socket", 1, kind, rules=rules) for kind in range(16)} == {s.EACCES}
    assert {kind for kind in range(16) if verdict("socketpair", 1, kind | 0x80000, rules=rules) == 0} == {1, 5}
    assert verdict("socket", 2, 1, 6, rules=rules) == verdict("socket", 1, 1) == 0


def test_leases_cannot_be_had() -> None:
    assert verdict("fcntl", 3, 1024) == verdict("fcntl", 3, 1 << 32 | 1040) == s.EPERM
    assert verdict("fcntl", 3, 1030) == 0


def test_the_rest_is_allowed() -> None:
    assert json.loads(profile())["defaultAction"] == "SCMP_ACT_ALLOW"
