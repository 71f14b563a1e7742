"""What a conversation hears and what it asks for: the whole vocabulary between the egress minds and the sockets.

One `Conversation(terms)` (egress/conversation, egress/terms) belongs to one accepted connection. The server tells it
what happened, `receive(event) -> tuple[Command, ...]`, one event at a time, and does the commands it gets, in order.
Rules for the server:

- the first event is `ClientOpened`; after `CloseAll` no event is delivered any more;
- bytes of a side are read only while `conversation.wants(side)` holds, which is all the back pressure there is;
- `Relay` hands both directions over: bytes and half-closes are copied from then on, bytes that were read but not yet
  delivered first, and no event is delivered any more;
- a timer that was started runs until it is stopped, started again or `TimedOut` was delivered once;
- every `Ruled` opens a record; bytes count for the record opened last.

Not here: what is decided (egress/conversation), limits on connections, bytes and time (egress/limits).
"""

from __future__ import annotations

from enum import StrEnum

from palyra.egress.hosts import Address
from palyra.values import dataclass


class Face(StrEnum):
    TRANSPARENT = "transparent"
    """A listener on a granted port: the address that was dialled says which host was meant."""
    PROXY = "proxy"
    """The fixed port that speaks HTTP proxy and SOCKS5."""


class Side(StrEnum):
    CLIENT = "client"
    UPSTREAM = "upstream"


class Timer(StrEnum):
    HEAD = "head"
    """The client has to finish its greeting, request head or ClientHello: some seconds. Ends slow clients."""


class Ruling(StrEnum):
    GRANTED = "granted"
    REFUSED = "refused"
    FAILED = "failed"
    """Granted, and could not be reached."""


# ── events: what happened ────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOpened:
    face: Face
    local_address: Address
    """`getsockname()` of the accepted socket; v4-mapped addresses are taken as IPv4."""
    local_port: int


@dataclass(frozen=True, slots=True)
class ClientData:
    data: bytes


@dataclass(frozen=True, slots=True)
class ClientEof:
    """The client will send nothing more; it may still read."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The whole answer to `Resolve`, in the resolver's order, both families."""

    addresses: tuple[Address, ...]


@dataclass(frozen=True, slots=True)
class ResolveFailed:
    why: str
    """A clause without a full stop: "the name does not exist"."""


@dataclass(frozen=True, slots=True)
class UpstreamOpened:
    """The `Dial` has connected."""


@dataclass(frozen=True, slots=True)
class UpstreamFailed:
    """The `Dial` did not connect, in time or at all."""

    why: str


@dataclass(frozen=True, slots=True)
class UpstreamData:
    data: bytes


@dataclass(frozen=True, slots=True)
class UpstreamEof:
    """The host will send nothing more. Also for a connection that was reset."""


@dataclass(frozen=True, slots=True)
class TlsStarted:
    """`StartTls` has shaken hands; data events of that side are plain text from now on."""

    side: Side


@dataclass(frozen=True, slots=True)
class TlsFailed:
    side: Side
    why: str


@dataclass(frozen=True, slots=True)
class TimedOut:
    timer: Timer


Event = (
    ClientOpened | ClientData | ClientEof | Resolved | ResolveFailed | UpstreamOpened | UpstreamFailed | UpstreamData
    | UpstreamEof | TlsStarted | TlsFailed | TimedOut
)  # fmt: skip


# ── commands: what to do ─────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Resolve:
    """Look the name up once, outside the sandbox; answer `Resolved` or `ResolveFailed`."""

    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """Connect to this very address, which was judged; never look `host` up again."""

    address: Address
    port: int
    host: str
    """For the record and for certificates only."""


@dataclass(frozen=True, slots=True)
class SendClient:
    data: bytes


@dataclass(frozen=True, slots=True)
class SendUpstream:
    data: bytes


@dataclass(frozen=True, slots=True)
class HalfClose:
    """Say on this side that nothing more will be sent to it."""

    side: Side


@dataclass(frozen=True, slots=True)
class CloseUpstream:
    """Drop the host's connection; another `Dial` follows."""


@dataclass(frozen=True, slots=True)
class CloseAll:
    """Send what is still to be sent, then close both sides: the conversation is over."""

    reset: bool = False
    """Close the client's side with a reset, so that its program fails at once instead of reading an end of file."""


@dataclass(frozen=True, slots=True)
class Relay:
    """From now on copy both directions, bytes and half-closes, without asking: everything is judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTls:
    """Interception of a marked host. Upstream: a client that verifies `host`. Client: a server with a certificate for
    `host` from the ephemeral CA. ALPN is http/1.1 on both sides."""

    side: Side
    host: str
    received: bytes = b""
    """What the client sent already (its ClientHello): the handshake starts with these bytes."""


@dataclass(frozen=True, slots=True)
class StartTimer:
    timer: Timer


@dataclass(frozen=True, slots=True)
class StopTimer:
    timer: Timer


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruled:
    """One record: what was asked for and what came of it. A kept-alive proxy connection may have several."""

    host: str
    port: int
    ruling: Ruling
    why: str
    """A clause for people, bounded, printable: "granted by *.example.com"."""
    grants: tuple[str, ...] = ()
    """Of a refusal: the patterns that an operator would have to grant; empty where no grant changes it."""


Command = (
    Resolve | Dial | SendClient | SendUpstream | HalfClose | CloseUpstream | CloseAll | Relay | StartTls | StartTimer
    | StopTimer | Ruled
)  # fmt: skip
