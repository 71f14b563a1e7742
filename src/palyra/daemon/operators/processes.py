"""`/console/v1/processes`: background processes of everybody, what they wrote, and their end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palyra.canon import Json
from palyra.daemon.operators.answering import Listed, Maybe, NextPage, Place, change, get, installed
from palyra.daemon.routes import AnswerModel, Asked, Model, not_found
from palyra.model.process import BackgroundProcess, LogPage

PAGE_BYTES = 64 * 1024


class Process(AnswerModel):
    process_id: str
    call_id: str
    run_id: str
    principal: str
    command: str
    status: str
    pid: int
    lifetime: str
    started_at_unix_ms: int
    expires_at_unix_ms: int
    ended_at_unix_ms: int | None
    exit_code: int | None
    signal: int | None
    reason: str | None
    stopped_by: str | None
    stdout_bytes: int | None
    stderr_bytes: int | None
    usage: dict[str, int | None] | None
    protected_created: list[str]


class LogPiece(AnswerModel):
    stream: str
    text: str


class ProcessLog(AnswerModel):
    offset_bytes: int
    next_offset_bytes: int
    dropped_bytes: int
    total_bytes: int
    pieces: list[LogPiece]


class WhichProcesses(NextPage):
    running: bool = True
    """False: also those that ended, the newest first."""


class WhichPart(Model):
    offset_bytes: Annotated[Place | None, Maybe] = None
    max_bytes: Annotated[int, Field(ge=1, le=1 << 20)] = PAGE_BYTES


async def list_processes(asked: Asked) -> Json:
    query: WhichProcesses = asked.query
    background = installed(asked).background
    if query.running:
        return {"items": [process_json(found) for found in await background.running()], "next": None}
    found = await background.everything(before=query.before, count=query.count)
    following = found[-1].process_id if len(found) == query.count else None
    return {"items": [process_json(process) for process in found], "next": following}


def process_json(process: BackgroundProcess) -> dict[str, Json]:
    return {**process.as_json(), "run_id": process.owner.run_id, "principal": process.owner.principal}


async def known_process(asked: Asked) -> BackgroundProcess:
    process = await installed(asked).background.find(asked.path["id"])
    if process is None:
        raise not_found("process")
    return process


async def show_process(asked: Asked) -> Json:
    return process_json(await known_process(asked))


async def read_log(asked: Asked) -> Json:
    query: WhichPart = asked.query
    process = await known_process(asked)
    background = installed(asked).background
    page = background.read(process, offset_bytes=query.offset_bytes or 0, max_bytes=query.max_bytes)
    return log_json(page)


def log_json(page: LogPage) -> dict[str, Json]:
    return {
        "offset_bytes": page.offset_bytes,
        "next_offset_bytes": page.next_offset_bytes,
        "dropped_bytes": page.dropped_bytes,
        "total_bytes": page.total_bytes,
        "pieces": [
            {"stream": chunk.stream.value, "text": chunk.data.decode("utf-8", "replace")} for chunk in page.chunks
        ],
    }


async def stop_process(asked: Asked) -> Json:
    process = await known_process(asked)
    stopped = await installed(asked).background.stop(process.owner, process.process_id, by=asked.caller.principal)
    return process_json(stopped)


ROUTES = (
    get("/processes", list_processes, name="list_processes", says="Background processes: the running ones, or all.",
        model=Listed[Process], query=WhichProcesses),
    get("/processes/{id}", show_process, name="show_process", says="One background process.", model=Process),
    get("/processes/{id}/log", read_log, name="read_log", says="What it wrote, redacted before it was kept.",
        model=ProcessLog, query=WhichPart),
    change("/processes/{id}/stop", stop_process, name="stop_process", says="End it: SIGTERM, then SIGKILL.",
           model=Process),
)  # fmt: skip
