"""Fakes for what goes out over the network and what must not: secrets and their credentials. No disk, no socket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace

from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchOrder, FetchUrl
from palyra.values import dataclass


@dataclass
class FakeSecrets:
    values: tuple[tuple[str, bytes], ...] = ()
    held: tuple[Credential, ...] = ()
    asked: list[tuple[str, int, str, str]] = field(default_factory=list)

    def known_values(self, run_id: str) -> Sequence[tuple[str, bytes]]:
        return self.values

    def value(self, name: str, *, principal: str, tool: str) -> bytes | None:
        return dict(self.values).get(name)

    def bound(self, *, principal: str, tool: str) -> Sequence[Credential]:
        return self.held

    def credentials(self, host: str, port: int, *, encrypted: bool, principal: str, tool: str) -> Sequence[Credential]:
        self.asked.append((host, port, principal, tool))
        return tuple(one for one in self.held if one.host == host)


@dataclass
class FakeFetcher:
    """A canned answer, or a failure. `orders` are those it was given, `sent` the credentials that went along."""

    answer: Fetched = field(default_factory=lambda: Fetched(status=200, url="", headers=(), body=b""))
    failure: Exception | None = None
    orders: list[FetchOrder] = field(default_factory=list)
    sent: list[Credential] = field(default_factory=list)

    async def fetch(self, order: FetchOrder, credentials: Callable[[FetchUrl], Sequence[Credential]]) -> Fetched:
        self.orders.append(order)
        self.sent += credentials(order.url)
        if self.failure is not None:
            raise self.failure
        return self.answer if self.answer.url else replace(self.answer, url=str(order.url))
