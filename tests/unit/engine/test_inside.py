"""Palyra's own programs: a least job before, and an answer that is checked, redacted and never trusted after."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson
import pytest

from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.call import OperatorGrant, TierChoice
from palyra.model.host import HostFacts
from palyra.model.net import NO_NETWORK, EgressMode
from palyra.model.outcome import Execution, Outcome, Status, Usage
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import LINUX, FakeExecutor, FakeLook, FakeSecrets, fake_ports, fake_run
from tests.promises import promise

OWN = (("/etc/.palyra-inside/palyra/inside/files.py", b"print()"),)
READ = {
    "path": "x", "encoding": "utf-8", "text": "hi", "offset_bytes": 0, "bytes": 2, "total_bytes": 2,
    "next_offset_bytes": None, "sha256": None,
}  # fmt: skip


def says(answer: Any, **execution: Any) -> FakeExecutor:
    stdout = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    given = {"status": Status.COMPLETED, "exit_code": 0, "usage": Usage(wall_us=1)} | execution
    return FakeExecutor(stdout=stdout, execution=Execution(**given))


def call(ports: Any, tool: str = "palyra.fs.read", arguments: Any = None, **options: Any) -> Outcome:
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    request = CallRequest(tool=tool, input=arguments or {"path": "x"}, run=options.pop("run", fake_run()), **options)
    return asyncio.run(engine.call(request))


def ports_of(executor: FakeExecutor, **given: Any) -> Any:
    return fake_ports(executor=executor, own_files=OWN, **given)


def test_a_read_runs_our_program_with_the_least_it_needs():
    ports = ports_of(says({"result": READ}))
    outcome = call(ports)
    assert (outcome.status, outcome.success, outcome.output) == (Status.COMPLETED, True, READ)
    assert outcome.attestation["executor"] == "sandbox_tier_c_linux_bubblewrap"
    (plan,) = ports.executor.plans
    assert plan.argv == ("python3", "-I", "-S", "/etc/.palyra-inside/palyra/inside/files.py")
    assert plan.net == NO_NETWORK
    assert "--bind" not in plan.launcher
    assert OWN[0][1] in plan.data
    asked = orjson.loads(plan.stdin)
    assert (asked["op"], asked["input"]) == ("read", {"path": "x"})


@pytest.mark.parametrize("tool", ["write", "apply_patch"])
def test_what_writes_gets_the_workspace_writable(tool: str):
    ports = ports_of(says({"error": {"code": "PROTECTED", "message": "no"}}, exit_code=1))
    arguments = {"path": "x", "text": "y"} if tool == "write" else {"patch": "x"}
    call(ports, f"palyra.fs.{tool}", arguments)
    assert "--bind" in ports.executor.plans[0].launcher


def test_tier_b_and_an_open_network_are_not_for_our_programs():
    grant = OperatorGrant(tier=TierChoice.B, egress=EgressMode.NONE)
    ports = ports_of(says({"result": READ}))
    call(ports, run=fake_run(grant=grant))
    (plan,) = ports.executor.plans
    assert (plan.tier.value, plan.net) == ("C", NO_NETWORK)


def test_a_path_outside_is_refused_before_anything_runs():
    for path in ("../x", "/etc/passwd", "~/.ssh/id_rsa", "door"):
        ports = ports_of(says({"result": READ}), look=FakeLook(links={"door": "/etc", "~/.ssh/id_rsa": "/home/t/.ssh"}))
        outcome = call(ports, arguments={"path": path})
        assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.OUTSIDE_WORKSPACE)
        assert ports.executor.plans == []


def test_an_error_of_the_program_is_a_result_without_success():
    error = {"code": "NOT_FOUND", "message": "x: there is nothing of that name.", "path": "x"}
    outcome = call(ports_of(says({"error": error}, exit_code=1)))
    assert (outcome.status, outcome.success, outcome.reason) == (Status.COMPLETED, False, None)
    assert (outcome.message, outcome.output) == (error["message"], {"error": error})


def test_a_link_that_led_out_meanwhile_is_named_as_such():
    outcome = call(ports_of(says({"error": {"code": "OUTSIDE_WORKSPACE", "message": "out"}}, exit_code=1)))
    assert (outcome.success, outcome.reason) == (False, Reason.OUTSIDE_WORKSPACE)


@promise("workspace.hostile-content")
@pytest.mark.parametrize(
    "answer",
    [b"", b"{", b"[]", b"{}", b'{"result": 1}', b'{"result": {}, "error": {}}', {"result": READ | {"surprise": 1}},
     {"result": {"path": "x"}}],
)  # fmt: skip
def test_an_answer_of_another_shape_is_our_own_error(answer: Any):
    outcome = call(ports_of(says(answer)))
    assert (outcome.status, outcome.success, outcome.reason) == (Status.FAILED, False, Reason.INTERNAL)
    assert outcome.output == {}


def test_limits_that_end_the_program_are_named():
    ended = says(b"", status=Status.TIMEOUT, reason=Reason.TIMEOUT, message="too long", exit_code=None)
    outcome = call(ports_of(ended))
    assert (outcome.status, outcome.reason, outcome.message) == (Status.TIMEOUT, Reason.TIMEOUT, "too long")
    burnt = says(b"", reason=Reason.CPU_LIMIT, message="cpu", exit_code=None, signal=24)
    assert call(ports_of(burnt)).reason is Reason.CPU_LIMIT


def test_a_program_of_ours_that_could_not_be_started_says_what_to_do_as_any_other_does():
    failed = says(b"", status=Status.FAILED, reason=Reason.SPAWN_FAILED, message="no", hint="again", exit_code=None)
    outcome = call(ports_of(failed))
    assert (outcome.status, outcome.message, outcome.hint) == (Status.FAILED, "no", "again")


def test_a_secret_in_a_file_is_redacted_as_text_and_within_base64():
    secrets = FakeSecrets((("token", b"hunter2-hunter2"),))
    text = call(ports_of(says({"result": READ | {"text": "my hunter2-hunter2"}}), secrets=secrets))
    assert "hunter2" not in text.output["text"]
    assert text.attestation["redactions"]
    data = base64.b64encode(b"\xff" + b"x" * 3 + b"hunter2-hunter2").decode()
    binary = READ | {"encoding": "base64", "base64": data}
    del binary["text"]
    shown = call(ports_of(says({"result": binary}), secrets=secrets)).output["base64"]
    assert b"hunter2" not in base64.b64decode(shown)


def test_a_change_leaves_a_checkpoint_that_undoes_it_and_cannot_be_read():
    before = [{"name": "eA==", "content": None, "mode": 0, "after_sha256": "0" * 64}]
    ports = ports_of(says({"result": {"files": [], "before": before}}))
    outcome = call(ports, "palyra.fs.apply_patch", {"patch": "x"})
    checkpoint = outcome.output["checkpoint"]
    assert [ref.artifact_id for ref in outcome.artifacts] == [checkpoint]
    read = call(ports, "palyra.artifact.read", {"artifact_id": checkpoint})
    assert (read.success, read.reason) == (False, Reason.BAD_ARGUMENTS)

    said = []

    class Listening(FakeExecutor):
        async def run(self, plan, sink, source=None):
            said.append(orjson.loads(await source.read()))
            return await super().run(plan, sink, source)

    undoing = Listening(stdout=orjson.dumps({"result": {"files": [], "before": []}}))
    call(
        fake_ports(executor=undoing, own_files=OWN, artifacts=ports.artifacts),
        "palyra.fs.apply_patch",
        {"undo": checkpoint},
    )
    assert said[0]["undo"] == before


def test_an_undo_of_what_is_no_checkpoint_is_refused():
    outcome = call(ports_of(says({})), "palyra.fs.apply_patch", {"undo": "0" * 26})
    assert outcome.reason is Reason.BAD_ARGUMENTS


def test_a_host_without_bubblewrap_or_python_refuses():
    no_launcher = HostFacts(**{**{name: getattr(LINUX, name) for name in LINUX.__slots__}, "bubblewrap": None})
    assert call(ports_of(says({}), host=no_launcher)).reason is Reason.UNENFORCEABLE
    missing = FakeLook(missing=frozenset({"python3"}))
    assert call(ports_of(says({}), look=missing)).reason is Reason.UNENFORCEABLE
    planted = FakeLook(writable=frozenset({"python3"}))
    assert call(ports_of(says({}), look=planted)).reason is Reason.UNENFORCEABLE


def test_a_cancelled_call_of_our_program_is_recorded():
    async def story() -> Outcome:
        async def wait() -> None:
            await asyncio.sleep(60)

        engine = Engine(ports_of(FakeExecutor(during=wait)), make_registry(BUILTIN_TOOLS))
        call_id = "01HF7YAT00000000000000CA11"
        request = CallRequest(tool="palyra.fs.list", input={}, run=fake_run(), call_id=call_id)
        task = asyncio.ensure_future(engine.call(request))
        for _ in range(20):
            await asyncio.sleep(0)
        engine.cancel(call_id)
        return await task

    assert asyncio.run(story()).reason is Reason.CANCELLED
