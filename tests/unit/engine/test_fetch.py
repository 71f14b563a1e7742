"""palyra.http.fetch in the walk: granted or refused, redacted, attested as what really ran."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson
import pytest

from palyra.attest import check_outcome
from palyra.config.schema import parse_config
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason, StateError
from palyra.model.call import OperatorGrant
from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchFailed, Hop
from palyra.model.net import NO_NETWORK, EgressMode
from palyra.model.outcome import Connection, Execution, Outcome, Status, Usage
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.protocol.wire import outcome_json
from palyra.testing import FakeExecutor, FakeFetcher, FakeSecrets, fake_ports, fake_run

OWN = (("/etc/.palyra-inside/palyra/inside/page.py", b"print()"),)
CONFIG = parse_config({"tool_call": {"process_runner": {"allowed_egress_hosts": ["a.test", "a.test:8080"]}}})
URL = "https://a.test/x"
PAGE = {"content_type": "text/html", "truncated": False, "text": "hi"}
CONNECTED = (Connection(host="a.test", port=443, verdict="allowed", bytes_up=10, bytes_down=20),)
ANSWER = Fetched(
    status=200, url="https://a.test/y", body=b"<p>hi",
    headers=(("content-type", "text/html"), ("set-cookie", "s=1"), ("etag", '"1"'), ("www-authenticate", "x")),
    redirects=(Hop("https://a.test/x", 302),), connections=CONNECTED,
)  # fmt: skip


class Reader(FakeExecutor):
    """The parsing program; `said` is what it was given."""

    said: list[bytes]

    async def run(self, plan: Any, sink: Any, source: Any = None, **given: object) -> Execution:
        self.said = [await source.read()]
        return await super().run(plan, sink, source, **given)


def reads(answer: Any = None, **execution: Any) -> Reader:
    given = {"status": Status.COMPLETED, "exit_code": 0, "usage": Usage(wall_us=1)} | execution
    return Reader(stdout=orjson.dumps({"result": PAGE} if answer is None else answer), execution=Execution(**given))


def call(ports: Any, *, run: Any = None, **arguments: Any) -> Outcome:
    engine = Engine(ports, make_registry(BUILTIN_TOOLS))
    given = {"url": URL} | arguments
    return asyncio.run(engine.call(CallRequest(tool="palyra.http.fetch", input=given, run=run or fake_run(CONFIG))))


def ports_of(fetcher: FakeFetcher | None = None, executor: Any = None, **given: Any) -> Any:
    fetcher = fetcher or FakeFetcher(answer=ANSWER)
    return fake_ports(config=CONFIG, fetcher=fetcher, executor=executor or reads(), own_files=OWN, **given)


def test_an_answer_is_read_in_the_sandbox_and_told_with_its_way():
    ports = ports_of()
    outcome = call(ports)
    assert (outcome.status, outcome.success) == (Status.COMPLETED, True)
    assert outcome.output == {
        "status": 200,
        "url": "https://a.test/y",
        "headers": {"content-type": "text/html", "etag": '"1"'},
        **PAGE,
        "redirects": [{"url": "https://a.test/x", "status": 302}],
        "egress": {
            "mode": "strict",
            "allowed_hosts": ["a.test", "a.test:8080"],
            "connections": [{"host": "a.test", "port": 443, "verdict": "allowed", "bytes_up": 10, "bytes_down": 20}],
        },
    }
    (plan,) = ports.executor.plans
    assert (plan.net, "--bind" in plan.launcher) == (NO_NETWORK, False)
    head, _, body = ports.executor.said[0].partition(b"\n")
    assert (orjson.loads(head)["content_type"], body) == ("text/html", b"<p>hi")
    assert outcome.attestation["executor"] == "sandbox_tier_c_linux_bubblewrap"
    assert outcome.attestation["egress_sha256"]
    assert [f for f in check_outcome(outcome_json(outcome), ports.key.public) if f.code != "RECEIPT"] == []


def test_the_plan_that_is_attested_names_request_and_reader():
    ports = ports_of()
    call(ports, method="POST", body="secret body")
    plan = orjson.loads(ports.journal.openings[0].details)["plan"]
    assert (plan["kind"], plan["order"]["method"], plan["order"]["url"]) == ("fetch", "POST", URL)
    assert plan["parser"]["net"] == {"mode": "strict", "allowed_hosts": []}
    assert "secret body" not in orjson.dumps(plan["order"]).decode()


@pytest.mark.parametrize("url", ["https://evil.test/", "http://a.test:81/", "http://127.0.0.1/", "http://sub.a.test/"])
def test_a_host_that_is_not_granted_is_refused_before_anything_runs(url: str):
    ports = ports_of()
    outcome = call(ports, url=url)
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.EGRESS_DENIED)
    assert (ports.fetcher.orders, ports.executor.plans) == ([], [])


@pytest.mark.parametrize(
    "given",
    [
        {"url": "file:///etc/passwd"},
        {"url": "http://u:p@a.test/"},
        {"url": "http://a.test/\r\nX: y"},
        {"method": "PUT"},
        *({"headers": {name: "x"}} for name in ("authorization", "host", "cookie", "Accept", "connection")),
        *({"headers": {"accept": value}} for value in ("a\r\nb: c", "a\n", "\x00", "é", 1)),
        {"body": "x"},
        {"method": "HEAD", "body_base64": "eA=="},
        {"method": "POST", "body_base64": "!"},
        {"method": "POST", "body": "x", "body_base64": "eA=="},
        {"max_bytes": 1 << 30},
        {"timeout_ms": 10**9},
        {"max_redirects": 100},
        {"proxy": "http://x"},
    ],
)
def test_what_is_no_request_is_refused(given: dict[str, Any]):
    ports = ports_of()
    assert call(ports, **given).reason is Reason.BAD_ARGUMENTS
    assert ports.fetcher.orders == []


@pytest.mark.parametrize(
    ("code", "status", "reason"),
    [
        ("EGRESS_DENIED", Status.COMPLETED, Reason.EGRESS_DENIED),
        ("TIMEOUT", Status.TIMEOUT, Reason.TIMEOUT),
        ("CONNECT_FAILED", Status.COMPLETED, None),
        ("TLS_FAILED", Status.COMPLETED, None),
    ],
)
def test_what_did_not_come_back_is_told_and_no_sandbox_is_named_for_it(
    code: str, status: Status, reason: Reason | None
):
    failure = FetchFailed(code, "It did not work.", redirects=(Hop(URL, 302),), connections=CONNECTED)
    ports = ports_of(FakeFetcher(failure=failure))
    outcome = call(ports)
    assert (outcome.status, outcome.success, outcome.reason) == (status, False, reason)
    assert outcome.output["error"] == {"code": code, "message": "It did not work."}
    assert outcome.output["redirects"] == [{"url": URL, "status": 302}]
    assert (outcome.attestation["executor"], ports.executor.plans) == ("builtin", [])
    assert outcome.attestation["sandbox_enforcement"]["guarantees"] == []
    assert [f for f in check_outcome(outcome_json(outcome), ports.key.public) if f.code != "RECEIPT"] == []


def test_an_open_network_needs_the_operators_flag():
    config = parse_config({"tool_call": {"process_runner": {"egress_enforcement_mode": "none"}}})
    ports = fake_ports(config=config, fetcher=FakeFetcher(answer=ANSWER), executor=reads(), own_files=OWN)
    assert call(ports, run=fake_run(config), url="http://any.test/").reason is Reason.NOT_APPROVED
    grant = OperatorGrant(egress=EgressMode.NONE)
    assert call(ports_of(), run=fake_run(CONFIG, grant=grant), url="http://any.test/").success


def test_credentials_are_asked_for_by_principal_and_tool_and_shown_nowhere():
    token = b"tok-very-secret"
    secrets = FakeSecrets(
        values=(("TOKEN", token),),
        held=(Credential(secret="TOKEN", host="a.test", header="Authorization", value=b"Bearer " + token),),
    )
    echoed = PAGE | {"text": f"you sent Bearer {token.decode()}"}
    ports = ports_of(executor=reads({"result": echoed}), secrets=secrets)
    outcome = call(ports)
    assert secrets.asked == [("a.test", 443, "agent:demo", "palyra.http.fetch")]
    assert [one.value for one in ports.fetcher.sent] == [b"Bearer " + token]
    whole = orjson.dumps(outcome_json(outcome)) + b"".join(c.outcome + c.details for c in ports.journal.closings)
    whole += b"".join(o.details for o in ports.journal.openings) + b"".join(ports.executor.said)
    assert token not in whole
    assert outcome.attestation["redactions"]


def test_a_secret_in_a_binary_answer_is_redacted_within():
    token = b"tok-very-secret"
    data = base64.b64encode(b"\xff\x00x" + token).decode()
    answer = {"result": {"content_type": "image/png", "truncated": False, "body_base64": data}}
    outcome = call(ports_of(executor=reads(answer), secrets=FakeSecrets(values=(("TOKEN", token),))))
    assert token not in base64.b64decode(outcome.output["body_base64"])


def test_a_vault_that_cannot_be_read_sends_nothing():
    class Broken(FakeSecrets):
        def credentials(self, *_: Any, **__: Any) -> Any:
            raise StateError("The vault was changed.", "Restore it.")

    outcome = call(ports_of(secrets=Broken()))
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.CAPABILITY_DENIED)
    assert outcome.message == "The vault was changed."


def test_a_cut_on_the_wire_is_a_cut_in_the_answer():
    from dataclasses import replace

    assert call(ports_of(FakeFetcher(answer=replace(ANSWER, truncated=True)))).output["truncated"] is True


def test_a_reader_that_fails_or_refuses_is_told():
    refused = {"error": {"code": "BAD_ENCODING", "message": "damaged"}}
    outcome = call(ports_of(executor=reads(refused, exit_code=1)))
    assert (outcome.success, outcome.message, outcome.output["error"]["code"]) == (False, "damaged", "BAD_ENCODING")
    assert call(ports_of(executor=reads({"result": 1}))).reason is Reason.INTERNAL
    unstarted = reads({}, status=Status.FAILED, reason=Reason.SPAWN_FAILED, message="no room", exit_code=None)
    outcome = call(ports_of(executor=unstarted))
    assert (outcome.reason, outcome.attestation["executor"]) == (Reason.SPAWN_FAILED, "builtin")
    assert outcome.output["egress"]["connections"][0]["host"] == "a.test", "it was reached all the same"
    burnt = reads({}, reason=Reason.CPU_LIMIT, exit_code=None, signal=24)
    assert call(ports_of(executor=burnt)).reason is Reason.CPU_LIMIT


def test_where_an_answer_was_cut_no_beginning_of_a_secret_is_left():
    """The caller chooses where: all but the last letter of a token that a host sends back could stand there."""
    secret = b"Zq81mmWc0d4XyTr55Lpo"
    told = {"X-Forge: " + secret.decode()[:size]: "" for size in (1, 10, 19)} | {"x" * 500: "", "": ""}
    for text in told:
        page = {"content_type": "text/plain", "truncated": True, "text": "a line of it\n" * 100 + text}
        ports = ports_of(executor=reads({"result": page}), secrets=FakeSecrets(values=(("FORGE", secret),)))
        shown = call(ports).output["text"]
        assert "X-Forge" not in shown
        told[text] = str(len(page["text"]) - len(shown))
    assert len(set(told.values())) == 1, "what is missing says nothing about what it was"
