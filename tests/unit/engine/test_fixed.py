"""What a call's records share each time it is asked is never taken for what this time was different."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import orjson
import pytest

from palyra.attest import check_outcome
from palyra.canon import digest
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.journal.chain import entry_bytes
from palyra.model.outcome import Connection
from palyra.policy.request import ATTRIBUTES, parse_request
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.testing import FakeExecutor, fake_ports, fake_run


def test_the_digest_of_what_was_reached_is_of_this_calls_connections():
    executor = FakeExecutor()
    engine, run = Engine(fake_ports(executor=executor), make_registry(BUILTIN_TOOLS)), fake_run()
    reached = (Connection(host="example.org", port=443, verdict="denied"),)
    for connections in ((), (), reached, ()):
        executor.execution = replace(executor.execution, connections=connections)
        request = CallRequest(tool="palyra.process.run", input={"command": "ls"}, run=run)
        outcome = asyncio.run(engine.call(request))
        assert len(outcome.output["egress"]["connections"]) == len(connections)
        assert outcome.attestation["egress_sha256"] == digest(outcome.output["egress"])


@pytest.mark.parametrize(
    ("tool", "given"), [("palyra.process.run", {"command": "ls"}), ("palyra.echo", {"a": '100% "x"'})]
)
def test_what_was_made_ahead_says_what_would_be_said_without_it(tool, given):
    ports = fake_ports()
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run()
    run = replace(run, context=replace(run.context, device='the "device"'))
    outcomes = [asyncio.run(engine.call(CallRequest(tool=tool, input=given, run=run))) for _ in range(3)]
    assert all(outcome.success for outcome in outcomes)
    entries = [one.entry for one in (*ports.journal.openings, *ports.journal.closings)]
    assert len(entries) == 6
    assert all(entry.fixed for entry in entries)
    place = {"index": 3, "sequence": 2, "at_unix_ms": 1}
    for entry in entries:
        assert entry_bytes(entry, **place) == entry_bytes(replace(entry, fixed={}), **place)
    for number, opening in enumerate(ports.journal.openings):
        kept = orjson.loads(opening.details)
        assert opening.details == orjson.dumps(kept)
        assert kept["request"]["context"]["calls_used"] == number
        assert list(kept["request"]["context"]) == sorted(ATTRIBUTES)
        assert (kept["request_redacted"], kept["shadow"]) == (False, None)
        assert parse_request(kept["request"]).context["device"] == 'the "device"'
    for outcome in outcomes:
        assert not check_outcome(outcome_json(outcome) | {"receipt": None}, ports.key.public)


def test_a_call_that_is_not_remembered_is_recorded_alike():
    """What is fed on stdin is no shape: nothing is made ahead for it."""
    ports = fake_ports()
    engine, run = Engine(ports, make_registry(BUILTIN_TOOLS)), fake_run()
    for stdin in ("", "", "fed"):
        given = {"command": "cat"} | ({"stdin": stdin} if stdin else {})
        assert asyncio.run(engine.call(CallRequest(tool="palyra.process.run", input=given, run=run))).success
    known, fed = ports.journal.openings[1].entry, ports.journal.openings[2].entry
    assert (bool(known.fixed), bool(fed.fixed)) == (True, False)
    changing = {"call_id"}
    assert {name: value for name, value in known.predicate.items() if name not in changing} == {
        name: value for name, value in fed.predicate.items() if name not in changing
    }
    details = [orjson.loads(opening.details) for opening in ports.journal.openings]
    assert list(details[1]) == list(details[2])
    assert list(details[1]["request"]) == list(details[2]["request"])
