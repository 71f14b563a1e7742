"""OpenTelemetry spans of calls (`palyra[otel]`, `[daemon] traces = true`): `execute_tool`, by the GenAI conventions.

Rules: arguments and results never enter a span; what is told is what the journal tells anyway: tool, ids, status,
reason. A caller's own trace is continued where its request names one (`traceparent`). Where spans go is the standard
OTEL_… environment's to say. Without the extra, or switched off, nothing of this is imported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from palyra.errors import ConfigError
from palyra.model.outcome import Outcome
from palyra.values import dataclass
from palyra.version import __version__

if TYPE_CHECKING:
    from palyra.daemon.live import LiveCall

MAX_PARENTS = 4096
CARRIERS = ("traceparent", "tracestate")


@dataclass(slots=True, kw_only=True)
class Tracing:
    tracer: Any
    extract: Any
    """Reads a caller's context out of headers."""
    now_unix_ms: Any
    shut_down: Any
    _parents: OrderedDict[str, Any] = field(default_factory=OrderedDict)

    def begun(self, call_id: str, headers: Mapping[str, str]) -> None:
        carried = {name: headers[name] for name in CARRIERS if name in headers}
        if carried:
            self._parents[call_id] = self.extract(carried)
            while len(self._parents) > MAX_PARENTS:
                self._parents.popitem(last=False)

    def ended(self, call: LiveCall, outcome: Outcome) -> None:
        end_ns = self.now_unix_ms() * 1_000_000
        span = self.tracer.start_span(
            f"execute_tool {outcome.tool}",
            context=self._parents.pop(call.call_id, None),
            start_time=end_ns - outcome.usage.wall_us * 1000,
            attributes=attributes_of(call, outcome),
        )
        span.end(end_time=end_ns)


def attributes_of(call: LiveCall, outcome: Outcome) -> dict[str, Any]:
    told: dict[str, Any] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": outcome.tool,
        "gen_ai.tool.call.id": outcome.call_id,
        "gen_ai.tool.type": "function",
        "palyra.run.id": outcome.run_id,
        "palyra.principal": call.principal,
        "palyra.status": outcome.status.value,
        "palyra.executor": str(outcome.attestation.get("executor", "")),
    }
    return told | ({"error.type": outcome.reason.value} if outcome.reason else {})


def make_tracing(*, now_unix_ms: Any) -> Tracing:
    """With the process-wide provider of the standard environment. `ConfigError` without the extra."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.propagate import extract
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise ConfigError(
            "daemon.traces needs OpenTelemetry, which is not installed.",
            "In a checkout of Palyra: pip install '.[otel]'. Or set traces = false.",
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "palyra", "service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Tracing(
        tracer=provider.get_tracer("palyra", __version__),
        extract=extract,
        now_unix_ms=now_unix_ms,
        shut_down=provider.shutdown,
    )
