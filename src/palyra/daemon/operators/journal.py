"""`/console/v1/journal` and `/console/v1/audit/verify`: entries found by a question, one entry, proofs, the audit."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from pydantic import Field
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.operators.answering import (
    PREFIX,
    Count,
    Listed,
    Maybe,
    Place,
    Word,
    change,
    get,
    installed,
    journal_of,
)
from palyra.daemon.routes import JSON_TYPE, Answer, AnswerModel, Asked, Model, Route, Who, not_found
from palyra.journal.search import Question
from palyra.model.call import is_ulid
from palyra.wiring.journal_desk import entry_json, report_json

MAX_INDEX_DIGITS = 15


class JournalEntry(AnswerModel):
    index: int
    leaf_hash: str
    entry: Json


class JournalHead(AnswerModel):
    size: int
    root: str
    checkpoint: str
    key: str


class Finding(AnswerModel):
    code: str
    index: int | None
    detail: str


class Witness(AnswerModel):
    name: str
    size: int | None
    problem: str | None


class Misfit(AnswerModel):
    call_id: str
    detail: str


class AuditReport(AnswerModel):
    ok: bool
    entries: int
    checkpoints: int
    open_calls: int
    anchored: int
    unanchored: int
    witnesses: list[Witness]
    findings: list[Finding]
    decisions: int | None
    """Made again, when that was asked for."""
    misfits: list[Misfit]


Time = Annotated[Place | None, Maybe]


class WhichEntries(Model):
    before: Time = None
    count: Count = 50
    since_unix_ms: Time = None
    until_unix_ms: Time = None
    principal: Word = ""
    run_id: Word = ""
    tool: Word = ""
    status: Word = ""
    reason: Word = ""
    kind: Literal["", "intent", "result", "act"] = ""
    text: Word = ""

    def question(self) -> Question:
        names = "since_unix_ms until_unix_ms principal run_id tool status reason kind text".split()
        return Question(**{name: getattr(self, name) for name in names})


class Auditing(Model):
    every_signature: bool = False
    replay: bool = False
    """Replay every recorded decision as well."""


async def list_entries(asked: Asked) -> Json:
    query: WhichEntries = asked.query
    page = await journal_of(asked).page(query.question(), count=query.count, before=query.before)
    return {"items": [entry_json(entry) for entry in page.entries], "next": page.next}


async def show_entry(asked: Asked) -> Json:
    text = asked.path["index"]
    known = text.isascii() and text.isdigit() and len(text) <= MAX_INDEX_DIGITS
    entry = journal_of(asked).entry(int(text)) if known else None
    if entry is None:
        raise not_found("entry")
    return entry_json(entry)


async def show_head(asked: Asked) -> Json:
    head, key = journal_of(asked).head(), installed(asked).writer.home.verifier.vkey
    if head is None:
        return {"size": 0, "root": "", "checkpoint": "", "key": key}
    return {"size": head.size, "root": head.root.hex(), "checkpoint": head.note, "key": key}


async def download_proof(asked: Asked) -> Response:
    call_id = asked.path["call_id"]
    proof = journal_of(asked).proof(call_id) if is_ulid(call_id) else None
    if proof is None:
        raise not_found("call")
    named = {"Content-Disposition": f'attachment; filename="palyra-proof-{call_id}.json"'}
    return Response(orjson.dumps(proof), headers=named, media_type=JSON_TYPE)


async def verify(asked: Asked) -> Json:
    body: Auditing = asked.body
    desk = journal_of(asked)
    audited = await desk.verify(every_signature=body.every_signature)
    decisions, misfits = None, list[tuple[str, str]]()
    if body.replay and audited.report.sound:
        decisions, misfits = await desk.verify_decisions()
    said = report_json(audited.report, audited.anchors)
    wrong = [{"call_id": call_id, "detail": detail} for call_id, detail in misfits]
    return {**said, "ok": said["ok"] and not wrong, "decisions": decisions, "misfits": wrong}


class ProvenEntry(AnswerModel):
    index: int
    body: str
    proof: Annotated[list[str], Field(description="Hashes from the leaf to the root.")]


class ProofFile(AnswerModel):
    type: str
    call_id: str
    entries: list[ProvenEntry]
    checkpoint: str
    receipt: dict[str, Json]
    keys: list[Json]


PROOF = Route(
    method="GET",
    path=f"{PREFIX}/journal/proof/{{call_id}}",
    name="download_proof",
    who=Who.OPERATOR,
    handler=download_proof,
    summary="A call's entries with their proofs: one file, checked by `palyra verify` with a public key alone.",
    answers={200: Answer(meaning="The proof.", model=ProofFile)},
    tags=("journal",),
)
ROUTES = (
    get("/journal", list_entries, name="list_entries", says="Matching entries, newest first.",
        model=Listed[JournalEntry], query=WhichEntries),
    get("/journal/head", show_head, name="show_head", says="The newest signed head.", model=JournalHead),
    PROOF,
    get("/journal/entries/{index}", show_entry, name="show_entry", says="One entry by its index.", model=JournalEntry),
    change("/audit/verify", verify, name="verify_journal", says="Audit the whole journal; it is only read.",
           model=AuditReport, body=Auditing),
)  # fmt: skip
