"""What a guest's host calls come to: answered here, outside its jail, for exactly what its plan grants.

Rules: the worker that carries a call is not trusted, so names and operations were checked against the plan before they
come here, and are only ever looked up in it; each call has the time the guest has left; a failure is a number to the
guest and a line in our log, never a sentence it could learn from. Every call is noted: operation, name, bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from palyra.canon import Json, digest
from palyra.engine.guest_http import of_granted, read_request, write_answer
from palyra.engine.ports import Ports
from palyra.engine.trip import Trip
from palyra.errors import Reason, Rejected, StateError
from palyra.inside.wasm import abi
from palyra.inside.wasm.guest import Refused
from palyra.inside.wasm.surface import check_key
from palyra.model.credential import Credential
from palyra.model.fetch import FetchFailed, FetchUrl
from palyra.model.outcome import Connection
from palyra.model.wasm import HostAnswer, WasmPlan
from palyra.redact.stream import Redactor

log = logging.getLogger("palyra.guest")

LEVELS = (logging.DEBUG, logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
MAX_CHANNEL_BYTES = 1 << 20
MAX_NOTED = 256
_REFUSED = HostAnswer(number=abi.NOT_GRANTED)
_NUMBERS: Mapping[Reason | None, int] = {
    Reason.BAD_ARGUMENTS: abi.BAD_ARGUMENT,
    Reason.QUOTA_EXCEEDED: abi.TOO_LARGE,
}


class HostCalls:
    """One guest call's. `answer` is what the guests port calls back."""

    def __init__(self, trip: Trip, plan: WasmPlan, ports: Ports) -> None:
        self._trip, self._plan, self._ports = trip, plan, ports
        self._noted: list[list[Json]] = []
        self._counts: Counter[str] = Counter()
        self._calls = self._bytes = 0
        self._sent: dict[str, bytearray] = {}
        self._connections: list[Connection] = []

    async def answer(self, operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        self._note(operation, name, len(payload))
        if self._calls > self._plan.wasm.host_calls or self._bytes > self._plan.wasm.host_bytes:
            return HostAnswer(number=abi.TOO_LARGE)  # the worker counts too, and is not trusted to
        try:
            async with asyncio.timeout(left_s):
                return await self._answer(operation, name, payload, left_s)
        except Refused as refusal:
            return HostAnswer(number=refusal.number)
        except (Rejected, StateError, FetchFailed) as error:
            log.info("call %s: %s of %s: %s", self._trip.call_id, operation, name, error)
            return HostAnswer(number=_NUMBERS.get(getattr(error, "reason", None), abi.FAILED))
        except TimeoutError:
            log.info("call %s: %s of %s took all of the guest's time", self._trip.call_id, operation, name)
            return HostAnswer(number=abi.FAILED)

    async def _answer(self, operation: str, name: str, payload: bytes, left_s: float) -> HostAnswer:
        match operation:
            case "log":
                self._log(name, payload)
                return HostAnswer()
            case "channel-send":
                return self._send(name, payload)
            case "storage-get" | "storage-put" | "storage-list" | "storage-delete":
                return await self._storage(operation, name, payload)
            case "secret-get":
                return self._secret(name)
            case "http-fetch":
                return await self._fetch(name, payload, left_s)
        return _REFUSED

    def connections(self) -> tuple[Connection, ...]:
        return tuple(self._connections)

    def record(self) -> dict[str, Json]:
        """For the records: how often, and a digest over the list of them."""
        return {"counts": dict(sorted(self._counts.items())), "list_sha256": digest(self._noted)}

    def sent(self, secrets: Sequence[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        return [(name, _redacted(bytes(data), secrets)) for name, data in sorted(self._sent.items())]

    def _note(self, operation: str, name: str, count: int) -> None:
        self._counts[operation] += 1
        self._calls, self._bytes = self._calls + 1, self._bytes + count
        if len(self._noted) < MAX_NOTED:
            self._noted.append([operation, name, count])

    def _log(self, level: str, payload: bytes) -> None:
        text = _redacted(payload, self._ports.secrets.known_values(self._trip.run.run_id))
        said = text.decode("utf-8", "replace").encode("unicode_escape").decode("ascii")  # no line or colour of its own
        log.log(LEVELS[int(level)], "%s %s: %s", self._plan.skill_id or "inline", self._trip.call_id, said)

    def _send(self, name: str, payload: bytes) -> HostAnswer:
        kept = self._sent.setdefault(name, bytearray())
        if len(kept) + len(payload) + 1 > MAX_CHANNEL_BYTES:
            return HostAnswer(number=abi.TOO_LARGE)
        kept += payload + b"\n"
        return HostAnswer()

    def _secret(self, name: str) -> HostAnswer:
        """Only of a secret whose raw value was granted; redaction knows it, because the vault does."""
        principal = str(self._trip.run.context.principal)
        value = self._ports.secrets.value(name, principal=principal, tool=self._plan.tool_id)
        return _REFUSED if value is None else HostAnswer(body=value)

    async def _fetch(self, host: str, payload: bytes, left_s: float) -> HostAnswer:
        if self._trip.run.grant.block_all:
            return _REFUSED
        order = read_request(host, payload, left_s=left_s)
        try:
            fetched = await self._ports.fetcher.fetch(order, of_granted(self._plan.grants.secrets, self._credentials))
        except FetchFailed as failure:
            self._connections += failure.connections
            raise
        self._connections += fetched.connections
        return HostAnswer(body=write_answer(fetched))

    def _credentials(self, url: FetchUrl) -> Sequence[Credential]:
        who = {"principal": str(self._trip.run.context.principal), "tool": self._plan.tool_id}
        return self._ports.secrets.credentials(url.host, url.port, encrypted=url.encrypted, **who)

    async def _storage(self, operation: str, prefix: str, payload: bytes) -> HostAnswer:
        """A space of the skill's own: its id and the granted prefix stand before every key."""
        storage, skill = self._ports.guest_storage, self._plan.skill_id
        key, _, value = payload.partition(b"\0")
        text = key.decode("ascii", "replace")
        if key or operation != "storage-list":
            check_key(text)
        name = f"{prefix}/{text}"
        match operation:
            case "storage-get":
                found = await storage.get(skill, name)
                return HostAnswer(number=abi.ABSENT) if found is None else HostAnswer(body=found)
            case "storage-put":
                await storage.put(skill, name, value)
            case "storage-delete":
                await storage.delete(skill, name)
            case "storage-list":
                keys = await storage.list(skill, name)
                return HostAnswer(body="\n".join(key.removeprefix(f"{prefix}/") for key in keys).encode())
        return HostAnswer()


def _redacted(data: bytes, secrets: Sequence[tuple[str, bytes]]) -> bytes:
    redactor = Redactor(secrets)
    return redactor.feed(data) + redactor.finish()
