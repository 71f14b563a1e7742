"""What a call's records share each time it is asked is never taken for what this time was different."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from palyra.canon import digest
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.model.outcome import Connection
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
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
