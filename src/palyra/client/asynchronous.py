"""The same face with await: each request on a thread of a small pool, because it waits and does nothing else.

Cancelling an awaited call cancels it in the daemon, and its record is closed there, as in the library. What comes out
of a program is given to the caller's own code on the caller's loop, and the thread waits for that: what it raises ends
the call and is raised there, and who is slow holds the program up, not the memory.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from palyra.canon import Json
from palyra.client.remote import OnOutput, RemotePalyra, RemoteRun
from palyra.errors import PalyraError
from palyra.model.options import RemoteCallOptions, RunOptions
from palyra.model.outcome import Outcome, StreamName
from palyra.wiring.clock import SystemClock, SystemIds

T = TypeVar("T")
LINES_AT_ONCE = 64
_LOOK_AGAIN_S = 1.0


class AsyncRemoteRun:
    def __init__(self, inner: RemoteRun, pool: ThreadPoolExecutor) -> None:
        self._inner = inner
        self._pool = pool

    @property
    def run_id(self) -> str:
        return self._inner.run_id

    async def call(
        self,
        tool: str,
        input: Mapping[str, Json] | bytes | None = None,
        *,
        call_id: str | None = None,
        on_output: OnOutput | None = None,
        **options: Unpack[RemoteCallOptions],
    ) -> Outcome:
        call_id = call_id or _IDS.ulid()
        told = None if on_output is None else partial(_tell, asyncio.get_running_loop(), on_output)
        work = partial(self._inner.call, tool, input, call_id=call_id, on_output=told, **options)
        try:
            return await _on(self._pool, work)
        except asyncio.CancelledError:
            with suppress(PalyraError):
                await asyncio.shield(_on(self._pool, partial(self._inner.cancel, call_id)))
            raise

    async def cancel(self, call_id: str) -> bool:
        return await _on(self._pool, partial(self._inner.cancel, call_id))

    async def end(self) -> None:
        await _on(self._pool, self._inner.end)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.end()


class AsyncRemotePalyra:
    def __init__(self, url: str, *, token: str | None = None, ca_file: str | None = None) -> None:
        self._inner = RemotePalyra(url, token=token, ca_file=ca_file)
        self._pool = ThreadPoolExecutor(LINES_AT_ONCE, thread_name_prefix="palyra-client")

    async def start(self) -> Self:
        return self

    def __await__(self) -> Generator[Any, None, Self]:
        return self.start().__await__()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._inner.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def run(
        self, principal: str | None = None, workspace: str | os.PathLike[str] = "", **options: Unpack[RunOptions]
    ) -> AsyncRemoteRun:
        """Options as `AsyncPalyra.run` has them."""
        return AsyncRemoteRun(self._inner.run(principal, workspace, **options), self._pool)

    async def tools(self) -> list[dict[str, Json]]:
        return await _on(self._pool, self._inner.tools)


def _tell(loop: asyncio.AbstractEventLoop, on_output: OnOutput, stream: StreamName, chunk: bytes) -> None:
    told: Future[None] = Future()

    def tell() -> None:
        try:
            on_output(stream, chunk)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the caller's
            told.set_exception(error)
        else:
            told.set_result(None)

    loop.call_soon_threadsafe(tell)
    while not wait([told], _LOOK_AGAIN_S).done:
        if loop.is_closed():  # with nobody left to tell, and nobody to wait for
            raise RuntimeError("The event loop of this call was closed.")
    told.result()


async def _on(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)


_IDS = SystemIds(SystemClock())
