"""The package: read only when a pinned key signed exactly these bytes, whose parts all fit."""

from __future__ import annotations

import base64
import struct
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.canon import canonical, sha256_hex
from palyra.signing import SigningKey, dsse_sign
from palyra.skills.archive import write_zip
from palyra.skills.bundle import join, open_parcel, pack, read, read_again, read_untrusted, seal, stage
from palyra.skills.capabilities import Capabilities
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.manifest_text import write_manifest
from palyra.skills.statements import Provenance
from palyra.skills.trust import PinnedKey, Trust
from tests.making_skills import ACME, EVIL, NOW, files, manifest, module, package, trust
from tests.promises import promise


def refusal(data: bytes, who: Trust | None = None, *, at: int = NOW) -> Finding:
    with pytest.raises(SkillRefused) as caught:
        read(data, who or trust(), at_unix_ms=at)
    return caught.value.finding


def halves(data: bytes) -> tuple[bytes, bytes]:
    parcel = open_parcel(data)
    return parcel.bundle, parcel.archive


def statements(data: bytes) -> list[dict]:
    return [orjson.loads(base64.b64decode(line["payload"])) for line in open_parcel(data).envelopes]


def signed(said: list[dict], key: SigningKey = ACME) -> bytes:
    kind = "application/vnd.in-toto+json"
    return b"".join(canonical(dsse_sign(key, kind, canonical(one))) + b"\n" for one in said)


def test_a_package_is_read_whole_and_the_same_input_gives_the_same_bytes():
    data = package()
    assert data == package()
    skill = read(data, trust(), at_unix_ms=NOW)
    assert skill.manifest.skill_id == "acme.echo"
    assert skill.files["modules/echo.wasm"] == module()
    assert set(skill.files) == {"skill.toml", "sbom.cdx.json", "modules/echo.wasm"}
    assert skill.payload_sha256 == sha256_hex(halves(data)[1])
    assert skill.binding.as_json() == {
        "skill_id": "acme.echo",
        "version": "0.1.0",
        "publisher": "acme",
        "key_id": ACME.key_id,
        "signed_unix_ms": NOW,
    }


def test_provenance_says_what_was_built_from_what():
    source = (("src/echo.wat", "0" * 64),)
    data = pack(manifest(), files(), ACME, at_unix_ms=NOW, provenance=Provenance(language="wat", sources=source))
    said = read(data, trust(), at_unix_ms=NOW).provenance
    assert said["buildDefinition"]["externalParameters"]["language"] == "wat"
    assert said["runDetails"]["byproducts"] == [
        {"name": "modules/echo.wasm", "digest": {"sha256": sha256_hex(module())}}
    ]


@promise("skills.signed-package")
def test_wrong_signer_is_refused():
    assert refusal(package(key=EVIL)) is Finding.TRUST_KEY_CHANGED


@promise("skills.signed-package")
def test_a_key_of_another_publisher_signs_nothing_for_this_one():
    both = trust(acme=ACME, evil=EVIL)
    assert refusal(package(key=EVIL), both) is Finding.TRUST_KEY_CHANGED
    assert refusal(package("evil.echo", key=ACME), both) is Finding.TRUST_KEY_CHANGED


def test_a_signer_who_claims_the_pinned_key_is_refused():
    data = package()
    bundle = signed(statements(data), EVIL).replace(EVIL.key_id.encode(), ACME.key_id.encode())
    assert refusal(join(bundle, halves(data)[1])) is Finding.SIGNATURE


def test_unknown_publisher_is_refused_and_told_how_to_be_trusted():
    with pytest.raises(SkillRefused) as caught:
        read(package(), Trust(), at_unix_ms=NOW)
    assert caught.value.finding is Finding.TRUST_UNKNOWN
    assert "trust add acme" in str(caught.value.hint)
    assert "--tofu" in str(caught.value.hint)


@promise("skills.signed-package")
def test_statements_of_one_package_do_not_fit_another():
    one, two = package(), package(version="0.2.0")
    assert refusal(join(halves(one)[0], halves(two)[1])) is Finding.SUBJECT
    mixed = b"".join(line + b"\n" for line in (halves(one)[0].split(b"\n")[0], *halves(two)[0].split(b"\n")[1:3]))
    assert refusal(join(mixed, halves(one)[1])) is Finding.SUBJECT


def test_one_statement_swapped_for_that_of_another_time_is_refused():
    """Same payload, both signed by the publisher: even then the statements of two signings do not mix."""
    one, two = package(), package(at_unix_ms=NOW + 1)
    assert halves(one)[1] == halves(two)[1]
    lines = [*halves(one)[0].split(b"\n")[:2], halves(two)[0].split(b"\n")[2]]
    assert refusal(join(b"".join(line + b"\n" for line in lines), halves(one)[1])) is Finding.SUBJECT


@promise("skills.signed-package")
def test_swapped_manifest_is_refused():
    honest = stage(manifest(), files())
    greedy = stage(manifest(capabilities=Capabilities(http_egress_allowlist=("evil.example",))), files())
    said = statements(package())
    archive = write_zip(greedy)
    for one in said:
        one["subject"][0]["digest"]["sha256"] = sha256_hex(archive)
    assert refusal(join(signed(said), archive)) is Finding.SWAPPED
    assert honest != greedy


def test_manifest_of_another_skill_under_signed_digests_is_refused():
    archive = write_zip(stage(manifest("acme.other"), files()))
    said = statements(package())
    for one in said:
        one["subject"][0]["digest"]["sha256"] = sha256_hex(archive)
    assert refusal(join(signed(said), archive)) is Finding.SWAPPED


def test_provenance_of_other_modules_is_refused():
    data = package()
    said = statements(data)
    said[1]["predicate"]["runDetails"]["byproducts"][0]["digest"]["sha256"] = "0" * 64
    assert refusal(join(signed(said), halves(data)[1])) is Finding.PROVENANCE


def test_sbom_that_does_not_list_the_files_is_refused():
    whole = stage(manifest(), files())
    bom = orjson.loads(whole["sbom.cdx.json"])
    bom["components"][0]["hashes"][0]["content"] = "0" * 64
    whole["sbom.cdx.json"] = canonical(bom)
    with pytest.raises(SkillRefused) as caught:
        seal(write_zip(whole), ACME, at_unix_ms=NOW)
    assert caught.value.finding is Finding.SBOM


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"modules/extra.wasm": b"\0asm"}, Finding.ARCHIVE_MEMBERS),
        ({"readme.md": b"x"}, Finding.ARCHIVE_MEMBERS),
        ({"assets/a.txt": b"x"}, Finding.INTEGRITY),
        ({"modules/echo.wasm": b"other"}, Finding.INTEGRITY),
        ({"skill.toml": None}, Finding.ARCHIVE_MEMBERS),
        ({"sbom.cdx.json": None}, Finding.ARCHIVE_MEMBERS),
        ({"modules/echo.wasm": None}, Finding.ARCHIVE_MEMBERS),
    ],
)
def test_files_that_the_manifest_does_not_say_are_refused(change, finding):
    whole = {name: data for name, data in {**stage(manifest(), files()), **change}.items() if data is not None}
    with pytest.raises(SkillRefused) as caught:
        seal(write_zip(whole), ACME, at_unix_ms=NOW)
    assert caught.value.finding is finding


def test_manifest_in_another_spelling_is_refused():
    whole = stage(manifest(), files())
    whole["skill.toml"] = b"# a comment that nobody signed for reading\n" + whole["skill.toml"]
    with pytest.raises(SkillRefused) as caught:
        seal(write_zip(whole), ACME, at_unix_ms=NOW)
    assert caught.value.finding is Finding.MANIFEST_ENCODING


def test_header_that_lies_about_its_length_is_refused():
    data = package()
    for length in (0xFFFFFFFF, (1 << 20) + 1, len(data)):
        assert refusal(data[:4] + struct.pack("<I", length) + data[8:]) is Finding.HEADER
    assert refusal(b"PK\3\4" + data[4:]) is Finding.HEADER
    assert refusal(b"SKL1") is Finding.HEADER


def test_a_fourth_line_and_another_spelling_of_a_line_are_refused():
    bundle, archive = halves(package())
    assert refusal(join(bundle + bundle.split(b"\n")[0] + b"\n", archive)) is Finding.BUNDLE
    assert refusal(join(bundle.replace(b'"payload"', b' "payload"', 1), archive)) is Finding.BUNDLE
    assert refusal(join(bundle[:-1], archive)) is Finding.BUNDLE
    assert refusal(join(b"", archive)) is Finding.BUNDLE


def test_data_between_header_and_archive_is_refused():
    bundle, archive = halves(package())
    assert refusal(join(bundle, b"#!/bin/sh\n" + archive)) is Finding.SUBJECT
    assert refusal(join(bundle, archive + b"\0")) is Finding.SUBJECT


@promise("skills.signed-package")
def test_revoked_expired_and_replaced_keys_sign_nothing_new():
    def who(**changes) -> Trust:
        return Trust(publishers={"acme": (replace(PinnedKey(key=ACME.public), **changes),)})

    data = package()
    assert refusal(data, who(revoked_unix_ms=NOW)) is Finding.TRUST_REVOKED
    assert refusal(data, who(valid_until_unix_ms=NOW - 1)) is Finding.TRUST_EXPIRED
    assert refusal(data, who(valid_from_unix_ms=NOW + 1)) is Finding.TRUST_EXPIRED
    assert refusal(data, who(replaced_by=EVIL.key_id)) is Finding.TRUST_EXPIRED
    assert refusal(package(at_unix_ms=NOW + 10_000_000)) is Finding.TRUST_EXPIRED


def test_what_was_taken_before_stands_when_its_key_runs_out_but_not_when_it_is_revoked():
    data = package()
    over = Trust(publishers={"acme": (PinnedKey(key=ACME.public, valid_until_unix_ms=1, replaced_by="x"),)})
    assert read_again(data, over).manifest.skill_id == "acme.echo"
    revoked = Trust(publishers={"acme": (PinnedKey(key=ACME.public, revoked_unix_ms=1),)})
    with pytest.raises(SkillRefused):
        read_again(data, revoked)


def test_small_order_key_in_a_package_is_refused():
    data = package()
    said = statements(data)
    said[0]["predicate"]["public_key"] = base64.b64encode(b"\1" + bytes(31)).decode()
    assert refusal(join(signed(said), halves(data)[1])) is Finding.TRUST_WEAK_KEY


def test_a_package_can_be_looked_at_by_its_own_key():
    skill = read_untrusted(package(key=EVIL))
    assert (skill.key.key_id, skill.manifest.publisher) == (EVIL.key_id, "acme")
    assert write_manifest(skill.manifest) == skill.files["skill.toml"]


def test_signing_again_keeps_the_payload():
    data = package()
    again = seal(halves(data)[1], EVIL, at_unix_ms=NOW)
    assert open_parcel(again).payload_sha256 == open_parcel(data).payload_sha256
    assert read_untrusted(again).key == EVIL.public


@promise("skills.signed-package")
@given(st.integers(0, 100_000), st.integers(1, 255))
def test_any_one_byte_changed_is_refused(at, difference):
    whole = bytearray(package())
    whole[at % len(whole)] ^= difference
    with pytest.raises(SkillRefused):
        read(bytes(whole), trust(), at_unix_ms=NOW)


@given(st.binary(max_size=100))
def test_no_bytes_but_a_package_are_read(tail):
    with pytest.raises(SkillRefused):
        read(b"SKL1" + tail, trust(), at_unix_ms=NOW)
