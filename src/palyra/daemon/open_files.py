"""Touches: this process's limit of open files. How they are shared out among connections, calls and hosts they reach.

Each connection is a descriptor, and whoever connects has not shown a credential yet: thousands that say nothing must
not take what the calls of others are run with. Rules: the limit is raised so far that there is room for all of it;
where the system does not allow that, there are fewer connections, at most a quarter of what may be opened.

Not here: the hosts' half of them (egress/server), what a program may open (launch/limits).
"""

from __future__ import annotations

import logging
import resource
from contextlib import suppress

log = logging.getLogger("palyra.daemon")
FILES_A_CALL = 16
"""Pipes, sockets and descriptors of processes, of a sandbox with a network."""
SPARE_FILES = 256


def share_open_files(*, connections: int, calls: int) -> int:
    """How many connections there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted_files(connections=connections, calls=calls)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
            soft = most
    limit = wanted if soft == resource.RLIM_INFINITY else soft
    allowed = connections_within(limit, connections=connections, calls=calls)
    if allowed < connections:
        log.warning("at most %d connections: this process may open %d files, not %d", allowed, limit, wanted)
    return allowed


def wanted_files(*, connections: int, calls: int) -> int:
    """Half of them are for the hosts that calls reach."""
    return 2 * (connections + FILES_A_CALL * calls) + SPARE_FILES


def connections_within(limit: int, *, connections: int, calls: int) -> int:
    if limit >= wanted_files(connections=connections, calls=calls):
        return connections
    return min(connections, max(16, limit // 4))
