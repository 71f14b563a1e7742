"""A program's output on its way out: redacted as it comes, kept, and handed on.

Raw bytes are seen by nobody else: the executor feeds this sink, and only what the redactor let pass is kept,
streamed, digested and returned.

Not here: quotas and deadlines (launch), what a model sees of a large output (protocol/projection).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from palyra.canon import Json
from palyra.model.net import RAW
from palyra.model.outcome import Connection, Execution, Status, StreamName
from palyra.model.plan import ProcessPlan
from palyra.redact.values import redact_json

if TYPE_CHECKING:
    from palyra.engine.trip import Trip
    from palyra.redact.both import BothStreams

_STREAMS = tuple(StreamName)
_NAMED = tuple((stream, stream.value) for stream in _STREAMS)
OnOutput = Callable[[StreamName, bytes], None]


@runtime_checkable
class Paced(Protocol):
    """What an `on_output` that cannot always take more has beside its call."""

    def room(self, stream: StreamName) -> asyncio.Future[None] | None:
        """Done when more of this stream may come; None when it may come now."""


class Collector:
    """The sink of one call. `finish` must be called once, when no more will come."""

    def __init__(
        self, secrets: Sequence[tuple[str, bytes]], on_output: OnOutput | None = None, *, lagging: bool = False
    ) -> None:
        self._secrets = secrets
        self._lagging = lagging or on_output is None
        self._redacting: BothStreams | None = None
        """From the first byte on: many programs say nothing."""
        self._kept: dict[StreamName, list[bytes]] = {}
        self._on_output = on_output
        pacing: object = on_output
        # Asking a Protocol is slow, and most calls stream to nobody.
        self._pacing = pacing if pacing is not None and isinstance(pacing, Paced) else None
        self.fed = dict.fromkeys(_STREAMS, 0)
        """Bytes that came, before redaction."""
        self.connections: tuple[Connection, ...] = ()
        self.while_running: Callable[[], None] | None = None
        """Work for when the program runs and nobody else's does."""
        self.own_bytes = 0
        """Of stderr, that were not the program's."""

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self.fed[stream] += len(chunk)
        if self._redacting is None:
            from palyra.redact.both import BothStreams

            self._redacting = BothStreams(self._secrets, lagging=self._lagging)
        self._keep(stream, self._redacting.feed(stream, chunk))

    def room(self, stream: StreamName) -> asyncio.Future[None] | None:
        return self._pacing.room(stream) if self._pacing is not None else None

    def reached(self, connections: Sequence[Connection]) -> None:
        self.connections = tuple(connections)

    def finish(self, status: Status) -> None:
        """A program that was ended midway may have been writing a secret: what is undecided is then not shown."""
        redacting = self._redacting
        if redacting is None:
            return
        for stream, clean in redacting.finish() if status is Status.COMPLETED else redacting.cut():
            self._keep(stream, clean)

    def _keep(self, stream: StreamName, clean: bytes) -> None:
        if clean:
            self._kept.setdefault(stream, []).append(clean)
            if self._on_output is not None:
                self._on_output(stream, clean)

    def bytes_of(self, stream: StreamName) -> bytes:
        return b"".join(self._kept.get(stream, ()))

    def clean(self, value: Json) -> Json:
        """Names that a program chose reach who called it, too: of hosts it looked up, of files it made."""
        return redact_json(value, self._secrets) if value else value

    def extra(self) -> dict[str, Json]:
        """What this sink has to add to the output, at the end."""
        return {}

    @property
    def redactions(self) -> Mapping[str, int]:
        return self._redacting.counts if self._redacting is not None else {}


def process_output(plan: ProcessPlan, execution: Execution, collector: Collector) -> dict[str, Json]:
    """The `output` object of a process (contracts.md)."""
    output: dict[str, Json] = {"exit_code": execution.exit_code, "signal": execution.signal}
    replaced = False
    for stream, name in _NAMED:
        data = collector.bytes_of(stream)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text, replaced = data.decode("utf-8", "replace"), True
        output[name] = text
    output |= {
        "stdout_bytes": execution.stdout_bytes,
        "stderr_bytes": execution.stderr_bytes - collector.own_bytes,
        "truncated": execution.truncated,
        "tier": plan.tier.value,
        "backend": plan.backend,
        "egress": plan.net.as_json() | {"connections": collector.clean([*map(_connection, execution.connections)])},
    }
    if replaced:
        output["encoding"] = "utf-8-replaced"
    if execution.ran is not None:
        output["node"] = execution.ran.as_json()
    if execution.stdin_sha256 is not None:
        output |= {"stdin_bytes": execution.stdin_bytes, "stdin_sha256": execution.stdin_sha256}
    return output | collector.extra()


def _connection(connection: object) -> dict[str, Json]:
    return {name: getattr(connection, name) for name in ("host", "port", "verdict", "bytes_up", "bytes_down")}


def _unreachable_hint(connections: Sequence[Connection]) -> str | None:
    failed = next((one for one in connections if one.verdict == "failed" and one.host != "*"), None)
    if failed is None or any(one.verdict == "allowed" for one in connections):
        return None
    name = f"[{failed.host}]" if ":" in failed.host else failed.host
    return f"{name}:{failed.port} is granted, but could not be reached: check the name and this machine's network."


def failed_hint(trip: Trip, plan: ProcessPlan, execution: Execution, collector: Collector) -> str | None:
    """What most likely made a program fail, where that was done to it here."""
    hint = refused_hosts_hint(execution.connections)
    stderr = collector.bytes_of(StreamName.STDERR) if hint is None else b""
    if not stderr or trip.sights is None:
        return hint
    from palyra.engine.closed_hint import closed_hint
    from palyra.engine.said_hint import said_hint, unread_hint

    hint = closed_hint(plan.closed, stderr, workspace=trip.sights.workspace.path, cwd=plan.cwd)
    if hint is not None or execution.reason is not None:  # a limit that ended it has a remedy of its own
        return hint
    hint = said_hint(stderr, plan.net, plan.limits) or _nobody_hint(plan, trip.sights.workspace.owner_uid, stderr)
    if hint or trip.process is None or trip.facts is None or trip.facts.interpreter or trip.facts.runs_code:
        return hint
    return unread_hint(trip.process.args, stderr)


def _nobody_hint(plan: ProcessPlan, owner_uid: int, stderr: bytes) -> str | None:
    """For a program of tier B that a root engine runs as nobody, because the workspace is root's."""
    if plan.run_as is None or owner_uid != 0 or b"Permission denied" not in stderr:
        return None
    from palyra.sandbox.backend import KEEP_ROOT

    return f"In tier B a program runs as nobody in a workspace of root's. An operator can {KEEP_ROOT}."


def refused_hosts_hint(connections: Sequence[Connection]) -> str | None:
    """For a program that failed after a host was refused to it, or did not answer: most likely that is why."""
    denied = [one for one in connections if one.verdict == "denied" and one.host != "*"]
    if not denied:
        return _unreachable_hint(connections)
    first = denied[0]
    name = f"[{first.host}]" if ":" in first.host else first.host
    port = "" if first.port in (0, 53, 80, 443) else f":{first.port}"
    others = len({one.host for one in denied}) - 1
    more = f", and {others} more (egress.connections in the output)" if others else ""
    why = f" ({first.why})" if first.why else ""
    said = f"{name}{port} was refused{why}{more}."
    if not first.grants:
        return said
    flags, setting = grant_spellings(first.grants)
    return (
        f"{said} An operator can allow it for this call, if that is why it failed: palyra run {flags}; always: "
        f"allowed_egress_hosts = [{setting}] in [tool_call.process_runner]."
    )


def grant_spellings(patterns: Sequence[str]) -> tuple[str, str]:
    """(flags, items of allowed_egress_hosts): `db.test:9042 raw` is `--allow-raw db.test:9042` and a table."""
    flags, items = [], []
    for pattern in patterns:
        plain = pattern.removesuffix(f" {RAW}")
        flags.append(f"--allow-host {plain}" if plain == pattern else f"--allow-raw {plain}")
        host, _, port = plain.rpartition(":")
        table = f'{{ host = "{host.strip("[]")}", port = {port}, raw = true }}'
        items.append(f'"{plain}"' if plain == pattern else table)
    return " ".join(flags), ", ".join(items)
