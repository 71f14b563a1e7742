"""A record of which a part was made while the program ran says what it would say if all were made at the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from palyra.attest import check_outcome
from palyra.engine import attesting
from palyra.engine.ports import Ports
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, StateError
from palyra.journal.chain import entry_bytes
from palyra.model.outcome import Connection, Execution, Outcome, Status, Usage
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.testing import FakeExecutor, FakeSecrets, fake_ports, fake_run

ENDED = Execution(status=Status.COMPLETED, exit_code=0, usage=Usage(wall_us=1000, cpu_us=500))
REACHED = (Connection(host="example.org", port=443, verdict="denied"),)
ENDINGS = {
    "well": ENDED,
    "with an error": replace(ENDED, exit_code=3),
    "by a signal": replace(ENDED, exit_code=None, signal=9),
    "too late": replace(ENDED, status=Status.TIMEOUT, reason=Reason.TIMEOUT, exit_code=None),
    "never started": replace(ENDED, status=Status.FAILED, reason=Reason.SPAWN_FAILED, message="It is not there."),
    "after it reached out": replace(ENDED, connections=REACHED),
    "with somebody left": replace(ENDED, degraded=("tree_kill: 1",)),
    "as a module": replace(ENDED, compiled_sha256="c" * 64),
}


def call(ports: Ports, *, times: int = 3, **request: Any) -> list[Outcome]:
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run()
    asked = CallRequest(tool="palyra.process.run", input={"command": "ls"}, run=run, **request)
    return [asyncio.run(engine.call(asked)) for _ in range(times)]


def executor(execution: Execution, *, is_alone: bool, **more: Any) -> FakeExecutor:
    return FakeExecutor(stdout=b"token ghp_" + b"a" * 36, execution=execution, is_alone=is_alone, **more)


def records(ports: Ports) -> list[Any]:
    """What the journal was given: the bytes of every entry, the openings of its commitments, the rest as it is."""
    journal: Any = ports.journal
    return [
        (entry_bytes(one.entry, index=5, sequence=2, at_unix_ms=1), one.entry.commitments, replace(one, entry=None))
        for one in (*journal.openings, *journal.closings)
    ]


@pytest.mark.parametrize("project", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_record_made_ahead_is_the_one_made_at_the_end(ending: str, *, project: bool) -> None:
    ports = [fake_ports(executor=executor(ENDINGS[ending], is_alone=alone)) for alone in (False, True)]
    at_the_end, ahead = (list(map(outcome_json, call(one, project=project))) for one in ports)
    assert [list(one["attestation"]) for one in at_the_end] == [list(one["attestation"]) for one in ahead]
    if ending in ("never started", "with somebody left"):  # made anew, with fresh identifiers
        unlike = {"attestation_id", "nonce", "execution_sha256", "envelope"}
        for one in (*at_the_end, *ahead):
            one["attestation"] = {name: value for name, value in one["attestation"].items() if name not in unlike}
            one["call_id"] = one["attestation"]["call_id"] = ""
    else:
        assert records(ports[0]) == records(ports[1])
    assert at_the_end == ahead
    assert not any(
        check_outcome({**outcome_json(one), "receipt": None}, ports[1].key.public) for one in call(ports[1], times=1)
    )


def test_what_was_made_ahead_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    finished, finish = [], attesting.finish

    def count(*words: Any) -> Any:
        finished.append(words)
        return finish(*words)

    monkeypatch.setattr(attesting, "finish", count)
    call(fake_ports(executor=executor(ENDED, is_alone=True)))
    assert len(finished) == 3
    call(fake_ports(executor=executor(ENDED, is_alone=False)))
    assert len(finished) == 3


def test_what_never_started_is_attested_to_no_executor() -> None:
    (outcome,) = call(fake_ports(executor=executor(ENDINGS["never started"], is_alone=True)), times=1)
    assert (outcome.attestation["executor"], outcome.attestation["sandbox_enforcement"]["backend"]) == ("policy", "")


def test_a_program_that_left_somebody_behind_is_not_attested_as_planned() -> None:
    (outcome,) = call(fake_ports(executor=executor(ENDINGS["with somebody left"], is_alone=True)), times=1)
    assert outcome.attestation["sandbox_enforcement"]["degraded"][-1] == "tree_kill: 1"


def test_a_secret_that_came_while_the_program_ran_makes_the_record_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets, finished = FakeSecrets(), []
    monkeypatch.setattr(attesting, "finish", lambda *words: finished.append(words))

    async def learn() -> None:
        secrets.values = (("API_KEY", b"very secret"),)

    ports = fake_ports(secrets=secrets, executor=executor(ENDED, is_alone=True, during=learn))
    (outcome,) = call(ports, times=1)
    assert (outcome.success, finished) == (True, [])


def test_nothing_of_a_record_stands_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose end could not be written is answered with another record: under another id, with another nonce."""
    ports = fake_ports(executor=executor(ENDED, is_alone=True))
    journal: Any = ports.journal
    records, attest_call = list[Any](), attesting.attest_call

    def keep(*words: Any) -> Any:
        records.append(attest_call(*words))
        return records[-1]

    monkeypatch.setattr("palyra.engine.record.attest_call", keep)

    async def close(closing: Any) -> None:
        raise StateError("The disk is full.")

    journal.close_call = close
    (outcome,) = call(ports, times=1)
    assert outcome.reason is Reason.INTERNAL
    assert len(records) == 2
    for name in ("attestation_id", "nonce", "execution_sha256"):
        assert len({one[name] for one in records}) == 2


def test_work_that_breaks_ends_the_call_in_the_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr("palyra.engine.walk.get_ready", broken)
    (outcome,) = call(fake_ports(executor=executor(ENDED, is_alone=True)), times=1)
    assert (outcome.status, outcome.reason) == (Status.FAILED, Reason.INTERNAL)
