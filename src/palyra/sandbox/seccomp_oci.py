"""Tier C's system call filter as the JSON that container engines read: the same table, so the same calls are refused.

Engines bring a profile of their own that differs from version to version (ptrace and io_uring are allowed in some), so
ours replaces it. Arguments are compared in their low halves, as the kernel reads them: each comparison has a mask.

Not here: the table (seccomp), the engine's argv (docker).
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TypeAlias

from palyra.sandbox.seccomp import (
    ABSENT,
    CREATING,
    CREATIONS,
    EACCES,
    EAFNOSUPPORT,
    ENOSYS,
    EPERM,
    EPROTONOSUPPORT,
    ESOCKTNOSUPPORT,
    FAMILIES,
    FIRST_ODD_KIND,
    GROWS_DOWN,
    HUGE_FILE,
    HUGE_MAPPING,
    HUGE_SEGMENT,
    INET,
    INET6,
    LEASES,
    LOADING,
    MODES,
    NAMESPACE_FLAGS,
    NETLINK,
    REFUSED,
    SEQPACKET,
    SET_USER_ID,
    STREAM,
    TERMINAL_INJECTION,
    UNIX,
)

_LOW_HALF = 0xFFFFFFFF
_FAMILIES_KNOWN = 64
"""More than there are; the kernel refuses higher ones itself."""
_KINDS = 16
"""Of sockets; the other bits are flags."""
_PROTOCOLS_REFUSED = (33, 115, 132, 136, 256, 262)
"""DCCP, L2TP, SCTP, UDP-Lite, SMC, MPTCP: all that Linux has beyond the filter's own list, which says what is allowed;
an engine's rules can only say what is not."""
_MEMORY = (
    ("mmap", 3, GROWS_DOWN),
    ("mmap", 3, HUGE_MAPPING),
    ("memfd_create", 1, HUGE_FILE),
    ("shmget", 2, HUGE_SEGMENT),
)


@lru_cache(maxsize=2)
def profile(*, own_network: bool = True) -> bytes:
    """`own_network`: the container has one, so it may list its interfaces and use Unix sockets (see `assemble`)."""
    flags = [1 << bit for bit in range(32) if NAMESPACE_FLAGS >> bit & 1]
    known = (*FAMILIES, NETLINK) if own_network else FAMILIES
    families = [family for family in range(_FAMILIES_KNOWN) if family not in known]
    rules = [
        _rule(sorted(REFUSED), EPERM),
        _rule(sorted(ABSENT), ENOSYS),
        *(_rule(["clone", "unshare"], EPERM, argument=(0, flag, flag)) for flag in flags),
        *(_rule(["socket", "socketpair"], EAFNOSUPPORT, argument=(0, _LOW_HALF, family)) for family in families),
        *(
            _rule(["socket"], EPROTONOSUPPORT, argument=(0, _LOW_HALF, family), also=(2, _LOW_HALF, protocol))
            for family in (INET, INET6)
            for protocol in _PROTOCOLS_REFUSED
        ),
        *(
            _rule(["socket"], ESOCKTNOSUPPORT, argument=(0, _LOW_HALF, family), also=(1, _KINDS - 1, kind))
            for family in (INET, INET6)
            for kind in range(FIRST_ODD_KIND, _KINDS)
        ),
        *(_only_route() if own_network else _without_unix()),
        *(_rule(["ioctl"], EPERM, argument=(1, _LOW_HALF, request)) for request in (*TERMINAL_INJECTION, *LOADING)),
        *(_rule(["fcntl"], EPERM, argument=(1, _LOW_HALF, lease)) for lease in LEASES),
        *(_rule([name], EPERM, argument=(at, bit, bit)) for name, at, bit in _MEMORY),
        *(_rule([name], EPERM, argument=(at, SET_USER_ID, SET_USER_ID)) for name, (_, at) in MODES.items()),
        *(
            _rule([name], EPERM, argument=(at, bit, bit), also=(at + 1, SET_USER_ID, SET_USER_ID))
            for name, (_, at) in CREATIONS.items()
            for bit in (1 << n for n in range(32) if CREATING >> n & 1)
        ),
    ]
    document = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": rules}
    return json.dumps(document, sort_keys=True).encode()


def _only_route() -> list[dict[str, object]]:
    """Every protocol has a bit that ROUTE, which is 0, has not: so none can be left out."""
    netlink, bits = (0, _LOW_HALF, NETLINK), [1 << bit for bit in range(32)]
    names = ["socket", "socketpair"]
    return [_rule(names, EPROTONOSUPPORT, argument=netlink, also=(2, bit, bit)) for bit in bits]


def _without_unix() -> list[dict[str, object]]:
    kinds = [kind for kind in range(_KINDS) if kind not in (STREAM, SEQPACKET)]
    return [
        _rule(["socket"], EACCES, argument=(0, _LOW_HALF, UNIX)),
        *(_rule(["socketpair"], EACCES, argument=(0, _LOW_HALF, UNIX), also=(1, _KINDS - 1, kind)) for kind in kinds),
    ]


Compared: TypeAlias = tuple[int, int, int]
"""(position, mask, value): so where the masked argument is the value."""


def _rule(
    names: list[str], error: int, *, argument: Compared | None = None, also: Compared | None = None
) -> dict[str, object]:
    """Refused where both comparisons hold that are given."""
    rule: dict[str, object] = {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error}
    compared = [each for each in (argument, also) if each is not None]
    if compared:
        rule["args"] = [
            {"index": position, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
            for position, mask, value in compared
        ]
    return rule
