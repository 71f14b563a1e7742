"""Numbers and spans: bounded labels, no words of a caller, nothing of a call's input or output."""

from __future__ import annotations

import asyncio
import re

from palyra.daemon.chores import Chore, do_chores
from palyra.daemon.metrics import metrics_text
from palyra.daemon.tracing import Tracing, make_tracing
from tests.daemons import AGENT, OPERATOR

SAMPLE = re.compile(r'[a-z_]+(\{([a-z_]+="(?:[^"\\\n]|\\.)*",?)+\})? [0-9.e+-]+')


def test_every_line_is_of_the_text_format(served):
    token, operator = served.token(AGENT), served.token(OPERATOR, operator=True)
    for tool in ("palyra.echo", 'no"such\\tool\n', "sk-live-secret"):
        served.ask("POST", "/v1/calls", token=token, json={"tool": tool, "input": {"word": "hunter2"}})
    response = served.ask("GET", "/metrics", token=operator)
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    for line in response.text.splitlines():
        assert line.startswith(("# HELP palyra_", "# TYPE ", "# HELP process_")) or SAMPLE.fullmatch(line), line
    assert 'palyra_calls_total{tool="palyra.echo",status="completed",reason=""} 1' in response.text
    assert 'palyra_calls_total{tool="other",status="refused",reason="UNKNOWN_TOOL"} 2' in response.text
    for word in (AGENT, "hunter2", "secret", "such"):
        assert word not in response.text


def test_the_histogram_counts_every_call_once(served):
    text = metrics_text(served.state)
    count = re.search(r"^palyra_call_seconds_count (\d+)$", text, re.MULTILINE)
    last = re.search(r'^palyra_call_seconds_bucket\{le="\+Inf"\} (\d+)$', text, re.MULTILINE)
    assert count is not None
    assert last is not None
    assert count[1] == last[1] == str(sum(served.state.metrics.calls.values()))


def test_a_span_tells_what_the_journal_tells(served):
    from opentelemetry.propagate import extract
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    tracing = Tracing(
        tracer=provider.get_tracer("test"),
        extract=extract,
        now_unix_ms=served.state.clock.now_unix_ms,
        shut_down=provider.shutdown,
    )
    served.state.tracing = tracing
    served.state.ends.watchers.append(tracing.ended)
    try:
        trace = "0af7651916cd43dd8448eb211c80319c"
        outcome = served.ask(
            "POST",
            "/v1/calls",
            token=served.token(AGENT),
            json={"tool": "palyra.echo", "input": {"password": "hunter2"}},
            headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
        ).json()
    finally:
        served.state.tracing = None
        served.state.ends.watchers.remove(tracing.ended)
    (span,) = kept.get_finished_spans()
    assert span.name == "execute_tool palyra.echo"
    assert f"{span.context.trace_id:032x}" == trace
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "palyra.echo",
        "gen_ai.tool.call.id": outcome["call_id"],
        "gen_ai.tool.type": "function",
        "palyra.run.id": outcome["run_id"],
        "palyra.principal": AGENT,
        "palyra.status": "completed",
        "palyra.executor": "builtin",
    }
    assert span.end_time >= span.start_time


def test_spans_are_made_with_the_standard_provider():
    tracing = make_tracing(now_unix_ms=lambda: 0)
    tracing.shut_down()


def test_a_chore_that_fails_is_tried_again_and_stops_no_other(monkeypatch, caplog):
    monkeypatch.setattr("palyra.daemon.chores.LOOK_S", 0.0)
    done: list[str] = []

    async def good() -> None:
        done.append("good")

    async def bad() -> None:
        done.append("bad")
        raise RuntimeError("no")

    async def story() -> None:
        ticks = iter(range(0, 10**9, 1_000_000))
        chores = (Chore(name="bad", every_s=2, work=bad), Chore(name="good", every_s=2, work=good))
        doing = asyncio.ensure_future(do_chores(chores, monotonic_us=lambda: next(ticks)))
        while len(done) < 6:
            await asyncio.sleep(0)
        doing.cancel()

    asyncio.run(story())
    assert {"good", "bad"} == set(done)
    assert done.count("bad") >= 2
    assert "chore failed: bad" in caplog.text
