"""An audit answers every question, and each thing that speaks against a skill has a check of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from palyra.config.schema import Config
from palyra.model.wasm import GuestKind, ModuleFacts
from palyra.skills.capabilities import Capabilities, Quotas, SecretScope
from palyra.skills.findings import Check, CheckStatus
from palyra.skills.review import review
from palyra.skills.subject import KnownBad, ModuleSight, Subject
from palyra.wiring.skill_audit import SURFACE, ceilings_of, read_feed
from tests.making_skills import manifest
from tests.promises import promise

HOST = "palyra:plugins/host@0.1.0"
FACTS = ModuleFacts(
    kind=GuestKind.CORE, size_bytes=100, memories=1, imports=((HOST, "input-len"),), exports=("memory", "run")
)
CEILINGS = ceilings_of(Config())
PATH = "modules/echo.wasm"


def subject(sight: ModuleSight | None = None, **changes: Any) -> Subject:
    plain = Subject(
        manifest=manifest(),
        payload_sha256="p" * 64,
        key_id="key",
        digests={PATH: "d" * 64},
        modules={PATH: sight or ModuleSight(facts=FACTS)},
    )
    return replace(plain, **changes)


def found(checks: tuple[Check, ...], check_id: str) -> Check:
    return next(check for check in checks if check.check_id == check_id)


def judged(check_id: str, sight: ModuleSight | None = None, **changes: Any) -> tuple[CheckStatus, dict]:
    check = found(review(subject(sight, **changes), SURFACE, CEILINGS), check_id)
    return check.status, dict(check.details)


def asking(**changes: Any) -> dict[str, Any]:
    return {"manifest": manifest(capabilities=Capabilities(**changes))}


def test_an_honest_skill_passes_every_check():
    checks = review(subject(), SURFACE, CEILINGS)
    assert {check.status for check in checks} == {CheckStatus.PASS}
    assert [check.check_id for check in checks] == [
        "compat.palyra",
        "feed.known_bad",
        "module.shape",
        "module.imports",
        "module.exports",
        "module.size",
        "module.compile",
        "capability.ceiling",
        "capability.wildcard",
        "capability.device",
        "capability.secrets",
        "capability.fuel",
        "content.secrets",
        "content.urls",
        "capability.diff",
    ]


@promise("skills.audited-module")
@pytest.mark.parametrize(
    "wanted",
    [
        ("wasi_snapshot_preview1", "fd_write"),
        ("wasi_snapshot_preview1", "environ_get"),
        ("env", "system"),
        (HOST, "process-spawn"),
        ("palyra:plugins/host-capabilities@0.1.0", "http-fetch"),
    ],
)
def test_an_import_that_guests_are_not_offered_fails(wanted):
    status, details = judged("module.imports", ModuleSight(facts=replace(FACTS, imports=(wanted,))))
    assert (status, details["imports"]) == (CheckStatus.FAIL, [" ".join(wanted)])


@promise("skills.audited-module")
@pytest.mark.parametrize(
    ("function", "need", "enough"),
    [
        ("http-fetch", "http_egress_allowlist", {"http_egress_allowlist": ("a.example",)}),
        (
            "secret-get",
            "secrets.raw_key_names",
            {"secrets": (SecretScope(scope="skill:acme.echo", key_names=("k",), raw_key_names=("k",)),)},
        ),
        ("storage-get", "filesystem.read_roots", {"read_roots": ("a",)}),
        ("storage-list", "filesystem.read_roots", {"write_roots": ("a",)}),
        ("storage-put", "filesystem.write_roots", {"write_roots": ("a",)}),
        ("storage-delete", "filesystem.write_roots", {"write_roots": ("a",)}),
        ("channel-send", "channels", {"channels": ("news",)}),
    ],
)
def test_an_import_that_no_capability_justifies_fails(function, need, enough):
    sight = ModuleSight(facts=replace(FACTS, imports=((HOST, function),)))
    status, details = judged("module.imports", sight)
    assert (status, details["missing"]) == (CheckStatus.FAIL, [need])
    assert judged("module.imports", sight, **asking(**enough))[0] is CheckStatus.PASS


def test_reading_a_root_does_not_justify_writing_it():
    sight = ModuleSight(facts=replace(FACTS, imports=((HOST, "storage-put"),)))
    assert judged("module.imports", sight, **asking(read_roots=("a",)))[0] is CheckStatus.FAIL


def test_a_component_may_import_its_whole_world_but_nothing_else():
    world = tuple((f"palyra:plugins/{name}@0.1.0", "") for name in ("http", "log", "storage"))
    facts = replace(FACTS, kind=GuestKind.COMPONENT, imports=world, exports=("run",))
    status, details = judged("module.imports", ModuleSight(facts=facts))
    assert (status, details["missing"]) == (CheckStatus.WARN, ["filesystem.read_roots", "http_egress_allowlist"])
    wasi = replace(facts, imports=(("wasi:filesystem/types@0.2.0", ""),))
    assert judged("module.imports", ModuleSight(facts=wasi))[0] is CheckStatus.FAIL


@promise("skills.audited-module")
def test_a_shape_that_was_refused_and_a_module_that_does_not_compile_fail():
    assert judged("module.shape", ModuleSight(refused="has more than 200000 functions."))[0] is CheckStatus.FAIL
    sight = ModuleSight(facts=FACTS, not_compiled="could not be compiled within its limits")
    assert judged("module.compile", sight)[0] is CheckStatus.FAIL


@promise("skills.audited-module")
def test_memory_and_tables_beyond_the_quota_fail():
    much = ModuleSight(facts=replace(FACTS, memory_min_pages=2000))
    assert judged("module.size", much)[0] is CheckStatus.FAIL
    own = asking(quotas=Quotas(max_memory_bytes=1 << 16))
    assert judged("module.size", ModuleSight(facts=replace(FACTS, memory_min_pages=2)), **own)[0] is CheckStatus.FAIL
    tables = ModuleSight(facts=replace(FACTS, table_min_elements=1 << 30))
    assert judged("module.size", tables)[0] is CheckStatus.FAIL


def test_a_missing_entry_fails_and_strange_exports_or_a_start_function_warn():
    assert judged("module.entry", ModuleSight(facts=replace(FACTS, exports=("memory",))))[0] is CheckStatus.FAIL
    for facts in (replace(FACTS, exports=("run", "_start")), replace(FACTS, has_start=True)):
        assert judged("module.exports", ModuleSight(facts=facts))[0] is CheckStatus.WARN


def test_wishes_beyond_what_the_host_gives():
    high = asking(quotas=Quotas(wall_clock_timeout_ms=10**9, fuel_budget=10**12))
    status, details = judged("capability.ceiling", **high)
    assert (status, sorted(details)) == (CheckStatus.WARN, ["wall_clock_timeout_ms"])
    status, details = judged("capability.fuel", **high)
    assert (status, details) == (CheckStatus.WARN, {PATH: {"asked": 10**12, "gets": CEILINGS.fuel}})
    closed = replace(CEILINGS, capabilities=frozenset())
    checks = review(subject(**asking(http_egress_allowlist=("a.example",))), SURFACE, closed)
    assert found(checks, "capability.ceiling").status is CheckStatus.FAIL


def test_the_audit_names_the_fuel_that_each_module_gets():
    """One budget is held against what the module's own kind is given, not against the larger of both."""
    between = (CEILINGS.fuel + CEILINGS.component_fuel) // 2
    assert CEILINGS.fuel < between < CEILINGS.component_fuel
    component = ModuleSight(facts=replace(FACTS, kind=GuestKind.COMPONENT))
    asked = asking(quotas=Quotas(fuel_budget=between))
    status, details = judged("capability.fuel", **asked)
    assert (status, details) == (CheckStatus.WARN, {PATH: {"asked": between, "gets": CEILINGS.fuel}})
    checks = review(subject(component, **asked), SURFACE, CEILINGS)
    assert found(checks, "capability.fuel").message == f"Fuel in each call: {PATH} {between}."
    by_default = found(review(subject(component), SURFACE, CEILINGS), "capability.fuel")
    assert str(manifest().capabilities.quotas.limits(GuestKind.COMPONENT).fuel) in by_default.message


def test_wildcards_devices_and_secrets_of_others_fail():
    wild = asking(http_egress_allowlist=("*.example.com",), wildcard_opt_in=("http_egress_allowlist",))
    assert judged("capability.wildcard", **wild)[0] is CheckStatus.FAIL
    assert judged("capability.device", **asking(device_capabilities=("camera",)))[0] is CheckStatus.FAIL
    for scope in ("vault", "skill:acme.other"):
        theirs = asking(secrets=(SecretScope(scope=scope, key_names=("k",)),))
        assert judged("capability.secrets", **theirs)[0] is CheckStatus.FAIL
    raw = asking(secrets=(SecretScope(scope="skill:acme.echo", key_names=("k",), raw_key_names=("k",)),))
    assert judged("capability.secrets", **raw)[0] is CheckStatus.WARN


def test_embedded_secrets_and_strange_addresses_warn():
    sight = ModuleSight(facts=FACTS, secret_shapes=2, urls=("https://calls.home.example",))
    assert judged("content.secrets", sight) == (CheckStatus.WARN, {"places": 2})
    assert judged("content.urls", sight)[0] is CheckStatus.WARN
    granted = asking(http_egress_allowlist=("calls.home.example",))
    assert judged("content.urls", sight, **granted)[0] is CheckStatus.PASS


@promise("skills.update-review")
def test_what_a_version_asks_for_beyond_the_one_before_is_named():
    before = manifest(version="0.0.9", capabilities=Capabilities(channels=("news",)))
    after = asking(http_egress_allowlist=("a.example",), quotas=Quotas(max_memory_bytes=1 << 27))
    status, details = judged("capability.diff", previous=before, **after)
    assert status is CheckStatus.WARN
    assert details == {
        "from": "0.0.9",
        "added": ["Sends requests to a.example.", f"Uses up to {1 << 27} bytes of memory."],
        "removed": ["Sends to the channel news."],
    }


@promise("skills.update-review")
def test_an_update_that_has_people_asked_about_less_does_not_pass_for_the_same():
    now = manifest()
    (tool,) = now.tools
    strict = (replace(tool, requires_approval=True, default_sensitive=True),)
    before = replace(now, version="0.0.9", tools=strict, review_required=True)
    status, details = judged("capability.diff", previous=before, manifest=replace(now, review_required=False))
    assert (status, details["added"]) == (
        CheckStatus.WARN,
        [
            f"No longer asks a person before each call of {tool.id}.",
            f"No longer marks {tool.id} as sensitive.",
            "No longer requires a review of each version.",
        ],
    )


@promise("skills.update-review")
def test_a_tool_that_is_new_or_described_anew_is_named():
    now = manifest()
    (tool,) = now.tools
    told = replace(now, version="0.0.9", tools=(replace(tool, description="Something harmless."),))
    status, details = judged("capability.diff", previous=told)
    assert (status, details["described_anew"], details["added"]) == (CheckStatus.WARN, [tool.id], [])
    more = replace(now, tools=(tool, replace(tool, id=f"{tool.id}-two")))
    assert judged("capability.diff", previous=now, manifest=more)[1]["added"] == [f"Brings the new tool {tool.id}-two."]


def test_fuel_that_is_not_named_any_more_may_be_more():
    before = manifest(version="0.0.9", capabilities=Capabilities(quotas=Quotas(fuel_budget=1000)))
    assert judged("capability.diff", previous=before)[1]["added"] == ["Uses up to the usual fuel."]


def test_another_key_than_the_version_before_is_told():
    assert judged("trust.key", previous=manifest(version="0.0.9"), previous_key_id="old")[0] is CheckStatus.WARN


def test_a_newer_palyra_that_is_needed_fails():
    assert judged("compat.palyra", manifest=manifest(min_palyra="99.0.0"))[0] is CheckStatus.FAIL


@pytest.mark.parametrize(
    "feed",
    [
        KnownBad(digests=frozenset({"p" * 64})),
        KnownBad(digests=frozenset({"d" * 64})),
        KnownBad(publishers=frozenset({"acme"})),
        KnownBad(unreadable="No such file."),
    ],
)
def test_what_is_known_to_be_bad_or_cannot_be_known_fails(feed):
    assert judged("feed.known_bad", known_bad=feed)[0] is CheckStatus.FAIL


def test_a_feed_that_cannot_be_read_lets_nothing_pass(tmp_path):
    file = tmp_path / "feed.json"
    assert read_feed("") == KnownBad()
    assert read_feed(str(file)).unreadable
    for text in ("", "[]", "{}", '{"digests": 1, "publishers": []}', '{"digests": [1], "publishers": []}'):
        file.write_text(text)
        assert read_feed(str(file)).unreadable
    file.write_text('{"digests": ["aa"], "publishers": ["evil"]}')
    assert read_feed(str(file)) == KnownBad(digests=frozenset({"aa"}), publishers=frozenset({"evil"}))
