"""Credentials that are added to requests outside the sandbox, so that no program inside ever holds them.

Rules: a credential goes to the host the connection was judged for and pinned to, never to one that only a Host header
names, and so never along a redirect. The program's own field of that name is taken away, in every spelling that a
gateway may confuse with it. A pattern without a port means the encrypted port alone: a program must not be able to
have a token sent in the clear by asking for http. The value shows in no repr.

Not here: where values come from (the vault), ending TLS so that there is a head to add to (egress/server).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field

from palyra.egress.grammar import Target
from palyra.egress.http import Fields
from palyra.egress.rules import judge_host
from palyra.errors import ConfigError
from palyra.model.net import EgressMode, HostPattern, NetGrant
from palyra.values import dataclass

MAX_VALUE = 8192
_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,63}")
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_NOT_OURS = frozenset({
    *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect", "keep-alive"),
    *("http2-settings", "date", "via", "range"),
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    pattern: HostPattern
    """With a port: on that port, encrypted or not. Without: on 443, encrypted."""
    header: str
    value: str = field(repr=False)

    def __post_init__(self) -> None:
        name = self.header.lower()
        if not _HEADER.fullmatch(self.header) or name in _NOT_OURS or name.startswith(("proxy-", "sec-")):
            raise ConfigError(
                f"{self.header!r} is not a header that can carry a credential.", "Use Authorization or X-…."
            )
        if len(self.value) > MAX_VALUE or not _VALUE.fullmatch(self.value):
            raise ConfigError(
                f"The value for {self.header} at {self.pattern} is empty, too long, or not printable ASCII.",
                "Store it again with `palyra secrets set`, without surrounding line breaks.",
            )

    def is_for(self, target: Target, *, is_tls: bool) -> bool:
        if self.pattern.port is None and not (is_tls and target.port == 443):
            return False
        own = NetGrant(EgressMode.STRICT, (self.pattern,))
        return judge_host(own, target.host, target.port).allowed


def add_credentials(fields: Fields, credentials: Sequence[Credential], target: Target, *, is_tls: bool) -> Fields:
    """The fields to send to `target`, with what belongs to it and without what the program put in its place."""
    ours = [one for one in credentials if one.is_for(target, is_tls=is_tls)]
    taken = {_folded(one.header) for one in ours}
    kept = tuple((name, value) for name, value in fields if _folded(name) not in taken)
    return (*kept, *((one.header, one.value) for one in ours))


def _folded(name: str) -> str:
    return name.lower().replace("_", "-")
