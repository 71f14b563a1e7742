"""Tier B's filter in the simulator of the kernel's machine: both tables, with and without a network."""

from __future__ import annotations

import pytest

from palyra.sandbox import seccomp as s
from palyra.sandbox import seccomp_b as b
from tests.unit.sandbox.filtering import simulate

REFUSE, DENY, NO_FAMILY = s.ERRNO | s.EPERM, s.ERRNO | s.EACCES, s.ERRNO | s.EAFNOSUPPORT
CASES = [(machine, network) for machine in sorted(s.MACHINES) for network in (False, True)]
KNOWN = {**b.REFUSED_B, **s.ABSENT, **b.JUDGED_B}
HIGH = 0xDEAD_0000_0000_0000


class Filter:
    def __init__(self, machine: str, network: bool) -> None:
        self.machine, self.network = machine, network
        self._program = b.assemble_b(machine, network=network)

    def ask(self, call: str | int, *args: int) -> int:
        number = call if isinstance(call, int) else self.number(call)
        assert number is not None
        return simulate(self._program, arch=s.MACHINES[self.machine], nr=number, args=args)

    def number(self, name: str) -> int | None:
        return KNOWN[name][list(s.MACHINES).index(self.machine)]


@pytest.fixture(params=CASES, ids=lambda c: f"{c[0]}-{'open' if c[1] else 'closed'}")
def judge(request: pytest.FixtureRequest) -> Filter:
    return Filter(*request.param)


def test_everything_tier_c_refuses_is_refused_and_more(judge: Filter) -> None:
    assert s.REFUSED.items() <= b.REFUSED_B.items()
    assert {judge.ask(name) for name in b.REFUSED_B if judge.number(name) is not None} == {REFUSE}


def test_no_number_stands_for_two_calls(judge: Filter) -> None:
    numbers = [number for name in KNOWN if (number := judge.number(name)) is not None]
    assert len(numbers) == len(set(numbers))


def test_ordinary_calls_are_allowed(judge: Filter) -> None:
    listed = {judge.number(name) for name in KNOWN}
    assert {judge.ask(number) for number in range(s.NEWEST + 1) if number not in listed} == {s.ALLOW}
    assert {judge.ask(number) for number in (s.NEWEST + 1, 521, 0x4000_0065)} == {s.ERRNO | s.ENOSYS}


def test_unix_sockets_are_never_made(judge: Filter) -> None:
    for kind in range(16):
        assert judge.ask("socket", 1, kind) == judge.ask("socket", HIGH | 1, kind) == DENY


def test_internet_sockets_are_made_only_with_a_network(judge: Filter) -> None:
    for family in (2, 10):
        for kind, protocol in ((1, 0), (1, 6), (2, 17), (2, 0), (3, 1), (0x80001, 0)):
            assert judge.ask("socket", family, kind, protocol) == (s.ALLOW if judge.network else DENY)
            assert judge.ask("socket", HIGH | family, kind, protocol) == (s.ALLOW if judge.network else DENY)


def test_no_protocol_is_asked_for_that_the_host_would_load_a_module_for(judge: Filter) -> None:
    other = s.ERRNO | s.EPROTONOSUPPORT if judge.network else DENY
    assert {judge.ask("socket", family, 1, protocol) for family in (2, 10) for protocol in (33, 115, 132, 262)} == {
        other
    }


def test_no_kind_of_socket_is_asked_for_that_the_host_would_load_a_module_for(judge: Filter) -> None:
    other = s.ERRNO | s.ESOCKTNOSUPPORT if judge.network else DENY
    assert {judge.ask("socket", family, kind, 0) for family in (2, 10) for kind in range(4, 16)} == {other}
    assert {judge.ask("ioctl", 3, request) for request in s.LOADING} == {REFUSE}


def test_huge_pages_cannot_be_taken(judge: Filter) -> None:
    assert judge.ask("mmap", 0, 1, 3, 0x40021) == judge.ask("memfd_create", 0, 4) == judge.ask("shmget") == REFUSE


def test_no_other_family_exists(judge: Filter) -> None:
    assert {judge.ask("socket", family, 1) for family in range(64) if family not in (1, 2, 10)} == {NO_FAMILY}


def test_pairs_are_connected_ones_only(judge: Filter) -> None:
    """A datagram pair can send to any path; SOCK_RAW of this family is a datagram under another name."""
    flags = (0, 0x800, 0x80000, 0x80800)
    allowed = {(kind | flag): judge.ask("socketpair", 1, kind | flag) for kind in range(16) for flag in flags}
    assert {kind & 0xF for kind, verdict in allowed.items() if verdict == s.ALLOW} == {1, 5}
    assert {judge.ask("socketpair", family, 1) for family in range(64) if family != 1} == {DENY}


def test_only_the_calling_process_can_be_limited_or_slowed(judge: Filter) -> None:
    assert judge.ask("prlimit64", 0, 7) == s.ALLOW
    assert judge.ask("prlimit64", HIGH, 7) == s.ALLOW  # the kernel reads 32 bits: this is 0
    assert judge.ask("prlimit64", 4711, 7) == judge.ask("prlimit64", HIGH | 1, 7) == REFUSE
    for call, of_user in (("setpriority", 2), ("ioprio_set", 3)):
        assert judge.ask(call, 0, 0, 5) == judge.ask(call, 1, 0, 5) == s.ALLOW
        assert judge.ask(call, 0, 4711, 5) == judge.ask(call, of_user, 0, 5) == REFUSE


def test_namespaces_terminals_and_strange_machines_are_closed_as_in_tier_c(judge: Filter) -> None:
    assert judge.ask("clone", 0x10000000) == judge.ask("unshare", 0x20000) == REFUSE
    assert judge.ask("clone", 0x3D0F00) == judge.ask("unshare", 0x200) == s.ALLOW
    assert judge.ask("ioctl", 0, HIGH | 0x5412) == judge.ask("ioctl", 0, 0x541C) == REFUSE
    assert judge.ask("ioctl", 0, 0x5401) == s.ALLOW
    assert judge.ask("clone3") == s.ERRNO | s.ENOSYS
    program = b.assemble_b(judge.machine, network=judge.network)
    assert simulate(program, arch=0x40000003, nr=1) == s.KILL_PROCESS


def test_a_machine_without_a_table_has_no_filter() -> None:
    with pytest.raises(KeyError):
        b.assemble_b("riscv64", network=False)
