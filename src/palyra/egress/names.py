"""Names that were granted, each with an address of its own that exists only inside the sandbox.

Rules: the addresses are the face's (model/face), IPv4 only: one family is enough to say which name was meant, and an
AAAA question gets an empty answer, so programs go on with A. Exact names have theirs from the start; a name below a
granted suffix takes the next spare one when it is first asked for, until there is none left. Nothing is ever taken
back: a name keeps its address for the whole call, and an address that stands for no name stands for itself.

Not here: choosing the addresses (egress/face), DNS messages (egress/dns), where a name leads (egress/conversation).
"""

from __future__ import annotations

from ipaddress import IPv4Address

from palyra.egress.hosts import Address, embedded, parse_host, read_address
from palyra.egress.rules import judge_host
from palyra.errors import Rejected
from palyra.model.face import NetFace
from palyra.model.net import NetGrant


class NameTable:
    """Granted name ↔ synthetic address, for one call. Grows until the spare addresses are gone, never shrinks."""

    def __init__(self, grant: NetGrant, face: NetFace) -> None:
        self._grant = grant
        self._spare = [IPv4Address(text) for text in reversed(face.spare)]
        self._addresses = {name: IPv4Address(text) for name, text in face.names}
        self._names = {address: name for name, address in self._addresses.items()}

    def address_of(self, host: str) -> IPv4Address | None:
        """The name's address; None when no port of it is granted, it is an address, or no spare one is left."""
        try:
            name = parse_host(host)
        except Rejected:
            return None
        known = self._addresses.get(name)
        if known is not None or not self._spare:
            return known
        if read_address(name) is not None or not judge_host(self._grant, name, None).allowed:
            return None
        address = self._spare.pop()
        self._addresses[name], self._names[address] = address, name
        return address

    def name_of(self, address: Address) -> str | None:
        real = embedded(address)
        return self._names.get(real) if isinstance(real, IPv4Address) else None

    def grants(self, host: str) -> bool:
        """Whether some port of the name is granted, with or without an address left for it."""
        return judge_host(self._grant, host, None).allowed
