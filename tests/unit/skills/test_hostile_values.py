"""Whatever a publisher signs, reading it ends in a skill or in a refusal, never in another exception."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from palyra.canon import canonical, sha256_hex
from palyra.signing import dsse_sign
from palyra.skills.archive import write_zip
from palyra.skills.bundle import join, open_parcel, pack, read, read_untrusted, resign, stage
from palyra.skills.findings import SkillRefused
from palyra.skills.manifest import parse_manifest
from palyra.skills.manifest_text import _value, write_manifest
from palyra.skills.sbom import check_sbom
from palyra.skills.trust import read_rotation
from palyra.wiring.skill_views import package_json
from tests.making_skills import ACME, NOW, files, manifest, package, trust
from tests.unit.skills.test_bundle import halves, statements

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.just("SHA-256") | st.just("file"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at]
    if isinstance(value, dict):
        found += [place for key in value for place in places(value[key], (*at, key))]
    elif isinstance(value, list):
        found += [place for n in range(len(value)) for place in places(value[n], (*at, n))]
    return found


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value in one place; a place that is dropped is Ellipsis."""
    if not at:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    if len(at) == 1 and new is ...:
        del copy[at[0]]
    else:
        copy[at[0]] = put(copy[at[0]], at[1:], new)
    return copy


SBOM = orjson.loads(stage(manifest(), files())["sbom.cdx.json"])
SAID = statements(package())
ARCHIVE = halves(package())[1]


@given(st.sampled_from(places(SBOM)[1:]), JSON | st.just(...))
@settings(max_examples=150)
def test_a_bill_with_anything_in_any_place(at, new):
    with suppress(SkillRefused):
        check_sbom(orjson.dumps(put(SBOM, at, new)), stage(manifest(), files()), skill_id="acme.echo", version="0.1.0")


@given(st.integers(0, 2), st.data())
@settings(max_examples=150)
def test_statements_with_anything_in_any_place(which, data):
    at = data.draw(st.sampled_from(places(SAID[which])[1:]))
    new = data.draw(JSON | st.just(...))
    changed = [put(one, at, new) if n == which else one for n, one in enumerate(SAID)]
    kind = "application/vnd.in-toto+json"
    bundle = b"".join(canonical(dsse_sign(ACME, kind, canonical(one))) + b"\n" for one in changed)
    package_ = join(bundle, ARCHIVE)
    with suppress(SkillRefused):
        read(package_, trust(), at_unix_ms=NOW)
    with suppress(SkillRefused):
        package_json(read_untrusted(package_))
    with suppress(SkillRefused):
        resign(open_parcel(package_), ACME, at_unix_ms=NOW)


@given(st.data())
@settings(max_examples=100)
def test_envelopes_with_anything_in_any_place(data):
    lines = [orjson.loads(line) for line in halves(package())[0].split(b"\n")[:3]]
    at = data.draw(st.sampled_from(places(lines[0])[1:]))
    lines[0] = put(lines[0], at, data.draw(JSON | st.just(...)))
    with suppress(SkillRefused):
        read(join(b"".join(canonical(line) + b"\n" for line in lines), ARCHIVE), trust(), at_unix_ms=NOW)


def toml(tree: dict[str, Any]) -> str:
    return "\n".join(f"{orjson.dumps(key).decode()} = {_value(tree[key])}" for key in tree)


TREE = {
    "manifest_version": 2,
    "skill_id": "acme.echo",
    "name": "Echo",
    "version": "0.1.0",
    "publisher": "acme",
    "entrypoints": {
        "tools": [
            {
                "id": "acme.echo",
                "name": "Echo",
                "description": "Echo.",
                "module": "modules/echo.wasm",
                "risk": {"requires_approval": True},
                "input_schema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}},
                "output_schema": {"type": "object"},
            }
        ]
    },
    "capabilities": {
        "http_egress_allowlist": ["a.example"],
        "filesystem": {"read_roots": ["a"], "write_roots": ["b"]},
        "secrets": [{"scope": "vault", "key_names": ["k"], "raw_key_names": ["k"]}],
        "channels": ["c"],
        "quotas": {"fuel_budget": 5},
    },
    "compat": {"min_palyra": "0.1.0"},
    "integrity": {"files": {"a": "0" * 64}},
    "operator": {"tags": ["a"], "config": {"properties": {"k": {"type": "string", "title": "K"}}}},
    "trust": {"review_required": True},
    "builder": {"source": "model"},
}
TOML = st.recursive(
    st.booleans() | st.integers(-5, 2**60) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


def test_the_tree_of_these_tests_is_a_manifest():
    assert parse_manifest(toml(TREE).encode()).skill_id == "acme.echo"


@given(st.sampled_from(places(TREE)[1:]), TOML | st.just(...))
@settings(max_examples=300)
def test_a_manifest_with_anything_in_any_place_is_refused_or_comes_back_the_same(at, new):
    try:
        found = parse_manifest(toml(put(TREE, at, new)).encode())
    except SkillRefused:
        return
    assert parse_manifest(write_manifest(found)) == found
    packed = pack(found, {"modules/echo.wasm": b"", **{t.module: b"" for t in found.tools}}, ACME, at_unix_ms=NOW)
    assert read(packed, trust(), at_unix_ms=NOW).manifest.tools == found.tools


@given(st.binary(max_size=60) | JSON.map(orjson.dumps))
def test_a_rotation_of_anything(data):
    with suppress(SkillRefused):
        read_rotation(data, trust(), at_unix_ms=NOW)


def test_an_archive_of_other_members_under_a_signature_is_refused():
    for members in ({"skill.toml": b""}, {"a": b""}, {**stage(manifest(), files()), "sbom.cdx.json": b"[]"}):
        archive = write_zip(members)
        said = [put(one, ("subject", 0, "digest", "sha256"), sha256_hex(archive)) for one in SAID]
        kind = "application/vnd.in-toto+json"
        bundle = b"".join(canonical(dsse_sign(ACME, kind, canonical(one))) + b"\n" for one in said)
        with suppress(SkillRefused):
            read(join(bundle, archive), trust(), at_unix_ms=NOW)
            raise AssertionError(members)
