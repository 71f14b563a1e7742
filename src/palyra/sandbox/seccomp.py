"""The system call filter of tier C, assembled by hand: one table of names, one column of numbers a machine.

`assemble(machine)` returns the bytes of the kernel's `struct sock_filter[]` for bubblewrap's `--seccomp`; tier B's
filter (seccomp_b) is the same with more refusals, made of the same pieces.
Order: 1 a foreign architecture is killed (its numbers mean other calls), 2 numbers that are newer than this table,
x32's, `clone3`, `openat2` and `io_setup` do not exist (ENOSYS, so libraries fall back to other calls), 3 flat refusals
(EPERM),
4 rules over arguments (namespaces, socket families, kinds and protocols, terminal injection, requests that load
modules, leases, memory that grows down or comes in huge pages, files that run as their owner), 5 everything else is
allowed.

Not here: anything that runs the filter; the tests hold a simulator, so both machines are checked anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias

from palyra.values import dataclass

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""AUDIT_ARCH_* of the machines whose numbers are in the tables below."""

ALLOW, KILL_PROCESS, ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, EACCES, ENOSYS, EPROTONOSUPPORT, ESOCKTNOSUPPORT, EAFNOSUPPORT = 1, 13, 38, 93, 94, 97

Numbers: TypeAlias = "Mapping[str, tuple[int | None, int | None]]"
"""name: (x86_64, aarch64); None where the machine has no such call"""
REFUSED: dict[str, tuple[int | None, int | None]] = {
    # other processes' memory and descriptors
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    # mounts and roots
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    # large attack surfaces that programs do not need
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "fanotify_init": (300, 262),
    "memfd_secret": (447, 447),
    "lookup_dcookie": (212, 18),
    # the kernel's keyrings are not part of any namespace
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # the machine itself
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "syslog": (103, 116),
    "acct": (163, 89),
    "vhangup": (153, 58),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "nfsservctl": (180, 42),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "_sysctl": (156, None),
    "create_module": (174, None),
}
MODES: dict[str, tuple[tuple[int | None, int | None], int]] = {
    "chmod": ((90, None), 1),
    "fchmod": ((91, 52), 1),
    "fchmodat": ((268, 53), 2),
    "fchmodat2": ((452, 452), 2),
    "creat": ((85, None), 1),
    "mknod": ((133, None), 1),
    "mknodat": ((259, 33), 2),
}
"""Calls that give a file its mode, and which argument that is."""
CREATIONS: dict[str, tuple[tuple[int | None, int | None], int]] = {"open": ((2, None), 1), "openat": ((257, 56), 2)}
"""Calls that do so when their flags say that they create; the flags' argument, the mode is the next."""
ABSENT: dict[str, tuple[int, int]] = {"clone3": (435, 435), "openat2": (437, 437), "io_setup": (206, 0)}
"""The first two keep their arguments in memory, where no filter can read them; libraries fall back to `clone` and
`openat`. Of the third's contexts the whole machine has 65 536 (fs.aio-max-nr), and one call may ask for all of them:
databases of the host then do not start. Programs that find none use plain reads and writes."""
OWN_ABSENT: dict[str, tuple[int, int]] = {name: numbers for name, numbers in ABSENT.items() if name != "openat2"}
"""For programs of Palyra's own: openat2 is what keeps them beneath the workspace, and they make no odd modes."""
JUDGED: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220),
    "unshare": (272, 97),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ioctl": (16, 29),
    "fcntl": (72, 25),
    "mmap": (9, 222),
    "memfd_create": (319, 279),
    "shmget": (29, 194),
    **{name: numbers for name, (numbers, _) in MODES.items()},
    **{name: numbers for name, (numbers, _) in CREATIONS.items()},
}
RULE_OF = {
    "clone": "namespaces",
    "unshare": "namespaces",
    "socket": "family",
    "socketpair": "family",
    "ioctl": "request",
    "fcntl": "lease",
    "mmap": "mapping",
    "memfd_create": "huge file",
    "shmget": "huge segment",
    **{name: f"mode in {position}" for name, (_, position) in MODES.items()},
    **{name: f"created with {position}" for name, (_, position) in CREATIONS.items()},
}

NAMESPACE_FLAGS = 0x7E020080
"""CLONE_NEWTIME | NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET"""
FAMILIES = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6: an allowlist, because every other family is an attack surface of its own."""
UNIX, INET, INET6 = FAMILIES
STREAM, SEQPACKET = 1, 5
FIRST_ODD_KIND = 4
"""STREAM, DGRAM and RAW come before. With no protocol named a kind alone picks one: 6 is DCCP, for which the host's
kernel would load a module; and SOCK_PACKET of INET is another family altogether, that of packets."""
_TYPE_BITS = 0xF
"""The rest of a socket's type are flags."""
NETLINK, ROUTE = 16, 0
"""AF_NETLINK, NETLINK_ROUTE: how programs list interfaces (`getifaddrs`, `ip`, most development servers). Only where
the network is the program's own: there it lists its loopback, and changes nothing without CAP_NET_ADMIN. Every other
protocol (netfilter, audit, xfrm, sock_diag, generic) is an attack surface of its own, and may load a module."""
PROTOCOLS = (0, 1, 6, 17, 58)
"""Of INET and INET6: the usual one, ICMP, TCP, UDP, ICMPv6. For any other (SCTP, DCCP, L2TP, SMC) the host's kernel
would load a module, as root and for whoever asks; MPTCP is asked for by libraries that fall back to TCP."""
TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI types into the operator's terminal; TIOCLINUX pastes into a console."""
LOADING = (0x5423, 0x8940, 0x8941, 0x8982, 0x8983, 0x89A0, 0x89A1)
"""TIOCSETD, and those of bridges and VLANs: whoever has a pty, or any socket, could have the host's kernel load a line
discipline (GSM, HDLC, PPP: old code that few look at), a bridge or a VLAN module, as root and without a capability."""
LEASES = (1024, 1040)
"""F_SETLEASE, F_SETDELEG: whoever opens such a file waits, for 45 seconds, and a descriptor to read by is enough. Where
the sandbox keeps uid 0 that is every file of /usr, and the linker's cache: no program of the host would start."""
GROWS_DOWN = 0x100
"""MAP_GROWSDOWN: the kernel counts such memory as stack, which no limit on data bounds. No library asks for it."""
HUGE_MAPPING, HUGE_FILE, HUGE_SEGMENT = 0x40000, 0x4, 0o4000
"""MAP_HUGETLB, MFD_HUGETLB, SHM_HUGETLB: of these pages the whole machine has as many as its operator set aside, for a
database or a virtual machine, which then does not start. No limit on data counts those that are shared."""
SET_USER_ID = 0o4000
"""A file that runs as its owner, left in the workspace of root or of an operator, makes every local user that owner."""
CREATING = 0x400040
"""O_CREAT | O_TMPFILE's own bit: without one of them the mode is not looked at, and may hold anything."""
NEWEST = 469
"""`file_setattr`, of Linux 6.17, on every machine. What came since may keep in memory what is judged here, as `clone3`
and `openat2` do. From 512 on numbers are x32's own, which kernels before 5.4 take without its bit: 521 is ptrace."""

# BPF: 32-bit load at an absolute offset, bitwise and, three jumps, return
LOAD, AND, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT = 0, 4


@dataclass(frozen=True, slots=True)
class Step:
    code: int
    value: int
    yes: str = ""
    no: str = ""
    """Labels to jump to; empty means the next step."""


Block: TypeAlias = tuple[str, list[Step]]
"""A label and the steps it stands for; where a block ends, the next one goes on."""


@lru_cache(maxsize=8)
def assemble(machine: str, *, own_program: bool = False, unix: bool = True, own_network: bool = False) -> bytes:
    """The filter for one machine of `MACHINES`; raises KeyError for any other. `unix`: its network is its own, or a
    domain keeps it from names of sockets that are not its own; else it makes none but connected pairs, because names
    without a path (the X server's, a session bus's) belong to the network it shares, and whoever answers there does
    for the operator's uid whatever it does. `own_network`: it may list the interfaces of its network, by netlink."""
    if not unix:
        named = RULE_OF | {"socket": "socket", "socketpair": "pair"}
        return build(machine, REFUSED, JUDGED, named, [sockets_rule(network=True), *protocol_rules(), pairs_rule()])
    families = [Step(IF_EQUAL, family, yes="allow" if family == UNIX else "kind") for family in FAMILIES]
    families += [Step(IF_EQUAL, NETLINK, yes="netlink")] if own_network else []
    family = ("family", [argument(0), *families, Step(RETURN, ERRNO | EAFNOSUPPORT)])
    own = [family, *protocol_rules(), *([_netlink_rule()] if own_network else [])]
    return build(machine, REFUSED, JUDGED, RULE_OF, own, absent=OWN_ABSENT if own_program else ABSENT)


def build(
    machine: str,
    refused: Numbers,
    judged: Numbers,
    rule_of: Mapping[str, str],
    own: list[Block],
    *,
    absent: Mapping[str, tuple[int, int]] = ABSENT,
) -> bytes:
    """A filter: what the number decides, the rules every filter has, those of its own, and the verdicts."""
    named = {numbers: rule_of[name] for name, numbers in judged.items()}
    shared = [_namespaces_rule(), _request_rule(), _lease_rule(), *_memory_rules(), *_mode_rules()]
    return link([*by_number(machine, refused, named, absent), *shared, *own, *_verdicts()])


def link(blocks: Sequence[Block]) -> bytes:
    labels: dict[str, int] = {}
    steps: list[Step] = []
    for label, block in blocks:
        labels[label] = len(steps)
        steps += block
    return b"".join(_encode(at, step, labels) for at, step in enumerate(steps))


def by_number(
    machine: str,
    refused: Numbers,
    judged: Mapping[tuple[int | None, int | None], str],
    absent: Mapping[str, tuple[int, int]] = ABSENT,
) -> list[Block]:
    """What the number alone decides; `judged` names the block that reads a call's arguments. Found by halving, not one
    number after the other: the kernel tries a filter with every number when it is installed, which is part of a start,
    and runs it for every call that it cannot allow by its number alone."""
    arch, column = MACHINES[machine], list(MACHINES).index(machine)
    steps = [Step(LOAD, _ARCH_AT), Step(IF_EQUAL, arch, no="kill"), Step(LOAD, _NUMBER_AT)]
    steps.append(Step(IF_AT_LEAST, NEWEST + 1, yes="enosys"))
    named = [
        *((numbers[column], "enosys") for numbers in absent.values()),
        *((numbers[column], "eperm") for numbers in refused.values()),
        *((numbers[column], rule) for numbers, rule in judged.items()),
    ]
    verdicts: dict[int, str] = {}
    for number, verdict in named:
        if number is not None:
            verdicts.setdefault(number, verdict)
    return [("", steps), *_halved(_stretches(verdicts))[1]]


def _stretches(verdicts: Mapping[int, str]) -> list[tuple[int, str]]:
    """(first number, verdict) of every stretch of numbers with the same verdict, from 0 on."""
    found = [(0, "allow")]
    for number in sorted({*verdicts, *(number + 1 for number in verdicts)}):
        verdict = verdicts.get(number, "allow")
        if number == 0:
            found = [(0, verdict)]
        elif verdict != found[-1][1]:
            found.append((number, verdict))
    return found


def _halved(stretches: Sequence[tuple[int, str]]) -> tuple[str, list[Block]]:
    """Where to jump to, and the steps there: the lower half, then the upper one, so that every jump goes forward."""
    first, verdict = stretches[0]
    if len(stretches) == 1:
        return verdict, []
    half = len(stretches) // 2
    (lower, below), (upper, above) = _halved(stretches[:half]), _halved(stretches[half:])
    here = f"from {first} to {stretches[-1][0]}"
    return here, [(here, [Step(IF_AT_LEAST, stretches[half][0], yes=upper, no=lower)]), *below, *above]


def _namespaces_rule() -> Block:
    return "namespaces", [argument(0), Step(IF_ANY_BIT, NAMESPACE_FLAGS, yes="eperm", no="allow")]


def sockets_rule(*, network: bool) -> Block:
    """No Unix socket is made; others where there is a network."""
    verdict = "kind" if network else "eacces"
    families = [Step(IF_EQUAL, family, yes=verdict) for family in (INET, INET6)]
    return "socket", [argument(0), *families, Step(IF_EQUAL, UNIX, yes="eacces"), Step(RETURN, ERRNO | EAFNOSUPPORT)]


def pairs_rule() -> Block:
    """Connected ones only: a datagram pair can send to any path and any name."""
    kinds = [Step(IF_EQUAL, STREAM, yes="allow"), Step(IF_EQUAL, SEQPACKET, yes="allow", no="eacces")]
    return "pair", [argument(0), Step(IF_EQUAL, UNIX, no="eacces"), argument(1), Step(AND, _TYPE_BITS), *kinds]


def protocol_rules() -> list[Block]:
    """Of INET and INET6: the kind, then the protocol."""
    usual = Step(IF_AT_LEAST, FIRST_ODD_KIND, yes="odd kind", no="protocol")
    known = [Step(IF_EQUAL, protocol, yes="allow") for protocol in PROTOCOLS]
    return [
        ("kind", [argument(1), Step(AND, _TYPE_BITS), usual]),
        ("odd kind", [Step(RETURN, ERRNO | ESOCKTNOSUPPORT)]),
        ("protocol", [argument(2), *known, Step(RETURN, ERRNO | EPROTONOSUPPORT)]),
    ]


def _netlink_rule() -> Block:
    return "netlink", [argument(2), Step(IF_EQUAL, ROUTE, yes="allow"), Step(RETURN, ERRNO | EPROTONOSUPPORT)]


def _request_rule() -> Block:
    requests = [Step(IF_EQUAL, request, yes="eperm") for request in (*TERMINAL_INJECTION, *LOADING)]
    return "request", [argument(1), *requests, Step(RETURN, ALLOW)]


def _lease_rule() -> Block:
    return "lease", [argument(1), *(Step(IF_EQUAL, lease, yes="eperm") for lease in LEASES), Step(RETURN, ALLOW)]


def _memory_rules() -> list[Block]:
    flags = (("mapping", 3, GROWS_DOWN | HUGE_MAPPING), ("huge file", 1, HUGE_FILE), ("huge segment", 2, HUGE_SEGMENT))
    return [(name, [argument(at), Step(IF_ANY_BIT, bits, yes="eperm", no="allow")]) for name, at, bits in flags]


def _mode_rules() -> list[Block]:
    """Set-user-id is refused wherever a mode is given."""
    judge = Step(IF_ANY_BIT, SET_USER_ID, yes="eperm", no="allow")
    modes = [(f"mode in {at}", [argument(at), judge]) for at in (1, 2)]
    creating = Step(IF_ANY_BIT, CREATING, no="allow")
    return modes + [(f"created with {at}", [argument(at), creating, argument(at + 1), judge]) for at in (1, 2)]


def _verdicts() -> list[Block]:
    given = {"allow": ALLOW, "eperm": ERRNO | EPERM, "eacces": ERRNO | EACCES, "enosys": ERRNO | ENOSYS,
             "kill": KILL_PROCESS}  # fmt: skip
    return [(label, [Step(RETURN, verdict)]) for label, verdict in given.items()]


def argument(position: int) -> Step:
    """The low half only: the kernel reads these arguments as 32 bits, so high bits must not hide a match."""
    return Step(LOAD, 16 + 8 * position)


def _encode(at: int, step: Step, labels: dict[str, int]) -> bytes:
    yes, no = (labels[label] - at - 1 if label else 0 for label in (step.yes, step.no))
    if not (0 <= yes < 256 and 0 <= no < 256):
        raise OverflowError(f"step {at} jumps too far for classic BPF")
    return struct.pack("=HBBI", step.code, yes, no, step.value)
