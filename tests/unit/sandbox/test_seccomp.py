"""The filter, run in a simulator of the kernel's own machine: both tables are checked on any host."""

from __future__ import annotations

import struct

import pytest

from palyra.sandbox import seccomp as s
from tests.promises import promise
from tests.unit.sandbox.filtering import simulate

REFUSE, ABSENT, NO_FAMILY = s.ERRNO | s.EPERM, s.ERRNO | s.ENOSYS, s.ERRNO | s.EAFNOSUPPORT
I386 = 0x40000003


@pytest.fixture(params=sorted(s.MACHINES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(machine: str, nr: int, *args: int) -> int:
    return simulate(s.assemble(machine), arch=s.MACHINES[machine], nr=nr, args=args)


def number(machine: str, name: str) -> int | None:
    column = list(s.MACHINES).index(machine)
    return {**s.REFUSED, **s.ABSENT, **s.JUDGED}[name][column]


@promise("syscall-filter.refused-calls")
def test_every_listed_call_is_refused(machine: str) -> None:
    verdicts = {name: ask(machine, nr) for name in s.REFUSED if (nr := number(machine, name)) is not None}
    assert set(verdicts.values()) == {REFUSE}
    assert {"ptrace", "mount", "bpf", "keyctl", "io_uring_setup", "userfaultfd", "setns"} <= set(verdicts)


def test_no_number_stands_for_two_calls(machine: str) -> None:
    numbers = [n for name in {**s.REFUSED, **s.ABSENT, **s.JUDGED} if (n := number(machine, name)) is not None]
    assert len(numbers) == len(set(numbers))


def test_ordinary_calls_are_allowed(machine: str) -> None:
    listed = {number(machine, name) for name in {**s.REFUSED, **s.ABSENT, **s.JUDGED}}
    assert {ask(machine, nr) for nr in range(s.NEWEST + 1) if nr not in listed} == {s.ALLOW}


@promise("syscall-filter.refused-calls")
def test_calls_that_are_newer_than_the_table_do_not_exist(machine: str) -> None:
    """A new call that keeps its arguments in memory would be a way round every rule here, as clone3 was."""
    newer = (s.NEWEST + 1, 500, 0x3FFF_FFFF, 0x4000_0000, 0x4000_0065, 0xFFFF_FFFF)
    assert {ask(machine, nr) for nr in newer} == {ABSENT}


@promise("syscall-filter.refused-calls")
def test_ptrace_has_no_second_number_on_old_kernels() -> None:
    """Before 5.4 the kernel takes x32's own numbers without its bit: ioctl, ptrace, kexec_load, process_vm_readv …"""
    assert {ask("x86_64", nr) for nr in range(512, 548)} == {ABSENT}


def test_a_number_is_found_by_halving(machine: str) -> None:
    """The kernel runs a filter with every number there is before a program starts."""
    steps = list(struct.iter_unpack("=HBBI", s.assemble(machine)))

    def longest(at: int) -> int:
        code, yes, no, _ = steps[at]
        if code == s.RETURN:
            return 1
        return 1 + max({longest(at + 1 + by) for by in ((yes, no) if code & 7 == 5 else (0,))})

    assert longest(0) <= 26


@promise("syscall-filter.namespaces")
def test_clone3_does_not_exist_so_that_flags_can_be_read(machine: str) -> None:
    assert ask(machine, 435) == ABSENT


@promise("syscall-filter.namespaces")
@pytest.mark.parametrize(
    "flag", [0x80, 0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000]
)
@pytest.mark.parametrize("call", ["clone", "unshare"])
def test_new_namespaces_are_refused(machine: str, call: str, flag: int) -> None:
    nr = number(machine, call)
    assert nr is not None
    assert ask(machine, nr, flag) == REFUSE
    assert ask(machine, nr, flag | 0xDEAD_0000_0000_0000) == REFUSE


def test_threads_and_forks_are_allowed(machine: str) -> None:
    clone = number(machine, "clone")
    assert clone is not None
    assert {ask(machine, clone, flags) for flags in (0x3D0F00, 0x1200011, 0x4111, 17)} == {s.ALLOW}


@promise("syscall-filter.namespaces")
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_only_three_socket_families_exist(machine: str, call: str) -> None:
    nr = number(machine, call)
    assert nr is not None
    for family in range(64):
        assert ask(machine, nr, family) == (s.ALLOW if family in (1, 2, 10) else NO_FAMILY)
    assert ask(machine, nr, 0x1_0000_0010) == NO_FAMILY  # the kernel reads 32 bits: this is AF_NETLINK


@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_in_a_network_of_its_own_a_program_lists_interfaces_and_no_other_netlink_is_left(
    machine: str, call: str
) -> None:
    program, nr = s.assemble(machine, own_network=True), number(machine, call)
    assert nr is not None

    def judge(*args: int) -> int:
        return simulate(program, arch=s.MACHINES[machine], nr=nr, args=args)

    for high in (0, 1 << 32, 0xDEAD_0000_0000_0000):
        for kind in (2, 3, 3 | 0x80000, 3 | 0x80800 | high):
            allowed = {protocol for protocol in range(512) if judge(16 | high, kind, protocol | high) == s.ALLOW}
            assert allowed == {0}
            for protocol in (4, 9, 12, 15, 16, 1 << 16, 1 << 31, 0xFFFF_FFFF):
                assert judge(16 | high, kind, protocol | high) == s.ERRNO | s.EPROTONOSUPPORT
    assert {family for family in range(64) if judge(family) == s.ALLOW} == {1, 2, 10, 16}


@pytest.mark.parametrize("given", [{}, {"own_program": True}, {"unix": False}])
def test_elsewhere_there_is_no_netlink_at_all(machine: str, given: dict[str, bool]) -> None:
    """In a network that is the host's it would list the host's, and whatever is heard there is the host's."""
    nr = number(machine, "socket")
    assert nr is not None
    verdicts = {
        simulate(s.assemble(machine, **given), arch=s.MACHINES[machine], nr=nr, args=(16, kind, protocol))
        for kind in (2, 3)
        for protocol in range(64)
    }
    assert verdicts == {NO_FAMILY}


@promise("syscall-filter.kernel-modules")
def test_the_host_loads_no_module_for_a_protocol_that_a_program_asks_for(machine: str) -> None:
    """For SCTP, DCCP or L2TP the kernel starts modprobe, as root, outside of every namespace."""
    nr = number(machine, "socket")
    assert nr is not None
    for family in (2, 10):
        allowed = {protocol for protocol in range(512) if ask(machine, nr, family, 1, protocol) == s.ALLOW}
        assert allowed == {0, 1, 6, 17, 58}
        assert ask(machine, nr, family, 1, 132) == s.ERRNO | s.EPROTONOSUPPORT
        assert ask(machine, nr, family, 1, 1 << 32 | 132) == s.ERRNO | s.EPROTONOSUPPORT  # the kernel reads 32 bits
    assert ask(machine, nr, 1, 1, 1) == s.ALLOW  # PF_UNIX by its own number


@promise("syscall-filter.kernel-modules")
def test_the_host_loads_no_module_for_a_kind_of_socket_that_picks_its_own_protocol(machine: str) -> None:
    """DCCP is kind 6 with no protocol named; SOCK_PACKET of INET is the family of packets under another number."""
    nr = number(machine, "socket")
    assert nr is not None
    for family in (2, 10):
        for flags in (0, 0x80000, 0x80800, 0xDEAD_0000_0000_0000):
            allowed = {kind for kind in range(16) if ask(machine, nr, family, kind | flags, 0) == s.ALLOW}
            assert allowed == {0, 1, 2, 3}
        assert ask(machine, nr, family, 6, 0) == ask(machine, nr, family, 10, 0) == s.ERRNO | s.ESOCKTNOSUPPORT
    assert {ask(machine, nr, 1, kind) for kind in range(16)} == {s.ALLOW}


def test_where_the_network_is_shared_and_no_domain_helps_only_connected_pairs_of_unix_sockets_are_made(
    machine: str,
) -> None:
    """Names without a path belong to the network: the X server's and the session bus's are the operator's own doors."""
    program = s.assemble(machine, unix=False)
    socket, pair = number(machine, "socket"), number(machine, "socketpair")
    assert socket is not None
    assert pair is not None

    def judge(nr: int, *args: int) -> int:
        return simulate(program, arch=s.MACHINES[machine], nr=nr, args=args)

    assert {judge(socket, 1, kind) for kind in range(16)} == {s.ERRNO | s.EACCES}
    assert {kind for kind in range(16) if judge(pair, 1, kind) == s.ALLOW} == {1, 5}
    assert {judge(socket, family, 1, 6) for family in (2, 10)} == {s.ALLOW}
    assert judge(socket, 16, 3) == NO_FAMILY


@promise("syscall-filter.scarce-resources")
def test_contexts_of_which_the_machine_has_few_cannot_be_taken(machine: str) -> None:
    assert ask(machine, {"x86_64": 206, "aarch64": 0}[machine]) == ABSENT


@promise("syscall-filter.terminal-input")
def test_typing_into_a_terminal_is_refused_with_high_bits_too(machine: str) -> None:
    ioctl = number(machine, "ioctl")
    assert ioctl is not None
    for request in (0x5412, 0x541C, 0x1_0000_5412, 0xFFFF_FFFF_0000_541C):
        assert ask(machine, ioctl, 0, request) == REFUSE
    assert ask(machine, ioctl, 0, 0x5413) == s.ALLOW  # the window's size
    assert ask(machine, ioctl, 0x5412, 0x5401) == s.ALLOW  # the descriptor is not the request


@promise("syscall-filter.kernel-modules")
def test_the_host_loads_no_module_for_what_is_asked_of_a_terminal_or_a_socket(machine: str) -> None:
    """A line discipline is loaded by its number, for whoever has a pty; bridges and VLANs for whoever has a socket."""
    ioctl = number(machine, "ioctl")
    assert ioctl is not None
    for request in (0x5423, 0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1):
        assert ask(machine, ioctl, 3, request) == ask(machine, ioctl, 3, 0xDEAD_0000_0000_0000 | request) == REFUSE
    assert {ask(machine, ioctl, 3, request) for request in (0x5401, 0x5424, 0x541B, 0x8912, 0x8933)} == {s.ALLOW}


@promise("syscall-filter.leases")
def test_leases_on_files_that_the_host_opens_cannot_be_had(machine: str) -> None:
    """Whoever opens a leased file waits for its holder: root's sandbox could lease the linker's cache."""
    fcntl = number(machine, "fcntl")
    assert fcntl is not None
    assert {ask(machine, fcntl, 3, command) for command in (1024, 1040, 1 << 32 | 1024)} == {REFUSE}
    assert {ask(machine, fcntl, 3, command) for command in (0, 1, 2, 3, 4, 6, 1025, 1030, 1031, 1033)} == {s.ALLOW}


@promise("syscall-filter.growing-stack")
def test_memory_that_grows_down_cannot_be_had(machine: str) -> None:
    """The kernel counts it as stack: a program could take all there is, whatever its limit on data."""
    mmap = number(machine, "mmap")
    assert mmap is not None
    private, anonymous, stack, down = 0x2, 0x20, 0x20000, 0x100
    assert ask(machine, mmap, 0, 1 << 30, 3, private | anonymous | down) == REFUSE
    assert ask(machine, mmap, 0, 1 << 30, 3, private | anonymous | down | 0xDEAD_0000_0000_0000) == REFUSE
    assert ask(machine, mmap, 0, 1 << 20, 3, private | anonymous | stack) == s.ALLOW
    assert ask(machine, mmap, down, down, 3, private) == s.ALLOW


@promise("syscall-filter.scarce-resources")
def test_huge_pages_of_which_the_machine_has_few_cannot_be_taken(machine: str) -> None:
    """The operator set them aside for somebody else, and no limit on data counts those that are shared."""
    shared, anonymous, huge = 0x1, 0x20, 0x40000
    asked = {"mmap": (0, 2 << 20, 3, shared | anonymous | huge), "memfd_create": (0, 0x4), "shmget": (0, 1, 0o4600)}
    for name, args in asked.items():
        nr = number(machine, name)
        assert nr is not None
        assert ask(machine, nr, *args) == REFUSE
        assert ask(machine, nr, *args[:-1], args[-1] & ~huge & ~0x4 & ~0o4000) == s.ALLOW


@promise("syscall-filter.set-user-id")
@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("chmod", (0, 0o4755)),
        ("fchmod", (3, 0o6755)),
        ("fchmodat", (0, 0, 0o4711)),
        ("fchmodat2", (0, 0, 0o4711, 0)),
        ("creat", (0, 0o4755)),
        ("mknod", (0, 0o104755)),
        ("mknodat", (0, 0, 0o104755)),
        ("open", (0, 0o101, 0o4755)),
        ("open", (0, 0o20200001, 0o4755)),
        ("openat", (0, 0, 0o101, 0o4755)),
        ("openat", (0, 0, 0o20200001, 0xDEAD_0000_0000_09ED)),
    ],
)
def test_no_file_that_runs_as_its_owner_can_be_made(machine: str, call: str, args: tuple[int, ...]) -> None:
    nr = number(machine, call)
    if nr is None:
        return  # this machine has no such call
    assert ask(machine, nr, *args) == REFUSE
    harmless = tuple(value & ~0o4000 if value & 0o4000 else value for value in args)
    assert ask(machine, nr, *harmless) == s.ALLOW


def test_a_mode_counts_only_where_something_is_created(machine: str) -> None:
    openat = number(machine, "openat")
    assert openat is not None
    assert ask(machine, openat, 0, 0, 0, 0o4755) == s.ALLOW
    assert ask(machine, 437) == ABSENT  # openat2 keeps its mode in memory


@promise("syscall-filter.refused-calls")
def test_another_architecture_is_killed(machine: str) -> None:
    program = s.assemble(machine)
    other = next(arch for name, arch in s.MACHINES.items() if name != machine)
    assert simulate(program, arch=I386, nr=1) == s.KILL_PROCESS
    assert simulate(program, arch=other, nr=1) == s.KILL_PROCESS


@promise("syscall-filter.refused-calls")
def test_x32_numbers_do_not_exist() -> None:
    assert {ask("x86_64", 0x4000_0000 | nr) for nr in (0, 56, 101, 520)} == {ABSENT}


def test_a_machine_without_a_table_has_no_filter() -> None:
    with pytest.raises(KeyError):
        s.assemble("riscv64")
