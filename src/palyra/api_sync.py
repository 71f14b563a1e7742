"""The sync face: `Palyra` and `SyncRun`, for code without an event loop and for any thread, also beside a running loop.

Rules: the same engine and the same pipeline as the async face, on one permanent thread of its own, because a sandbox
dies with the thread that started it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from palyra.api_approvals import Approvals
from palyra.api_async import DEFAULT_PRINCIPAL, NOT_OPEN, AsyncPalyra, AsyncRun
from palyra.api_thread import LoopThread
from palyra.canon import Json
from palyra.errors import PalyraError
from palyra.model.options import CallOptions, Gift, RunOptions
from palyra.model.outcome import Outcome
from palyra.values import dataclass
from palyra.wiring.embedded import Installation
from palyra.wiring.runs import RunView

if TYPE_CHECKING:
    from palyra.client.remote import RemotePalyra


@dataclass(frozen=True, slots=True)
class SyncRun:
    """Calls that share a principal, a workspace and a budget; `with` ends the run with its block."""

    _run: AsyncRun
    _thread: LoopThread

    def __repr__(self) -> str:
        return repr(self._run).replace("AsyncRun", "SyncRun", 1)

    @property
    def run_id(self) -> str:
        return self._run.run_id

    def call(
        self, tool: str, input: Mapping[str, Json] | bytes | None = None, **options: Unpack[CallOptions]
    ) -> Outcome:
        """One call to its end: an outcome for everything that can happen to it. Options as `AsyncRun.call` has them."""
        return self._thread.wait_for(self._run.call(tool, input, **options))

    def submit(
        self, tool: str, input: Mapping[str, Json] | bytes | None = None, **options: Unpack[CallOptions]
    ) -> Future[Outcome]:
        """The same without waiting, for code with an event loop of its own: `await asyncio.wrap_future(…)`."""
        return self._thread.submit(self._run.call(tool, input, **options))

    @property
    def workspace(self) -> str:
        return self._run.run.workspace

    def beside(self) -> SyncRun:
        """Another run of the same principal in the same workspace: its calls do not wait for this one's to end."""
        installation = self._run._installation
        run = replace(self._run.run, run_id=installation.ports.ids.ulid())
        return SyncRun(AsyncRun(run, installation), self._thread)

    def end(self) -> None:
        """Cancel what is under way in this run and end the background processes it owns. Detached ones go on."""
        self._thread.wait_for(self._run.end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


class Palyra:
    """The sync face. `Palyra.open()` in a `with` block; safe to use from several threads."""

    def __init__(
        self, home: str | os.PathLike[str] | None = None, config: str | os.PathLike[str] | None = None
    ) -> None:
        self._inner = AsyncPalyra(home, config)
        self._thread: LoopThread | None = None

    @classmethod
    def open(cls, home: str | os.PathLike[str] | None = None, *, config: str | os.PathLike[str] | None = None) -> Self:
        """Open a home: `home`, else $PALYRA_HOME, else below the XDG data folder. `with` closes it."""
        return cls(home, config).start()

    @staticmethod
    def connect(url: str, *, token: str | None = None, ca_file: str | None = None) -> RemotePalyra:
        """A daemon at `http://HOST:PORT` or `unix:PATH`, with the same face; `ca_file`: whom to trust over TLS."""
        from palyra.client.remote import RemotePalyra

        return RemotePalyra(url, token=token, ca_file=ca_file)

    def start(self) -> Self:
        if self._thread is None:
            self._thread = LoopThread()
            try:
                self._thread.wait_for(self._inner.start())
            except BaseException:
                self._thread.stop()
                self._thread = None
                raise
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._thread is not None:
            self._thread.wait_for(self._inner.close())
            self._thread.stop()
            self._thread = None

    def run(
        self,
        principal: str = DEFAULT_PRINCIPAL,
        workspace: str | os.PathLike[str] = ".",
        **options: Unpack[RunOptions],
    ) -> SyncRun:
        """Who asks, and the one folder that may be written. Options as `AsyncPalyra.run` has them."""
        thread = self._opened()
        return SyncRun(self._inner.run(principal, workspace, **options), thread)

    def tools(self, principal: str | None = None) -> list[dict[str, Json]]:
        """Every tool, or those that this principal could ever be allowed to call."""
        return self._inner.tools(principal)

    def extend_run(self, run_id: str, *, by: str, **gift: Unpack[Gift]) -> RunView:
        """`by` a person: `calls`, `attempts`, `more` (a Spending) on top of the limits there are."""
        return self._opened().wait_for(self._inner.runs.extend(run_id, by=by, **gift))

    @property
    def approvals(self) -> Approvals:
        """What waits for a person, and the grants: for the operator's code, never for an agent's."""
        return Approvals(self._inner.approvals, self._opened().wait_for)

    @property
    def installation(self) -> Installation:
        return self._inner.installation

    def _opened(self) -> LoopThread:
        if self._thread is None:
            raise PalyraError(NOT_OPEN)
        return self._thread
