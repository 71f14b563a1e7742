"""palyra.plugin.run in the walk: which module, with what granted; its answer judged, redacted, attested and settled."""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import replace
from typing import Any

import orjson
import pytest

from palyra.attest import check_outcome
from palyra.canon import sha256_hex
from palyra.config.schema import Config, parse_config
from palyra.egress.hosts import parse_pattern
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, Rejected
from palyra.inside.wasm import abi
from palyra.model.call import OperatorGrant
from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchFailed
from palyra.model.host import ContainerFacts
from palyra.model.outcome import Connection, Execution, Outcome, Status, Usage
from palyra.model.run_facts import RunLabel
from palyra.model.skill import SkillTool
from palyra.model.tool import Capability
from palyra.model.wasm import CapabilityGrants, GuestKind, HostAnswer, StorageGrant, WasmLimits
from palyra.policy.store import PolicyStore
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.testing import LINUX, FakeArtifacts, FakeFetcher, FakePolicies, FakeSecrets, fake_ports, fake_run
from palyra.testing_guests import DONE, FakeGuests, FakeGuestStorage, FakeSkills
from palyra.testing_runs import FakeRunFacts
from tests.promises import promise
from tests.unit.inside.wasm.guests import ECHO

ALLOWING = {"posture": "developer", "tool_call": {"wasm_runtime": {"allow_inline_modules": True}}}
DEVELOPER = FakePolicies(PolicyStore("developer", None).current())
INLINE = {"module_base64": base64.b64encode(ECHO).decode(), "input": {"a": 1}}
OBJECT = {"type": "object"}


def skill(**given: Any) -> SkillTool:
    tool: dict[str, Any] = {
        "skill_id": "acme.test",
        "version": "1.0.0",
        "tool_id": "acme.test.go",
        "payload_sha256": "ab" * 32,
        "module_sha256": sha256_hex(ECHO),
        "guest": GuestKind.CORE,
        "memories": 1,
        "grants": CapabilityGrants(),
        "limits": WasmLimits(),
        "capabilities": frozenset(),
        "input_schema": OBJECT,
        "output_schema": OBJECT,
    }
    return SkillTool(**(tool | given))


def call(
    given: dict[str, Any] | None = None, *, run: Any = None, config: Config | None = None, **ports: Any
) -> Outcome:
    config = config or parse_config(ALLOWING)
    board = fake_ports(config=config, **({"policies": DEVELOPER} | ports))
    engine = Engine(board, make_registry(BUILTIN_TOOLS))
    request = CallRequest(tool="palyra.plugin.run", input=given or INLINE, run=run or fake_run(config))
    outcome = asyncio.run(engine.call(request))
    if outcome.attestation["output_sha256"]:
        check_outcome(outcome_json(outcome), board.key.public)
    return outcome


def call_skill(tool: SkillTool, given: Any = None, **options: Any) -> Outcome:
    asked = {"skill_id": "acme.test", "input": {} if given is None else given}
    return call(asked, skills=FakeSkills({"acme.test": (tool, ECHO)}), **options)


def test_an_inline_module_runs_and_its_json_comes_back() -> None:
    done = replace(DONE, compiled_sha256="9" * 64)
    guests = FakeGuests(output=b'{"n": 1.5, "deep": [null, "\xc3\xa9"]}', execution=done)
    outcome = call(guests=guests)
    assert (outcome.status, outcome.success, outcome.reason) == (Status.COMPLETED, True, None)
    assert outcome.output["result"] == {"n": 1.5, "deep": [None, "é"]}
    assert outcome.output["exit_code"] == 0
    assert outcome.attestation["executor"] == "sandbox_tier_a"
    assert outcome.attestation["skill_sha256"] == sha256_hex(ECHO)
    assert outcome.attestation["compiled_sha256"] == "9" * 64
    (plan,) = guests.plans
    assert (plan.input, plan.grants, plan.in_process) == (b'{"a":1}', CapabilityGrants(), False)


def test_a_guest_that_gives_no_output_answers_null() -> None:
    assert call(guests=FakeGuests(output=None)).output["result"] is None


def test_an_exit_code_is_a_failed_call_with_its_output() -> None:
    failed = Execution(status=Status.COMPLETED, exit_code=3, usage=Usage(wall_us=1))
    outcome = call(guests=FakeGuests(output=b'"why"', execution=failed))
    assert (outcome.status, outcome.success) == (Status.COMPLETED, False)
    assert (outcome.output["result"], outcome.output["exit_code"]) == ("why", 3)


@pytest.mark.parametrize(
    ("config", "policies", "reason", "words"),
    [
        ({}, DEVELOPER, Reason.CAPABILITY_DENIED, "switched off"),
        (ALLOWING, FakePolicies(), Reason.POLICY_DENIED, ""),
        (ALLOWING, FakePolicies(PolicyStore("locked", None).current()), Reason.POLICY_DENIED, ""),
        ({"tool_call": {"wasm_runtime": {"enabled": False}}}, DEVELOPER, Reason.CAPABILITY_DENIED, "Plugins"),
    ],
)
def test_an_inline_module_needs_the_setting_and_the_policy(
    config: dict[str, Any], policies: FakePolicies, reason: Reason, words: str
) -> None:
    guests = FakeGuests()
    outcome = call(config=parse_config(config), policies=policies, guests=guests)
    assert (outcome.status, outcome.reason) == (Status.REFUSED, reason)
    assert words in (outcome.message or "")
    assert guests.plans == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"input": {}}, Reason.BAD_ARGUMENTS),
        (INLINE | {"skill_id": "acme.test"}, Reason.BAD_ARGUMENTS),
        (INLINE | {"tool_id": "go"}, Reason.BAD_ARGUMENTS),
        ({"module_base64": "%%%"}, Reason.BAD_ARGUMENTS),
        ({"module_base64": ""}, Reason.BAD_ARGUMENTS),
        ({"module_base64": base64.b64encode(b"(module)").decode()}, Reason.BAD_ARGUMENTS),
        ({"module_base64": base64.b64encode(bytes(330_000)).decode()}, Reason.TOO_LARGE),
        ({"skill_id": "../etc"}, Reason.BAD_ARGUMENTS),
        ({"skill_id": "acme.unknown"}, Reason.SKILL_NOT_ACTIVE),
        (INLINE | {"surprise": 1}, Reason.BAD_ARGUMENTS),
    ],
)
def test_what_is_no_proper_order_is_refused_before_anything_runs(given: dict[str, Any], reason: Reason) -> None:
    guests = FakeGuests()
    outcome = call(given, guests=guests)
    assert (outcome.status, outcome.reason, guests.plans) == (Status.REFUSED, reason, [])
    assert outcome.attestation["executor"] == "policy"


@pytest.mark.parametrize(
    "output",
    [b"{", b"", b"nul", b"\xff", b'{"a":1,"a":2}', b"NaN", b"[" * 40 + b"]" * 40, b"9007199254740993", b'"\\ud800"'],
)
def test_output_that_is_no_json_traps_the_call(output: bytes) -> None:
    outcome = call(guests=FakeGuests(output=output))
    assert (outcome.status, outcome.reason, outcome.output) == (Status.TRAPPED, Reason.TRAPPED, {})
    assert outcome.attestation["executor"] == "sandbox_tier_a"


def test_output_that_is_not_what_the_tool_promises_traps_the_call() -> None:
    promised = {"type": "object", "required": ["sum"], "properties": {"sum": {"type": "integer"}}}
    outcome = call_skill(skill(output_schema=promised), guests=FakeGuests(output=b'{"sum": "3"}'))
    assert (outcome.reason, outcome.output) == (Reason.TRAPPED, {})
    assert outcome.message == "The guest's output does not fit its tool's output schema: sum: not of type integer."


def test_input_that_the_tool_does_not_take_is_refused() -> None:
    guests = FakeGuests()
    outcome = call_skill(skill(input_schema={"type": "object", "required": ["a"]}), guests=guests)
    assert (outcome.reason, guests.plans) == (Reason.BAD_ARGUMENTS, [])


def test_a_module_that_cannot_be_compiled_is_refused_and_no_tier_is_said_to_have_run_it() -> None:
    refusal = Rejected(Reason.BAD_ARGUMENTS, "wasmtime refuses the module: no.", "hint")
    outcome = call(guests=FakeGuests(failure=refusal))
    assert (outcome.status, outcome.reason, outcome.hint) == (Status.REFUSED, Reason.BAD_ARGUMENTS, "hint")
    assert outcome.attestation["executor"] == "builtin"


def test_limits_are_the_smaller_of_what_the_skill_asks_and_the_configuration_allows() -> None:
    guests = FakeGuests()
    call_skill(skill(limits=WasmLimits(fuel=10**12, memory_bytes=1 << 20, wall_ms=500)), guests=guests)
    (plan,) = guests.plans
    assert (plan.wasm.fuel, plan.wasm.memory_bytes, plan.wasm.wall_ms) == (10_000_000, 1 << 20, 500)


def test_a_run_with_little_fuel_left_gives_no_more_and_settles_what_was_used() -> None:
    config = parse_config(ALLOWING | {"budget": {"run": {"fuel": 50}}})
    guests, run = FakeGuests(), fake_run(config)
    outcome = call(guests=guests, config=config, run=run)
    assert guests.plans[0].wasm.fuel == 50
    assert outcome.usage.fuel == 7


def test_a_named_publishers_skill_runs_in_process_and_the_record_says_so() -> None:
    config = parse_config({"tool_call": {"wasm_runtime": {"in_process_publishers": ["acme"]}}})
    guests = FakeGuests()
    outcome = call_skill(skill(), config=config, guests=guests)
    assert guests.plans[0].in_process
    kept = outcome.attestation["sandbox_enforcement"]
    assert "SYSCALL_FILTER" not in kept["guarantees"]
    assert any("own process" in sentence for sentence in kept["degraded"])


def test_a_skill_of_another_publisher_with_a_like_name_is_jailed() -> None:
    config = parse_config({"tool_call": {"wasm_runtime": {"in_process_publishers": ["acm", "acme.test2"]}}})
    guests = FakeGuests()
    call_skill(skill(), config=config, guests=guests)
    assert not guests.plans[0].in_process


# ── host calls ──


def asked(
    operation: str, name: str, payload: bytes, grants: CapabilityGrants, **ports: Any
) -> tuple[HostAnswer, Outcome]:
    guests = FakeGuests(asks=((operation, name, payload),))
    run = ports.pop("run", None) or fake_run(parse_config(ALLOWING), grant=OperatorGrant(egress=None))
    ports.setdefault("policies", FakePolicies(PERMISSIVE))
    outcome = call_skill(skill(grants=grants), guests=guests, run=run, **ports)
    (answer,) = guests.answers
    return answer, outcome


PERMISSIVE = DEVELOPER.bundle
ROOTS = CapabilityGrants(storage=(StorageGrant(prefix="cache", writable=True),))


def test_storage_is_a_space_of_the_skill_under_the_granted_prefix() -> None:
    storage = FakeGuestStorage()
    assert asked("storage-put", "cache", b"k\0value", ROOTS, guest_storage=storage)[0] == HostAnswer()
    assert storage.kept == {("acme.test", "cache/k"): b"value"}
    assert asked("storage-get", "cache", b"k", ROOTS, guest_storage=storage)[0].body == b"value"
    assert asked("storage-list", "cache", b"", ROOTS, guest_storage=storage)[0].body == b"k"
    assert asked("storage-delete", "cache", b"k", ROOTS, guest_storage=storage)[0] == HostAnswer()
    assert asked("storage-get", "cache", b"k", ROOTS, guest_storage=storage)[0].number == abi.ABSENT


@promise("guest.broken-worker")
@pytest.mark.parametrize("key", [b"../x", b"/x", b"", b"a//b", b"\xff", b"a\nb", b".."])
def test_a_worker_that_broke_out_names_no_path_either(key: bytes) -> None:
    storage = FakeGuestStorage()
    answer, _ = asked("storage-put", "cache", key + b"\0v", ROOTS, guest_storage=storage)
    assert (answer.number, storage.kept) == (abi.BAD_ARGUMENT, {})


def test_a_full_space_is_an_answer() -> None:
    storage = FakeGuestStorage(quota_bytes=2)
    answer, outcome = asked("storage-put", "cache", b"k\0value", ROOTS, guest_storage=storage)
    assert (answer.number, outcome.status) == (abi.TOO_LARGE, Status.COMPLETED)


@promise("guest.broken-worker")
def test_a_worker_that_broke_out_cannot_make_more_calls_than_its_plan_has() -> None:
    guests = FakeGuests(asks=(("storage-put", "cache", b"k\0v"),) * 5)
    storage = FakeGuestStorage()
    tool = skill(grants=ROOTS, limits=WasmLimits(host_calls=2))
    call_skill(tool, guests=guests, guest_storage=storage)
    assert [answer.number for answer in guests.answers] == [0, 0, *[abi.TOO_LARGE] * 3]


def test_what_is_sent_to_a_channel_becomes_an_artifact_without_its_secrets() -> None:
    artifacts = FakeArtifacts()
    guests = FakeGuests(asks=(("channel-send", "out", b"one"), ("channel-send", "out", b"key s3cr3t-value")))
    outcome = call_skill(
        skill(grants=CapabilityGrants(channels=("out",))),
        guests=guests,
        artifacts=artifacts,
        secrets=FakeSecrets(values=(("token", b"s3cr3t-value"),)),
    )
    ((_, ref, data),) = artifacts.kept.values()
    assert (ref.name, [one.name for one in outcome.artifacts]) == ("channel-out", ["channel-out"])
    assert data.startswith(b"one\nkey ")
    assert b"s3cr3t" not in data
    assert outcome.output["host_calls"]["counts"] == {"channel-send": 2}


def test_a_log_line_is_one_line_without_secrets_or_colour(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "palyra.guest")
    asked(
        "log", "2", b"hi \x1b[31m\nroot: s3cr3t-value", CapabilityGrants(),
        secrets=FakeSecrets(values=(("token", b"s3cr3t-value"),)),
    )  # fmt: skip
    (said,) = [record.getMessage() for record in caplog.records if record.name == "palyra.guest"]
    assert said.isprintable()
    assert "s3cr3t" not in said


READING = CapabilityGrants(secrets=("token",), readable_secrets=frozenset({"token"}))


def test_a_secret_is_read_under_the_tools_own_scope_and_never_comes_out() -> None:
    secrets = FakeSecrets(values=(("token", b"s3cr3t-value"),))
    facts = FakeRunFacts()
    guests = FakeGuests(asks=(("secret-get", "token", b""),), output=b'"it is s3cr3t-value"')
    outcome = call_skill(
        skill(grants=READING), guests=guests, secrets=secrets, run_facts=facts, run=fake_run(parse_config(ALLOWING))
    )
    assert guests.answers == [HostAnswer(body=b"s3cr3t-value")]
    assert "s3cr3t" not in orjson.dumps(outcome_json(outcome)).decode()
    assert RunLabel.HAS_USED_SECRET in {label for labels in facts.marked.values() for label in labels}


@promise("guest.request-hosts")
def test_a_secret_outside_its_scope_is_not_granted() -> None:
    assert asked("secret-get", "token", b"", READING, secrets=FakeSecrets())[0].number == abi.NOT_GRANTED


def test_a_skill_that_reads_secrets_asks_a_person_first() -> None:
    guests = FakeGuests()
    outcome = call_skill(skill(grants=READING, capabilities=frozenset({Capability.SECRETS_READ})), guests=guests)
    assert (outcome.status, guests.plans) == (Status.REFUSED, [])
    assert outcome.reason is Reason.NOT_APPROVED


def test_a_skill_that_reaches_hosts_asks_a_person_first() -> None:
    guests = FakeGuests()
    outcome = call_skill(skill(grants=CapabilityGrants(http=("api.test",))), guests=guests)
    assert (outcome.status, guests.plans) == (Status.REFUSED, [])
    assert outcome.reason is Reason.NOT_APPROVED


HTTP = CapabilityGrants(http=("api.test",), secrets=("token",))
GET = b'{"method": "GET", "path": "/v1?q=1", "headers": [["Accept", "text/plain"]]}'


def granted_run() -> Any:

    return fake_run(parse_config(ALLOWING), grant=OperatorGrant(hosts=(parse_pattern("api.test"),)))


def fetch(payload: bytes, fetcher: FakeFetcher, **ports: Any) -> tuple[HostAnswer, Outcome]:
    return asked("http-fetch", "api.test", payload, HTTP, fetcher=fetcher, run=granted_run(), **ports)


@promise("guest.request-hosts")
def test_a_request_goes_to_the_handles_host_with_its_credential_alone() -> None:
    connected = (Connection(host="api.test", port=443, verdict="allowed", bytes_up=5, bytes_down=6),)
    answer = Fetched(
        status=200, url="https://api.test/v1", body=b"ok", connections=connected,
        headers=(("content-type", "text/plain"), ("set-cookie", "a=b")),
    )  # fmt: skip
    fetcher = FakeFetcher(answer=answer)
    held = tuple(
        Credential(secret=name, host="api.test", header="authorization", value=b"x") for name in ("token", "other")
    )
    got, outcome = fetch(GET, fetcher, secrets=FakeSecrets(held=held))
    assert orjson.loads(got.body) == {"status": 200, "headers": [["content-type", "text/plain"]], "body": "ok"}
    (order,) = fetcher.orders
    assert str(order.url) == "https://api.test/v1?q=1"
    assert [str(pattern) for pattern in order.net.hosts] == ["api.test:443"]
    assert order.headers == (("accept", "text/plain"), ("accept-encoding", "identity"))
    assert [one.secret for one in fetcher.sent] == ["token"]
    assert outcome.usage.fuel == 7


@promise("guest.request-hosts")
@pytest.mark.parametrize(
    "payload",
    [
        b"{", b"[]", b'{"path": "x"}', b'{"path": "//evil.test/x", "host": "evil.test"}',
        b'{"path": "/", "method": "PUT"}',
        b'{"path": "/", "headers": [["host", "evil.test"]]}', b'{"path": "/", "headers": [["authorization", "x"]]}',
        b'{"path": "/", "headers": [["accept", "a\\r\\nx: y"]]}', b'{"path": "/a b"}', b'{"path": "/\\r\\nx"}',
        b'{"path": "/", "body": "x"}', b'{"path": "/", "headers": {"accept": "x"}}', b'{"path": 1}',
    ],
)  # fmt: skip
def test_a_request_that_is_not_exactly_one_is_not_sent(payload: bytes) -> None:
    fetcher = FakeFetcher()
    assert fetch(payload, fetcher)[0].number == abi.BAD_ARGUMENT
    assert fetcher.orders == []


@promise("guest.request-hosts")
@pytest.mark.parametrize("path", ["@evil.test/", "//evil.test/", "/../../x", "/x#@evil.test"])
def test_a_path_never_changes_the_host(path: str) -> None:
    fetcher = FakeFetcher()
    fetch(orjson.dumps({"path": path}), fetcher)
    assert {order.url.host for order in fetcher.orders} <= {"api.test"}


@promise("guest.request-hosts")
def test_a_refused_redirect_is_a_failure_to_the_guest_and_stands_in_the_record() -> None:
    denied = (Connection(host="10.0.0.1", port=443, verdict="denied"),)
    fetcher = FakeFetcher(failure=FetchFailed("EGRESS_DENIED", "10.0.0.1 is private.", connections=denied))
    answer, outcome = fetch(GET, fetcher)
    assert (answer, outcome.status) == (HostAnswer(number=abi.FAILED), Status.COMPLETED)


@pytest.mark.parametrize(("headers", "truncated"), [((("content-encoding", "gzip"),), False), ((), True)])
def test_an_answer_that_cannot_be_given_whole_and_plain_is_none(headers: Any, truncated: bool) -> None:
    fetcher = FakeFetcher(answer=Fetched(status=200, url="x", headers=headers, body=b"x", truncated=truncated))
    answer, _ = fetch(GET, fetcher)
    assert answer.number in (abi.BAD_ARGUMENT, abi.TOO_LARGE)


class Endless(FakeFetcher):
    async def fetch(self, order: Any, credentials: Any) -> Fetched:
        await asyncio.sleep(60)
        return self.answer


def test_a_host_call_has_no_more_time_than_the_guest() -> None:
    assert fetch(GET, Endless())[0].number == abi.FAILED


def test_where_tier_c_is_a_container_a_guest_is_refused_before_anything_starts() -> None:
    container = ContainerFacts(
        runtime="podman", path="/usr/bin/podman", version="5", image="sha256:" + "a" * 64, memory=True, pids=True
    )
    guests = FakeGuests()
    outcome = call(host=replace(LINUX, bubblewrap=None, container=container), guests=guests)
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.UNENFORCEABLE)
    assert "no guests" in outcome.message
    assert guests.plans == []
