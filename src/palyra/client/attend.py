"""A call with a person or a program at this end: its output as it comes, our stdin, and questions to who sits here.

Used by `palyra run` and `palyra call` where a daemon is up. Rules: stdin is read when the program wants more and not
before; output goes on as fast as it is taken, and the program waits meanwhile; `cancel` may be called from a signal
handler, and the outcome still comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import orjson

from palyra.canon import Json
from palyra.client.remote import Daemon, OnOutput
from palyra.client.wire import Unreachable
from palyra.client.words import events, loads, outcome_of, output_of, refused
from palyra.errors import PalyraError
from palyra.model.outcome import Outcome

ReadStdin = Callable[[], bytes]
"""One more piece, waited for; b"" at the end."""
Ask = Callable[[Mapping[str, Any]], bool | None]
"""Shows a person what is asked; yes, no, or no answer."""


class AttendedCall:
    def __init__(
        self,
        daemon: Daemon,
        body: Mapping[str, Json],
        *,
        on_output: OnOutput,
        read_stdin: ReadStdin | None = None,
        ask: Ask | None = None,
    ) -> None:
        self._daemon = daemon
        self._body = {**body, "stream_stdin": read_stdin is not None, "confirm": ask is not None}
        self._path = f"/v1/calls/{body['call_id']}"
        self._on_output = on_output
        self._read_stdin = read_stdin
        self._ask = ask
        self._wanted = threading.Semaphore(0)
        self._feeding: threading.Thread | None = None

    def run(self) -> Outcome:
        line = self._daemon.line()
        headers = {**self._daemon.headers, "Accept": "text/event-stream"}
        try:
            reply = line.ask("POST", "/v1/calls", headers=headers, body=orjson.dumps(self._body))
            if reply.status != 200:
                raise refused(reply.status, loads(reply.read()))
            for name, data in events(reply.lines()):
                if name == "outcome":
                    return outcome_of(loads(data))
                self._heard(name, data)
        finally:
            line.close()
        raise Unreachable("The daemon went away before the call ended.")

    def _heard(self, name: str, data: bytes) -> None:
        match name:
            case "output":
                self._on_output(*output_of(data))
            case "stdin":
                self._feed_more()
            case "confirm" if self._ask is not None:
                asking = threading.Thread(
                    target=self._answer, args=(self._ask, loads(data)), name="palyra-ask", daemon=True
                )
                asking.start()

    def _answer(self, ask: Ask, asked: Mapping[str, Any]) -> None:
        """Beside the events: an interrupt, and what somebody else decides meanwhile, must still come through."""
        answer = None
        try:
            answer = ask(asked)
        finally:
            with suppress(PalyraError):  # it has ended, or was decided elsewhere
                self._daemon.ask_for("POST", f"{self._path}/answer", {"answer": answer})

    def cancel(self) -> None:
        """Asks for the end and does not wait for it; the outcome comes as always."""
        threading.Thread(target=self._cancel, name="palyra-cancel", daemon=True).start()

    def _cancel(self) -> None:
        with suppress(PalyraError):
            Daemon.ask(self._daemon, "POST", f"{self._path}/cancel")

    # ── stdin, on a thread of its own: it may block for ever ──

    def _feed_more(self) -> None:
        self._wanted.release()
        if self._feeding is None:
            self._feeding = threading.Thread(target=self._feed, name="palyra-stdin", daemon=True)
            self._feeding.start()

    def _feed(self) -> None:
        line = self._daemon.line()
        with suppress(PalyraError, OSError):  # the call has ended: nobody wants the rest
            line.ask("POST", f"{self._path}/stdin", headers=self._daemon.headers, chunks=self._pieces()).read()
        line.close()

    def _pieces(self) -> Iterator[bytes]:
        assert self._read_stdin is not None, "the daemon wants what was offered"
        while True:
            self._wanted.acquire()
            piece = self._read_stdin()
            if not piece:
                return
            yield piece
