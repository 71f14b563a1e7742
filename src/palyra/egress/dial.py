"""Names to addresses and addresses to connections, outside the sandbox. The only hands that reach the network.

Rules: a name is looked up once and what comes back is judged by whoever asked (egress/rules); `connect` takes an
address, never a name, so nothing can lead elsewhere between the two. Lookups run in a few threads with a deadline, and
names of one domain have a quarter of them: a name server that is dead, or slow on purpose, delays whoever asks for its
own names, and nobody waits for it at the end. The operator's table (`[egress] resolve`)
stands before the system's resolver, for air-gapped registries and tests; its addresses are judged like any others, so a
private one must be granted too.

Not here: who may be reached (egress/rules), what is said over a connection (egress/conversation).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Mapping

from palyra.egress.hosts import Address, read_address

RESOLVE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 15.0
MAX_ADDRESSES = 16
_MAX_LOOKUPS = 32
"""At once, in this process. A name server that is dead keeps a thread until the resolver gives up."""
_MAX_OF_DOMAIN = 8
"""Of those, for names of one domain; others of it wait for their turn. A program that was granted `*.slow.test` would
otherwise keep every other call from looking anything up."""


class LookupFailed(OSError):
    """The name has no address; the words say why."""

    def __init__(self, why: str) -> None:
        super().__init__(0, why)


class Dialer:
    """`table`: the operator's own answers, by canonical name."""

    def __init__(self, table: Mapping[str, tuple[Address, ...]] | None = None) -> None:
        self._table = dict(table or {})
        self._lookups = 0
        self._domains: dict[str, _Domain] = {}

    async def resolve(self, host: str) -> tuple[Address, ...]:
        """Every address of both families, in the resolver's order. Raises LookupFailed."""
        literal = read_address(host)
        if literal is not None:
            return (literal,)
        if host in self._table:
            return self._table[host]
        try:
            async with asyncio.timeout(RESOLVE_TIMEOUT_S):
                return await self._look_up(host)
        except TimeoutError:
            raise LookupFailed("the name server did not answer in time") from None

    async def _look_up(self, host: str) -> tuple[Address, ...]:
        domain = self._domains.setdefault(_domain_of(host), _Domain())
        domain.users += 1
        try:
            await domain.turns.acquire()
        except asyncio.CancelledError:
            self._leave(host, domain)
            raise
        if self._lookups >= _MAX_LOOKUPS:
            domain.turns.release()
            self._leave(host, domain)
            raise LookupFailed("too many names are being looked up")
        addresses = [address for text in await self._begin(host, domain) if (address := read_address(text)) is not None]
        return tuple(dict.fromkeys(addresses))[:MAX_ADDRESSES]

    def _begin(self, host: str, domain: _Domain) -> asyncio.Future[list[str]]:
        """In a thread of its own, whose turn lasts until it is done, whether or not anybody still waits for it."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[str]] = loop.create_future()

        def settle(result: list[str] | OSError) -> None:
            self._lookups -= 1
            domain.turns.release()
            self._leave(host, domain)
            if found.done():
                return
            if isinstance(result, OSError):
                found.set_exception(LookupFailed("the name could not be looked up"))
            else:
                found.set_result(result)

        def work() -> None:
            result = _getaddrinfo(host)
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile, and with it whoever asked
                loop.call_soon_threadsafe(settle, result)

        self._lookups += 1
        try:
            threading.Thread(target=work, name="palyra-lookup", daemon=True).start()
        except RuntimeError:  # no thread is to be had
            settle(OSError(0, "no thread"))
        return found

    def _leave(self, host: str, domain: _Domain) -> None:
        domain.users -= 1
        if not domain.users:
            self._domains.pop(_domain_of(host), None)

    async def connect(self, address: Address, port: int) -> socket.socket:
        """A non-blocking socket, connected. Raises OSError, also when it takes too long."""
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(made, (str(address), port))
        except TimeoutError as error:
            made.close()
            raise OSError(0, "the host did not answer in time") from error
        except OSError as error:  # in the kernel's words: asyncio's name the address, which is no program's business
            made.close()
            raise OSError(error.errno, os.strerror(error.errno or 0)) from error
        except BaseException:
            made.close()
            raise
        return made


class _Domain:
    """Who looks names of one domain up, or waits to."""

    __slots__ = ("turns", "users")

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(_MAX_OF_DOMAIN)
        self.users = 0


def _domain_of(host: str) -> str:
    """What its names have one owner by, as far as their letters tell: `a.b.example.com` and `example.co.uk`."""
    labels = host.split(".")
    is_registry = len(labels) > 2 and len(labels[-1]) == 2 and len(labels[-2]) <= 3
    return ".".join(labels[-3:] if is_registry else labels[-2:])


def _getaddrinfo(host: str) -> list[str] | OSError:
    """As every other program of this host would: /etc/hosts, then its name servers."""
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except OSError as error:
        return error
    except UnicodeError:
        return OSError(0, "this is not a host name")
