"""What a failed program said that has a known answer here: git has no name for a commit, a server is another call's.

A sandbox has no ~/.gitconfig, and a network of its own. Programs do not know that: git advises `git config --global`,
which lasts no longer than the call, and "Connection refused" sends an agent looking for a fault in its server. Rules: a
hint only, from what a program printed, which may be made up; it names nothing that was printed.

Not here: closed paths (closed_hint), hosts that were refused (output).
"""

from __future__ import annotations

from palyra.model.net import EgressMode, NetGrant

MAX_BYTES = 1 << 16
"""Of the end of what it said."""
_WHO = b"Please tell me who you are"
_REFUSED = (b"Connection refused", b"ECONNREFUSED", b"Couldn't connect to server", b"Could not connect to server")
_HERE = (b"localhost", b"127.0.0.1", b"::1", b"0.0.0.0")  # as programs print it
_NO_IDENTITY = (
    "There is no ~/.gitconfig in a sandbox, and git config --global ends with the call. Put it before the subcommand, "
    'each time: args=["-c", "user.name=NAME", "-c", "user.email=EMAIL", "commit", …]. An operator sets both for good '
    "in the repository, outside: git config user.name NAME."
)
_OWN_NETWORK = (
    "Each call has a network of its own: what listens on localhost in another call, in the background too, cannot be "
    'reached from this one. Start the server and its client in one call: command="bash", args=["-c", "SERVER & sleep '
    '1; CLIENT"].'
)


def said_hint(said: bytes, net: NetGrant) -> str | None:
    said = said[-MAX_BYTES:]
    if _WHO in said:
        return _NO_IDENTITY
    if net.mode is not EgressMode.STRICT or not any(map(said.__contains__, _REFUSED)):
        return None
    # Without a granted host there is no other address that could have refused.
    return _OWN_NETWORK if not net.hosts or any(map(said.__contains__, _HERE)) else None
