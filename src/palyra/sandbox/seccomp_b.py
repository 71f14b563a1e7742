"""The system call filter of tier B: tier C's, and what only a wall of namespaces would stop otherwise. Pure.

A plain child lives among the host's processes, so more is refused. Sockets with a path are ways out of any file
wall (docker.sock, the session bus, an agent's keys), so a Unix socket is never made; pairs of them are, connected
ones only: a datagram pair can send to any path. System V memory and queues have no namespace here; nor have
priorities and limits of the user's other processes.

Where the call has no network no socket is made at all. Landlock's TCP rule alone would leave MPTCP,
`sendto(MSG_FASTOPEN)`, a `listen` without `bind`, and UDP open.

Not here: the file wall (landlock), entering the filter (launch/_os).
"""

from __future__ import annotations

from functools import lru_cache

from palyra.sandbox.seccomp import (
    IF_EQUAL,
    JUDGED,
    REFUSED,
    RULE_OF,
    Block,
    Step,
    argument,
    build,
    pairs_rule,
    protocol_rules,
    sockets_rule,
)

REFUSED_B: dict[str, tuple[int | None, int | None]] = {
    **REFUSED,
    # memory, queues and semaphores that every process of the user shares
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
JUDGED_B: dict[str, tuple[int | None, int | None]] = {
    **JUDGED,
    "prlimit64": (302, 261),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
}
_RULE_OF = {
    **RULE_OF,
    "socket": "socket",
    "socketpair": "pair",
    "prlimit64": "own process",
    "setpriority": "priority",
    "ioprio_set": "io priority",
}

_OF_USER, _IO_OF_USER = 2, 3
"""PRIO_USER, IOPRIO_WHO_USER: every process of the user at once."""


@lru_cache(maxsize=8)
def assemble_b(machine: str, *, network: bool) -> bytes:
    """The filter for one machine of `MACHINES`; raises KeyError for any other."""
    return build(
        machine,
        REFUSED_B,
        JUDGED_B,
        _RULE_OF,
        [sockets_rule(network=network), *protocol_rules(), pairs_rule(), *_others()],
    )


def _others() -> list[Block]:
    """Only the calling process itself: 0 is its name, another number may be a stranger's."""
    itself = [argument(1), Step(IF_EQUAL, 0, yes="allow", no="eperm")]
    return [
        ("own process", [argument(0), Step(IF_EQUAL, 0, yes="allow", no="eperm")]),
        ("priority", [argument(0), Step(IF_EQUAL, _OF_USER, yes="eperm"), *itself]),
        ("io priority", [argument(0), Step(IF_EQUAL, _IO_OF_USER, yes="eperm"), *itself]),
    ]
