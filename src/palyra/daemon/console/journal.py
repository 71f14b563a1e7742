"""`/console/journal`: entries found by a question, one entry, the audit by a button, proofs to take away."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.console.making import Visit, form, page
from palyra.daemon.console.rendering import render
from palyra.daemon.operators import journal as acts
from palyra.daemon.operators.answering import Count, Maybe, Place, Word, installed, journal_of
from palyra.daemon.routes import Asked, Model, Refused
from palyra.journal.entry import parse_entry
from palyra.journal.search import NAMES, Question
from palyra.model.moment import parse_moment
from palyra.model.record import Entry
from palyra.values import dataclass

_KIND_OF = {kind: name for name, kind in NAMES.items()}
FILTERS = ("since", "until", "kind", "principal", "tool", "status", "reason", "run_id", "text")


class JournalPage(Model):
    before: Annotated[Place | None, Maybe] = None
    count: Count = 50
    since: Annotated[str, Field(max_length=40)] = ""
    until: Annotated[str, Field(max_length=40)] = ""
    principal: Word = ""
    run_id: Word = ""
    tool: Word = ""
    status: Word = ""
    reason: Word = ""
    kind: Annotated[str, Field(pattern="^(intent|result|act)?$")] = ""
    text: Word = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One entry as a list shows it; the fields are empty for one that cannot be read."""

    index: int
    at_unix_ms: int | None = None
    kind: str = "unreadable"
    what: str = ""
    status: str = ""
    reason: str = ""
    who: str = ""
    call_id: str = ""
    subject: str = ""


def line_of(entry: Entry) -> Line:
    try:
        view = parse_entry(entry.body)
    except ValueError:
        return Line(index=entry.index)
    said = view.predicate
    return Line(
        index=entry.index,
        at_unix_ms=view.at_unix_ms,
        kind=_KIND_OF.get(view.kind, "entry"),
        what=str(said.get("tool") or said.get("act") or ""),
        status=str(said.get("status") or ""),
        reason=str(said.get("reason") or ""),
        who=str(said.get("principal") or said.get("actor") or ""),
        call_id=view.call_id or "",
        subject=view.subject,
    )


def question_of(query: JournalPage, *, now_unix_ms: int) -> Question:
    times: dict[str, Any] = {}
    for name in ("since", "until"):
        try:
            text = getattr(query, name)
            times[f"{name}_unix_ms"] = parse_moment(text, now_unix_ms=now_unix_ms) if text else None
        except ValueError as error:
            hint = "Write 2026-01-31, 2026-01-31T12:00, or 90m, 24h, 7d ago."
            raise Refused(422, "BAD_ARGUMENTS", f"{name}: {error}.", hint) from None
    names = ("principal", "run_id", "tool", "status", "reason", "kind", "text")
    return Question(**{name: getattr(query, name) for name in names}, **times)


async def journal_page(asked: Asked) -> Response:
    query: JournalPage = asked.query
    question = question_of(query, now_unix_ms=asked.state.clock.now_unix_ms())
    found = await journal_of(asked).page(question, count=query.count, before=query.before)
    return render(
        asked,
        "journal.html",
        section="journal",
        query=query,
        given={name: value for name in FILTERS if (value := getattr(query, name))},
        lines=[line_of(entry) for entry in found.entries],
        next=found.next,
        head=journal_of(asked).head(),
        key=installed(asked).writer.home.verifier.vkey,
    )


async def entry_page(asked: Asked) -> Response:
    whole: Any = await acts.show_entry(asked)
    entry = journal_of(asked).entry(whole["index"])
    assert entry is not None, "it was just read"
    head = journal_of(asked).head()
    return render(
        asked,
        "entry.html",
        section="journal",
        line=line_of(entry),
        body=whole["entry"],
        leaf=whole["leaf_hash"],
        size=head.size if head is not None else 0,
    )


async def verify_page(asked: Asked) -> Response:
    return _verified(asked, None)


async def verify_now(asked: Asked) -> Response:
    return _verified(asked, await acts.verify(asked))


def _verified(asked: Asked, report: Json) -> Response:
    head = journal_of(asked).head()
    return render(
        asked,
        "verify.html",
        section="journal",
        report=report,
        head=head,
        key=installed(asked).writer.home.verifier.vkey,
    )


ROUTES = (
    page("/journal", journal_page, name="journal", says="The journal, newest first.", query=JournalPage),
    page("/journal/verify", verify_page, name="verify", says="Audit the journal.", query=Visit),
    form("/journal/verify", verify_now, name="verify", says="Audit it now.", body=acts.Auditing),
    page("/journal/{index}", entry_page, name="entry", says="One entry."),
)
