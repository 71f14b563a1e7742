"""The rows of background processes: what is kept of each, durable before its program begins.

Rules: a row is written once at the start and once at the end, each inside the transaction it is handed; only a row
that still says `running` can be ended, so of two that try one wins and one entry is journaled. Whoever reads by owner
gets that owner's rows and nobody else's.

Not here: transactions and journal entries (wiring/processes), the processes themselves (background).
"""

from __future__ import annotations

import json
from typing import Any

from palyra.errors import Reason
from palyra.model.outcome import Usage
from palyra.model.process import BackgroundProcess, Lifetime, ProcessOwner, ProcessStatus
from palyra.model.record import Owner
from palyra.state.database import Rows
from palyra.state.transaction import Transaction

_COLUMNS = """process_id, run_id, principal, call_id, command, lifetime, keeper_boot_id, keeper_pid, keeper_start_ticks,
              pid, start_ticks, cgroups, started_unix_ms, expires_unix_ms, status, ended_unix_ms, exit_code, signal,
              reason, stopped_by, wall_us, cpu_us, max_rss_bytes, output_bytes, stdout_bytes, stderr_bytes,
              protected_created"""
_SELECT = f"SELECT {_COLUMNS} FROM processes "  # noqa: S608  # column names of our own
_INSERT = f"INSERT INTO processes ({_COLUMNS}) VALUES ({', '.join('?' * 27)})"  # noqa: S608
_END = """UPDATE processes SET status = ?, ended_unix_ms = ?, exit_code = ?, signal = ?, reason = ?, stopped_by = ?,
              wall_us = ?, cpu_us = ?, max_rss_bytes = ?, output_bytes = ?, stdout_bytes = ?, stderr_bytes = ?,
              protected_created = ?
          WHERE process_id = ? AND status = 'running'"""
LAST = "\uffff"
"""Past every id, for a list that begins with the newest."""


def insert_process(tx: Transaction, process: BackgroundProcess) -> None:
    tx.execute(
        _INSERT,
        (process.process_id, process.owner.run_id, process.owner.principal, process.call_id, process.command,
         process.lifetime.value, process.keeper.boot_id, process.keeper.pid, process.keeper.start_ticks,
         process.pid, process.start_ticks, "\n".join(process.cgroups), process.started_unix_ms, process.expires_unix_ms,
         *_ending(process)),
    )  # fmt: skip


def end_process(tx: Transaction, process: BackgroundProcess) -> bool:
    """False when it had been ended before: then nothing is changed."""
    return tx.execute(_END, (*_ending(process), process.process_id)).rowcount == 1


def find_process(source: Rows, process_id: str) -> BackgroundProcess | None:
    """Whoever asks must check the owner before showing any of it."""
    found = source.rows(_SELECT + "WHERE process_id = ?", (process_id,))
    return _process(found[0]) if found else None


def processes_of(
    source: Rows, owner: ProcessOwner, *, before: str = LAST, count: int = 50
) -> tuple[BackgroundProcess, ...]:
    """The newest first."""
    sql = _SELECT + "WHERE run_id = ? AND principal = ? AND process_id < ? ORDER BY process_id DESC LIMIT ?"
    return tuple(_process(row) for row in source.rows(sql, (owner.run_id, owner.principal, before, count)))


def all_processes(source: Rows, *, before: str = LAST, count: int = 50) -> tuple[BackgroundProcess, ...]:
    sql = _SELECT + "WHERE process_id < ? ORDER BY process_id DESC LIMIT ?"
    return tuple(_process(row) for row in source.rows(sql, (before, count)))


def running_processes(source: Rows) -> tuple[BackgroundProcess, ...]:
    return tuple(_process(row) for row in source.rows(_SELECT + "WHERE status = 'running' ORDER BY started_unix_ms"))


def _ending(process: BackgroundProcess) -> tuple[object, ...]:
    usage = process.usage
    numbers = (usage.wall_us, usage.cpu_us, usage.max_rss_bytes, usage.output_bytes) if usage else (None,) * 4
    return (
        process.status.value,
        process.ended_unix_ms,
        process.exit_code,
        process.signal,
        process.reason.value if process.reason else None,
        process.stopped_by,
        *numbers,
        process.stdout_bytes,
        process.stderr_bytes,
        json.dumps(process.protected_created),
    )


def _process(row: tuple[Any, ...]) -> BackgroundProcess:
    (process_id, run_id, principal, call_id, command, lifetime, boot_id, keeper_pid, keeper_ticks, pid, ticks, cgroups,
     started, expires, status, ended, exit_code, signal, reason, stopped_by, wall_us, cpu_us, rss, output,
     stdout_bytes, stderr_bytes, created) = row  # fmt: skip
    usage = None if wall_us is None else Usage(wall_us=wall_us, cpu_us=cpu_us, max_rss_bytes=rss, output_bytes=output)
    return BackgroundProcess(
        process_id=process_id,
        owner=ProcessOwner(run_id, principal),
        call_id=call_id,
        command=command,
        lifetime=Lifetime(lifetime),
        keeper=Owner(boot_id, keeper_pid, keeper_ticks),
        pid=pid,
        start_ticks=ticks,
        cgroups=tuple(filter(None, cgroups.split("\n"))),
        started_unix_ms=started,
        expires_unix_ms=expires,
        status=ProcessStatus(status),
        ended_unix_ms=ended,
        exit_code=exit_code,
        signal=signal,
        reason=Reason(reason) if reason else None,
        stopped_by=stopped_by,
        usage=usage,
        stdout_bytes=stdout_bytes,
        stderr_bytes=stderr_bytes,
        protected_created=tuple(json.loads(created)),
    )
