"""The way to a host: granted, looked up once, every address judged, the first that connects pinned.

Rules: a name is looked up once a connection, and all of the answer must be allowed or none of it is used; what is
dialled is an address of that answer, so a second answer for the same name changes nothing. An address that was granted
as such is dialled as it is.

Not here: looking up and connecting (egress/dial).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from palyra.egress.events import Dial, Resolve
from palyra.egress.grammar import Target
from palyra.egress.hosts import Address, embedded, read_address
from palyra.egress.rules import judge_answer, judge_host
from palyra.egress.terms import Broken, Refused, Terms

MAX_TRIES = 4


class Way:
    def __init__(self, terms: Terms, target: Target, then: Callable[[], bool]) -> None:
        self._terms = terms
        self._left: list[Address] = []
        self.target = target
        self.then = then
        """What the conversation does once it is open."""
        self.why = Way.check(terms, target)

    @staticmethod
    def check(terms: Terms, target: Target) -> str:
        """Why it is granted. Raises `Refused`."""
        verdict = judge_host(terms.grant, target.host, target.port)
        if not verdict.allowed:
            told = f"{verdict.why}: allow it with --allow-host {target} or allowed_egress_hosts"
            raise Refused(target, verdict.why, told=told, grants=tuple(map(str, verdict.needs)))
        return verdict.why

    def begin(self) -> Resolve | Dial:
        address = read_address(self.target.host)
        return Resolve(self.target.host) if address is None else self._dial(address)

    def resolved(self, addresses: Sequence[Address]) -> Dial:
        """Raises `Refused` when one of them may not be reached."""
        target = self.target
        if not addresses:
            raise Broken(f"{target.host} has no address")
        verdict = judge_answer(self._terms.grant, addresses, target.port, name=target.host)
        if not verdict.allowed:
            told = f"{target.host} leads to an address that is not granted"
            raise Refused(target, verdict.why, told=told, grants=tuple(map(str, verdict.needs)))
        self._left = list(dict.fromkeys(embedded(one) for one in addresses))[:MAX_TRIES]
        return self._dial(self._left.pop(0))

    def failed(self, why: str) -> Dial:
        """The next address. Raises `Broken` when there is none."""
        if not self._left:
            raise Broken(f"{self.target} could not be reached: {why}")
        return self._dial(self._left.pop(0))

    def _dial(self, address: Address) -> Dial:
        return Dial(address=address, port=self.target.port, host=self.target.host)
