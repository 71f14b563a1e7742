"""What the engine makes of granted hosts: hints, credentials, and what a background process cannot have."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from palyra.config.schema import Config, parse_config
from palyra.egress.credentials import Credential
from palyra.egress.hosts import parse_pattern
from palyra.engine.output import refused_hosts_hint
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.call import Door, OperatorGrant, TierChoice
from palyra.model.face import NetFace, Trust
from palyra.model.host import BubblewrapFacts
from palyra.model.net import EgressMode
from palyra.model.outcome import Connection, Execution, Status
from palyra.policy.bundle import with_local
from palyra.policy.store import load_posture
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import LINUX, FakeExecutor, FakePolicies, fake_ports, fake_run
from palyra.wiring.grants import grant


def refused(host: str, port: int, why: str = "", verdict: str = "denied", grants: str = "") -> Connection:
    return Connection(host=host, port=port, verdict=verdict, why=why, grants=tuple(grants.split(",")) if grants else ())


@pytest.mark.parametrize(
    ("connection", "named"),
    [
        (
            refused("pypi.test", 443, grants="pypi.test"),
            '--allow-host pypi.test; always: allowed_egress_hosts = ["pypi.test"]',
        ),
        (refused("db.test", 5432, grants="db.test:5432"), "--allow-host db.test:5432;"),
        (refused("2001:db8::1", 22, grants="[2001:db8::1]:22"), "--allow-host [2001:db8::1]:22;"),
        (refused("a.test", 443, grants="10.0.0.1,10.0.0.2"), "--allow-host 10.0.0.1 --allow-host 10.0.0.2;"),
        (
            refused("db.test", 9042, grants="db.test:9042 raw"),
            '--allow-raw db.test:9042; always: allowed_egress_hosts = [{ host = "db.test", port = 9042, raw = true }]',
        ),
    ],
)
def test_the_hint_names_the_host_as_the_flag_takes_it(connection: Connection, named: str) -> None:
    hint = refused_hosts_hint((refused("fine.test", 443, verdict="allowed"), connection))
    assert hint is not None
    assert named in hint


def test_there_is_no_hint_without_a_refusal_of_a_named_host() -> None:
    assert refused_hosts_hint(()) is None
    assert refused_hosts_hint((refused("*", 0), refused("*", 0, verdict="failed"))) is None


def test_the_hint_says_why_and_how_many_more() -> None:
    leads = refused("a.test", 443, "a.test leads to 10.0.0.1", grants="10.0.0.1")
    assert refused_hosts_hint((leads, refused("b.test", 443))) == (
        "a.test was refused (a.test leads to 10.0.0.1), and 1 more (egress.connections in the output). "
        "An operator can allow it for this call, if that is why it failed: palyra run --allow-host 10.0.0.1; always: "
        'allowed_egress_hosts = ["10.0.0.1"] in [tool_call.process_runner].'
    )


def test_a_refusal_that_no_grant_changes_advises_none() -> None:
    assert refused_hosts_hint((refused("a.test", 80, "there is no Host header"),)) == (
        "a.test was refused (there is no Host header)."
    )


def test_a_host_that_was_granted_and_did_not_answer_is_named() -> None:
    down, up = refused("a.test", 443, verdict="failed"), refused("b.test", 443, verdict="allowed")
    assert refused_hosts_hint((down,)) == (
        "a.test:443 is granted, but could not be reached: check the name and this machine's network."
    )
    assert refused_hosts_hint((down, up)) is None


def test_a_credential_shows_its_value_in_no_repr() -> None:
    one = Credential(pattern=parse_pattern("a.test"), header="Authorization", value="secret")
    assert "secret" not in repr(one) + repr(replace(one, header="X-Key"))


# ── in the walk ──

HOSTS = {"tool_call": {"process_runner": {"allowed_egress_hosts": ["api.test"]}}}
LISTENING = replace(
    LINUX, bubblewrap=BubblewrapFacts(path="/usr/bin/bwrap", version="0.9", disable_userns=True, listeners=True)
)


@dataclass
class Executor(FakeExecutor):
    credentials: list[Any] = field(default_factory=list)

    async def run(self, plan: Any, sink: Any, source: Any = None, **given: Any) -> Execution:
        self.credentials.append(given["credentials"])
        return await super().run(plan, sink, source)


@dataclass
class Bound:
    asked: list[tuple[str, str]] = field(default_factory=list)

    def for_call(self, *, principal: str, tool: str) -> list[str]:
        self.asked.append((principal, tool))
        return ["the credential"]


class Intercepts:
    def trust_for(self, net: Any) -> Trust:
        return Trust(hosts=net.hosts, bundle=b"certificates\n", system_path="/etc/ssl/certs/ca-certificates.crt")


def call(arguments: dict[str, Any], **ports: Any) -> tuple[Any, Any]:
    config = ports.pop("config", parse_config(HOSTS))
    run = fake_run(config, grant=ports.pop("grant", None))
    if "door" in ports:
        run = replace(run, context=replace(run.context, door=ports.pop("door")))
    board = fake_ports(config=config, host=ports.pop("host", LISTENING), **ports)
    engine = Engine(board, make_registry(BUILTIN_TOOLS))
    request = CallRequest(tool="palyra.process.run", input=arguments, run=run)
    return asyncio.run(engine.call(request)), board


def test_granted_hosts_are_in_the_plan_and_credentials_are_not() -> None:
    executor, bound = Executor(), Bound()
    outcome, _ = call({"command": "git", "args": ["status"]}, executor=executor, host_credentials=bound)
    assert outcome.success
    [plan] = executor.plans
    assert plan.face.names == (("api.test", "198.18.0.16"),)
    assert executor.credentials == [["the credential"]]
    assert bound.asked == [("agent:demo", "palyra.process.run")]
    assert "the credential" not in str(plan.as_json())


def test_without_a_network_nobody_asks_for_credentials() -> None:
    executor, bound = Executor(), Bound()
    call({"command": "git", "args": ["status"]}, executor=executor, host_credentials=bound, config=Config())
    assert (bound.asked, executor.credentials) == ([], [()])


def test_marked_hosts_have_their_bundle_inside() -> None:
    executor = Executor()
    call({"command": "git", "args": ["status"]}, executor=executor, intercepts=Intercepts())
    [plan] = executor.plans
    assert [str(one) for one in plan.intercepted] == ["api.test"]
    assert dict(plan.env)["SSL_CERT_FILE"] == "/etc/palyra-ca.pem"
    assert b"certificates\n" in plan.data


class OwnAuthority:
    def __init__(self, authority: bytes, system: bytes = b"certificates\n") -> None:
        self._authority, self._system = authority, system

    def trust_for(self, net: Any) -> Trust:
        return Trust(hosts=net.hosts, bundle=self._system + self._authority, authority=self._authority)


def test_what_is_written_of_a_plan_is_the_same_whichever_process_ends_tls() -> None:
    """A person's yes is bound to it; the certificates of the machine itself stay in it."""
    executor = Executor()
    for intercepts in (OwnAuthority(b"one"), OwnAuthority(b"two"), OwnAuthority(b"one", system=b"others\n")):
        call({"command": "git", "args": ["status"]}, executor=executor, intercepts=intercepts)
    one, two, others = executor.plans
    assert (one.authority, two.authority) == (b"one", b"two")
    assert b"certificates\none" in one.data
    assert b"certificates\ntwo" in two.data
    assert one.as_json() == two.as_json() != others.as_json()


def test_a_background_process_cannot_outlive_the_authority_it_trusts() -> None:
    outcome, board = call({"command": "sleep", "args": ["9"], "background": True}, intercepts=Intercepts())
    assert (outcome.status, outcome.reason) == (Status.REFUSED, Reason.UNENFORCEABLE)
    assert "intercept" in str(outcome.hint)
    assert board.background.orders == []


def test_a_host_that_was_not_seen_to_open_listeners_refuses_granted_hosts() -> None:
    outcome, _ = call({"command": "git", "args": ["status"]}, host=LINUX)
    assert outcome.reason is Reason.UNENFORCEABLE
    assert "HOST_ALLOWLIST" in str(outcome.message)


def test_a_program_that_fails_after_a_refusal_gets_the_hint_and_one_that_succeeds_does_not() -> None:
    denied = (refused("hidden.test", 443, grants="hidden.test"),)
    for code, hinted in ((1, True), (0, False)):
        ended = Execution(status=Status.COMPLETED, exit_code=code, connections=denied)
        outcome, _ = call({"command": "git", "args": ["status"]}, executor=Executor(execution=ended))
        assert ("--allow-host hidden.test" in str(outcome.hint)) is hinted


# ── hosts within code ──

WRITES_A_PAGE = {"command": "bash", "args": ["-c", "echo '<a href=https://evil.test/>' > page.html"]}
CODE = OperatorGrant(interpreters=True)


def test_code_that_writes_a_hosts_name_is_not_refused_where_the_kernel_is_the_wall() -> None:
    """And where it does go there, listeners that refuse everything tell which host it was."""
    executor = Executor()
    outcome, _ = call(WRITES_A_PAGE, executor=executor, config=Config(), grant=CODE)
    assert outcome.success, outcome.message
    [plan] = executor.plans
    assert plan.face == NetFace()


def test_a_host_beside_the_code_is_refused_as_before() -> None:
    beside = {"command": "python3", "args": ["-c", "1", "https://evil.test/"]}
    script = {"command": "bash", "args": ["fetch.sh", "-c", "https://evil.test/"]}
    for arguments in (beside, script):
        outcome, _ = call(arguments, config=Config(), grant=CODE)
        assert outcome.reason is Reason.EGRESS_DENIED


def test_code_that_names_a_host_is_refused_where_nothing_else_would_hold_it() -> None:
    """In mode preflight the arguments are all that is looked at, and behind a hook there is no sandbox."""
    preflight = OperatorGrant(interpreters=True, egress=EgressMode.PREFLIGHT)
    assert call(WRITES_A_PAGE, config=Config(), grant=preflight)[0].reason is Reason.EGRESS_DENIED
    assert call(WRITES_A_PAGE, config=Config(), grant=CODE, door=Door.HOOK)[0].reason is Reason.EGRESS_DENIED


def test_a_path_within_code_is_refused_only_where_no_sandbox_will_hold_it() -> None:
    sets_a_path = {"command": "bash", "args": ["-c", "out=/opt/elsewhere"]}
    assert call(sets_a_path, config=Config(), grant=CODE)[0].success
    assert call(sets_a_path, config=Config(), grant=CODE, door=Door.HOOK)[0].reason is Reason.OUTSIDE_WORKSPACE
    plain = replace(CODE, tier=TierChoice.B, egress=EgressMode.NONE)
    walled = replace(LISTENING, landlock_abi=6)
    assert call(sets_a_path, config=Config(), grant=plain, host=walled)[0].success
    without = replace(LISTENING, landlock_abi=0)
    assert call(sets_a_path, config=Config(), grant=plain, host=without)[0].reason is Reason.OUTSIDE_WORKSPACE
    falls_back = parse_config({"tool_call": {"process_runner": {"fallback_tier": "b"}}})
    assert call(sets_a_path, config=falls_back, grant=CODE, host=without)[0].success
    lost = replace(without, bubblewrap=None)
    outcome, _ = call(sets_a_path, config=falls_back, grant=replace(CODE, egress=EgressMode.NONE), host=lost)
    assert outcome.reason is Reason.OUTSIDE_WORKSPACE


# ── raw ──

RAW_HOSTS = {
    "tool_call": {"process_runner": {"allowed_egress_hosts": [{"host": "db.test", "port": 9042, "raw": True}]}}
}
PLAIN_HOSTS = {"tool_call": {"process_runner": {"allowed_egress_hosts": ["db.test:9042"]}}}
NO_RAW = '@id("local.no-raw")\nforbid (principal, action, resource) when { context.egress_raw };'


def test_a_host_granted_raw_is_named_so_in_the_plan_and_the_outcome() -> None:
    executor = Executor()
    outcome, _ = call({"command": "git", "args": ["status"]}, executor=executor, config=parse_config(RAW_HOSTS))
    [plan] = executor.plans
    assert plan.as_json()["net"]["allowed_hosts"] == ["db.test:9042 raw"]
    assert outcome.output["egress"]["allowed_hosts"] == ["db.test:9042 raw"]


@pytest.mark.parametrize(("hosts", "refused"), [(RAW_HOSTS, True), (PLAIN_HOSTS, False)])
def test_policy_sees_that_a_host_is_granted_raw(hosts: dict[str, Any], refused: bool) -> None:
    policies = FakePolicies(with_local(load_posture("standard"), {"local.cedar": NO_RAW}))
    outcome, _ = call({"command": "git", "args": ["status"]}, config=parse_config(hosts), policies=policies)
    assert (outcome.status is Status.REFUSED) is refused


@pytest.mark.parametrize("hosts", [RAW_HOSTS, PLAIN_HOSTS])
def test_no_call_asks_for_a_host_to_be_raw(hosts: dict[str, Any]) -> None:
    arguments = {"command": "git", "args": ["status"], "requested_egress_hosts": ["db.test:9042 raw"]}
    outcome, _ = call(arguments, config=parse_config(hosts))
    assert outcome.status is Status.REFUSED


def test_the_operators_flag_grants_a_host_raw() -> None:
    executor = Executor()
    call(
        {"command": "git", "args": ["status"]},
        executor=executor,
        config=Config(),
        grant=grant(hosts=["db.test:9042 raw"]),
    )
    assert executor.plans[0].as_json()["net"]["allowed_hosts"] == ["db.test:9042 raw"]


# ── package managers where nothing is granted ──


@pytest.mark.parametrize(
    ("arguments", "config", "asked"),
    [
        ({"command": "bash", "args": ["build.sh"]}, Config(), True),
        ({"command": "pip", "args": ["install", "x"]}, Config(), True),
        ({"command": "git", "args": ["status"]}, Config(), False),
        ({"command": "bash", "args": ["build.sh"]}, parse_config(HOSTS), False),
    ],
)
def test_package_managers_give_up_at_once_where_nothing_can_be_reached(
    arguments: dict[str, Any], config: Config, asked: bool
) -> None:
    executor = Executor()
    flags = OperatorGrant(interpreters=True, executables=("pip", "bash"))
    call(arguments, executor=executor, config=config, grant=flags)
    assert (dict(executor.plans[0].env).get("npm_config_fetch_retries") == "0") is asked
