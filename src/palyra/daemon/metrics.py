"""Numbers for Prometheus, in its text format, written by hand: counters, gauges and one histogram.

Rules: labels are few and bounded: tools by their registered names (others are `other`), statuses, reasons, routes;
never a principal, a run or a word of a caller. Counting costs an addition; looking costs whoever looks.
"""

from __future__ import annotations

import os
import resource
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

from starlette.responses import Response

from palyra.daemon.routes import Answer, Asked, Route, Who
from palyra.journal.lookup import TREE_SIZE
from palyra.model.outcome import Outcome
from palyra.values import dataclass
from palyra.version import __version__

if TYPE_CHECKING:
    from palyra.daemon.live import LiveCall
    from palyra.daemon.state import State

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
OTHER = "other"
Labels = tuple[tuple[str, str], ...]


@dataclass(slots=True, kw_only=True)
class Metrics:
    knows_tool: Callable[[str], bool]
    calls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """(tool, status, reason)."""
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """(route, status)."""
    _walls: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    _wall_us: int = 0

    def call_ended(self, call: LiveCall, outcome: Outcome) -> None:
        tool = outcome.tool if self.knows_tool(outcome.tool) else OTHER
        self.calls[tool, outcome.status.value, outcome.reason.value if outcome.reason else ""] += 1
        self._walls[bisect_left(BOUNDS_S, outcome.usage.wall_us / 1e6)] += 1
        self._wall_us += outcome.usage.wall_us

    def requested(self, route: str, status: int) -> None:
        self.requests[route, status] += 1

    def lines(self) -> Iterator[str]:
        yield from _head("palyra_calls_total", "counter", "Calls that ended, including refusals.")
        for (tool, status, reason), count in sorted(self.calls.items()):
            yield _line("palyra_calls_total", count, (("tool", tool), ("status", status), ("reason", reason)))
        yield from _head("palyra_call_seconds", "histogram", "Wall time of calls.")
        total = 0
        for bound, count in zip((*BOUNDS_S, "+Inf"), self._walls, strict=True):
            total += count
            yield _line("palyra_call_seconds_bucket", total, (("le", str(bound)),))
        yield _line("palyra_call_seconds_sum", self._wall_us / 1e6)
        yield _line("palyra_call_seconds_count", total)
        yield from _head("palyra_http_requests_total", "counter", "Requests that were answered.")
        for (route, status_code), count in sorted(self.requests.items()):
            yield _line("palyra_http_requests_total", count, (("route", route), ("status", str(status_code))))


def gauges(state: State) -> Mapping[str, tuple[str, float]]:
    """name → (what it is, its value now)."""
    rows = state.installation.writer.rows
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "palyra_calls_under_way": ("Calls that are running or waiting.", state.calls.count),
        "palyra_approvals_pending": (
            "Requests that wait for a person.",
            rows("SELECT count(*) FROM approvals WHERE state = 'pending'")[0][0],
        ),
        "palyra_journal_entries": ("Entries of the journal.", rows(TREE_SIZE)[0][0]),
        "palyra_processes_running": (
            "Background processes.",
            rows("SELECT count(*) FROM processes WHERE status = 'running'")[0][0],
        ),
        "palyra_ready": ("1 while calls can be made.", 0 if state.stopping else 1),
        "process_cpu_seconds_total": ("Processor time of the daemon itself.", usage.ru_utime + usage.ru_stime),
        "process_resident_memory_bytes": ("Memory of the daemon itself.", resident_bytes()),
        "process_open_fds": ("Open files of the daemon itself.", open_files()),
    }


def resident_bytes() -> int:
    """0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, IndexError, ValueError):
        return 0


def open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def metrics_text(state: State) -> str:
    lines = [*_head("palyra_build_info", "gauge", "The version of Palyra.")]
    lines.append(_line("palyra_build_info", 1, (("version", __version__),)))
    for name, (meaning, value) in gauges(state).items():
        lines += [*_head(name, "counter" if name.endswith("_total") else "gauge", meaning), _line(name, value)]
    lines += state.metrics.lines()
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, meaning: str) -> tuple[str, str]:
    return f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"


def _line(name: str, value: float, labels: Labels = ()) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
    return f"{name}{{{shown}}} {value}" if shown else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def show(asked: Asked) -> Response:
    return Response(metrics_text(asked.state), media_type=MEDIA_TYPE)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        name="metrics",
        who=Who.OPERATOR,
        handler=show,
        summary="Numbers in Prometheus' text format.",
        answers={200: Answer(meaning="All of them.", media_type="text/plain")},
        tags=("health",),
    ),
)
