"""skill.toml: unknown keys refused at every level, values in their one spelling, names owned by their publisher."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.model.wasm import GuestKind, StorageGrant
from palyra.skills.capabilities import Capabilities, Quotas, SecretScope, grants_of
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.manifest import BuilderInfo, ConfigProperty, OperatorInfo, parse_manifest
from palyra.skills.manifest_text import write_manifest
from palyra.skills.version import Version
from tests.making_skills import manifest, tool
from tests.promises import promise

TEXT = write_manifest(manifest()).decode()
FULL = manifest(
    capabilities=Capabilities(
        http_egress_allowlist=("api.example.com", "http://10.0.0.7:8080"),
        read_roots=("shared",),
        write_roots=("cache", "shared"),
        secrets=(
            SecretScope(scope="skill:acme.echo", key_names=("other", "token"), raw_key_names=("token",)),
            SecretScope(scope="vault", key_names=("github",)),
        ),
        channels=("news",),
        device_capabilities=("camera",),
        quotas=Quotas(fuel_budget=5),
    ),
    tools=(
        tool("acme.echo", input_schema={"type": "object", "properties": {"ä \n": {"type": "number", "maximum": 1.5}}}),
        tool("acme.other", requires_approval=True, output_schema={}),
    ),
    operator=OperatorInfo(
        display_name="Écho",
        summary="Says it again.",
        categories=("text",),
        tags=("a", "b"),
        docs_url="https://example.com/docs",
        config=(ConfigProperty(name="key", type="string", title="Key", required=True, redacted=True),),
    ),
    integrity=(("modules/echo.wasm", "0" * 64),),
    builder=BuilderInfo(source="template", candidate="01J"),
    review_required=True,
)


def refusal(text: str) -> SkillRefused:
    with pytest.raises(SkillRefused) as caught:
        parse_manifest(text.encode())
    return caught.value


@pytest.mark.parametrize("value", [manifest(), FULL], ids=["least", "full"])
def test_what_is_written_is_read_and_written_the_same(value):
    assert parse_manifest(write_manifest(value)) == value
    assert write_manifest(parse_manifest(write_manifest(value))) == write_manifest(value)


@pytest.mark.parametrize(
    "line",
    [
        "surprise = 1\n" + TEXT,
        TEXT.replace("[compat]", "[compat]\nmore = 1"),
        TEXT.replace("[capabilities]", "[capabilities]\nprocess_exec = true"),
        TEXT.replace("read_roots = []", "read_roots = [], exec_roots = []"),
        TEXT.replace("default_sensitive = false", "default_sensitive = false, harmless = true"),
        TEXT.replace("[trust]", "[trust]\nskip_quarantine = true"),
        TEXT.replace("[operator]", "[operator]\nicon = 'x'"),
        TEXT.replace("quotas = { ", "quotas = { gpu = 1, "),
        TEXT.replace('id = "acme.echo"', 'id = "acme.echo"\nshell = "bash"'),
        TEXT + "[extra]\n",
    ],
)
def test_unknown_keys_are_refused_at_every_level(line):
    assert refusal(line).finding is Finding.MANIFEST_KEY


@promise("skills.tool-ids")
@pytest.mark.parametrize(
    "publisher", ["acme ", " acme", "Acme", "acme.sub", "аcme", "", "palyra", "a_b", "-a", "acme\u200b"]
)
def test_a_publisher_that_only_looks_like_one_is_refused(publisher):
    text = TEXT.replace('publisher = "acme"', f'publisher = "{publisher}"')
    assert refusal(text).finding is Finding.MANIFEST_PUBLISHER


@promise("skills.tool-ids")
def test_a_skill_of_another_publisher_is_refused():
    assert refusal(TEXT.replace('skill_id = "acme.echo"', 'skill_id = "other.echo"')).finding is (
        Finding.MANIFEST_PUBLISHER
    )


@promise("skills.tool-ids")
@pytest.mark.parametrize("tool_id", ["other.echo", "palyra.process.run", "acmex.echo"])
def test_a_tool_id_of_another_publisher_is_refused(tool_id):
    text = TEXT.replace('\nid = "acme.echo"', f'\nid = "{tool_id}"')
    assert refusal(text).finding is Finding.MANIFEST_TOOL_OWNER


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("manifest_version = 2", "manifest_version = 1"),
        ("manifest_version = 2", "manifest_version = true"),
        ('version = "0.1.0"', 'version = "0.1"'),
        ('version = "0.1.0"', 'version = "01.0.0"'),
        ('version = "0.1.0"', 'version = "1.0.0+build"'),
        ('version = "0.1.0"', 'version = "../../x"'),
        ('name = "Echo"', 'name = " Echo"'),
        ('name = "Echo"', 'name = "Ec\\u202eho"'),
        ('name = "Echo"', 'name = "e\\u0301"'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["b.example", "a.example"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["a.example", "a.example"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["API.example"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["a.example."]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["a.example:443"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["https://a.example"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["127.1"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["0x7f.0.0.1"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["user@a.example"]'),
        ("http_egress_allowlist = []", 'http_egress_allowlist = ["*.example.com"]'),
        ("read_roots = []", 'read_roots = ["../other"]'),
        ("read_roots = []", 'read_roots = ["/etc"]'),
        ("write_roots = []", 'write_roots = ["a/.."]'),
        ("channels = []", 'channels = ["*"]'),
        ("secrets = []", 'secrets = [{scope = "skill:acme.echo", key_names = []}]'),
        ("secrets = []", 'secrets = [{scope = "everything", key_names = ["a"]}]'),
        ("wall_clock_timeout_ms = 30000", "wall_clock_timeout_ms = 0"),
        ("wall_clock_timeout_ms = 30000", "wall_clock_timeout_ms = 1.5"),
        ('export = "run"', 'export = "main"'),
        ('module = "modules/echo.wasm"', 'module = "../echo.wasm"'),
        ('input_schema = { type = "object" }', 'input_schema = { type = "string" }'),
        ('output_schema = { type = "object" }', 'output_schema = { type = "nothing" }'),
        ('output_schema = { type = "object" }', 'output_schema = { "$ref" = "file:///etc/passwd" }'),
        ('output_schema = { type = "object" }', 'output_schema = { "$ref" = "http://127.0.0.1:1/x" }'),
        ('output_schema = { type = "object" }', 'output_schema = { "$id" = "http://127.0.0.1:1/x" }'),
        ('output_schema = { type = "object" }', 'output_schema = { "$schema" = "http://127.0.0.1:1/x" }'),
        ('output_schema = { type = "object" }', "output_schema = { const = 2024-01-01 }"),
        ('output_schema = { type = "object" }', "output_schema = { const = nan }"),
        ("review_required = false", 'review_required = "no"'),
    ],
)
def test_values_that_are_not_in_their_one_spelling_are_refused(old, new):
    assert old in TEXT
    assert refusal(TEXT.replace(old, new)).finding is Finding.MANIFEST_VALUE


def test_tools_stand_once_and_in_order():
    assert refusal(write_manifest(manifest(tools=(tool("acme.b"), tool("acme.a")))).decode()).finding is (
        Finding.MANIFEST_VALUE
    )
    assert refusal(write_manifest(manifest(tools=())).decode()).finding is Finding.MANIFEST_VALUE


@pytest.mark.parametrize("text", ["a = ", "\0", "[" * 5000, "x" * (300 << 10)])
def test_what_is_no_toml_is_refused(text):
    assert refusal(text).finding is Finding.MANIFEST_SYNTAX


@given(st.text(max_size=60))
def test_no_text_raises_anything_else(text):
    with pytest.raises(SkillRefused):
        parse_manifest(text.encode("utf-8", "replace"))


def test_handles_are_given_for_what_is_named_alone():
    asked = FULL.capabilities
    grants = grants_of(asked)
    assert grants.http == ("api.example.com", "http://10.0.0.7:8080")
    assert grants.secrets == ("acme.echo.other", "acme.echo.token", "github")
    assert grants.readable_secrets == {"acme.echo.token"}
    assert grants.storage == (
        StorageGrant(prefix="cache", writable=True),
        StorageGrant(prefix="shared", writable=True),
    )
    assert {tag.value for tag in asked.tags} == {"network", "secrets_read", "filesystem_read", "filesystem_write"}
    wild = replace(asked, http_egress_allowlist=("*.example.com",), wildcard_opt_in=("http_egress_allowlist",))
    assert grants_of(wild).http == ()


def test_fuel_left_out_is_the_default_of_the_modules_kind():
    assert Quotas().limits(GuestKind.CORE).fuel == 10_000_000
    assert Quotas().limits(GuestKind.COMPONENT).fuel == 1_000_000_000
    assert Quotas(fuel_budget=5).limits(GuestKind.COMPONENT).fuel == 5


def test_versions_are_ordered_as_the_specification_says():
    order = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.10"]
    shuffled = order[::-1]
    assert sorted(shuffled, key=Version) == order
