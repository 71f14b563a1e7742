"""`/console`: the last day in figures and plots, what is nearest to its limit, and what the sandbox enforces here."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from palyra.daemon.console import words
from palyra.daemon.console.making import page
from palyra.daemon.console.plots import Bar, both, rows_plot, stacked
from palyra.daemon.console.rendering import render
from palyra.daemon.operators.answering import calls_of, installed, journal_of
from palyra.daemon.operators.host import figures_of, waiting_count
from palyra.daemon.routes import Asked
from palyra.journal.search import Question
from palyra.values import dataclass
from palyra.wiring.checkup import backends_json
from palyra.wiring.figures import ENDINGS, Figures
from palyra.wiring.runs import RunView

RUNS_LOOKED_AT = 100
RUNS_SHOWN = 6
LABEL_EVERY = 4
BUDGETS = ("calls", "attempts", "wall_us", "cpu_us", "output_bytes", "egress_bytes", "fuel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One budget of one run."""

    run_id: str
    principal: str
    name: str
    used: int
    most: int

    @property
    def share(self) -> float:
        return self.used / self.most if self.most else 1.0


def nearest(runs: tuple[RunView, ...], count: int = RUNS_SHOWN) -> list[Spent]:
    """For each run the budget that will stop it first; the fullest on top."""
    found = [max(budgets, key=lambda one: one.share) for budgets in map(spent_of, runs) if budgets]
    return sorted(found, key=lambda one: one.share, reverse=True)[:count]


def spent_of(run: RunView) -> list[Spent]:
    budget = run.budget.as_json()
    return [
        Spent(run_id=run.run_id, principal=run.principal, name=name, used=budget[f"{name}_used"] or 0, most=most)
        for name in BUDGETS
        if (most := budget.get(f"{name}_max"))
    ]


def bars_of(figures: Figures) -> list[Bar]:
    bars = []
    for place, hour in enumerate(figures.hours):
        at = words.clock(hour.begins_unix_ms)
        told = ", ".join(f"{count} {name}" for name, count in zip(ENDINGS, hour.counts, strict=True) if count)
        label = at if place % LABEL_EVERY == 0 else ""
        bars.append(Bar(label=label, parts=hour.counts, says=f"{at} UTC: {told or 'no calls'}"))
    return bars


def plots_of(figures: Figures) -> dict[str, Any]:
    title, bars = "Calls of the last 24 hours, by the hour and by how they ended", bars_of(figures)
    reasons = {"title": "Reasons of refusals", "plot_id": "reasons", "part": "refused"}
    tools = {"title": "Calls by tool", "plot_id": "tools", "part": "completed"}
    return {
        "hours": both(lambda paper: stacked(bars, names=ENDINGS, title=title, plot_id="hours", paper=paper)),
        "reasons": both(lambda paper: rows_plot(figures.reasons[:8], paper=paper, **reasons)),
        "tools": both(lambda paper: rows_plot(figures.tools[:8], paper=paper, **tools)),
    }


async def overview_page(asked: Asked) -> Response:
    installation = installed(asked)
    figures = await figures_of(asked)
    recent, _ = await calls_of(asked).ended(Question(), count=8)
    endings = dict(figures.endings)
    head = journal_of(asked).head()
    return render(
        asked,
        "overview.html",
        section="overview",
        figures=figures,
        endings={name: endings.get(name, 0) for name in ENDINGS},
        total=sum(endings.values()),
        plots=plots_of(figures),
        names=ENDINGS,
        recent=recent,
        under_way=calls_of(asked).under_way(),
        waiting_now=waiting_count(asked),
        processes=await installation.background.running(),
        nearest=nearest(installation.runs.list(count=RUNS_LOOKED_AT)),
        backends=backends_json(installation.host),
        posture=installation.config.posture,
        runner=installation.config.tool_call.process_runner,
        head=head,
    )


ROUTES = (page("", overview_page, name="overview", says="The last day in figures."),)
