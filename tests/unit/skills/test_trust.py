"""Keys: read in their forms, weak ones refused, handed over by the old one alone."""

from __future__ import annotations

import base64

import orjson
import pytest

from palyra.canon import canonical
from palyra.signing import SigningKey, dsse_sign, write_pem
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.trust import PinnedKey, Trust, parse_public_key, read_rotation, sign_rotation
from tests.making_skills import ACME, EVIL, NOW, trust

NEW = SigningKey.from_seed(b"new!" * 8)
RAW = ACME.public.raw
SPKI = bytes.fromhex("302a300506032b6570032100") + RAW
PEM = f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(SPKI).decode()}\n-----END PUBLIC KEY-----\n"


@pytest.mark.parametrize("text", [base64.b64encode(RAW).decode(), RAW.hex(), PEM, f"  {RAW.hex()}\n"])
def test_a_key_is_read_in_each_of_its_forms(text):
    assert parse_public_key(text) == ACME.public


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        "00" * 32,
        "01" + "00" * 31,
        "ec" + "ff" * 30 + "7f",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
        "ee" + "ff" * 30 + "7f",
        base64.b64encode(b"short").decode(),
        write_pem(ACME),
    ],
)
def test_weak_and_small_order_keys_are_refused(text):
    with pytest.raises(SkillRefused) as caught:
        parse_public_key(text)
    assert caught.value.finding is Finding.TRUST_WEAK_KEY


def test_a_rotation_signed_by_the_old_key_names_the_new_one():
    statement = sign_rotation("acme", ACME, NEW.public, at_unix_ms=NOW)
    publisher, old, new = read_rotation(statement, trust(), at_unix_ms=NOW)
    assert (publisher, old.key, new) == ("acme", ACME.public, NEW.public)


def test_a_rotation_by_anybody_else_is_refused():
    both = trust(acme=ACME, evil=EVIL)
    forged = orjson.loads(sign_rotation("acme", EVIL, NEW.public, at_unix_ms=NOW))
    claims = {**forged, "signatures": [{**forged["signatures"][0], "keyid": ACME.key_id}]}
    said = {"publisher": "acme", "old_key_id": ACME.key_id, "new_public_key": "x", "at_unix_ms": NOW}
    other_type = dsse_sign(ACME, "application/vnd.in-toto+json", canonical(said))
    late = sign_rotation("acme", ACME, NEW.public, at_unix_ms=NOW + 10_000_000)
    for data in (canonical(forged), canonical(claims), canonical(other_type), late, b"{}", b"", b"[]", b'"x"'):
        with pytest.raises(SkillRefused) as caught:
            read_rotation(data, both, at_unix_ms=NOW)
        assert caught.value.finding is Finding.TRUST_ROTATION


def test_a_revoked_or_replaced_key_hands_over_nothing():
    statement = sign_rotation("acme", ACME, NEW.public, at_unix_ms=NOW)
    revoked = Trust(publishers={"acme": (PinnedKey(key=ACME.public, revoked_unix_ms=1),)})
    with pytest.raises(SkillRefused) as caught:
        read_rotation(statement, revoked, at_unix_ms=NOW)
    assert caught.value.finding is Finding.TRUST_REVOKED
    replaced = Trust(publishers={"acme": (PinnedKey(key=ACME.public, replaced_by=EVIL.key_id),)})
    with pytest.raises(SkillRefused) as caught:
        read_rotation(statement, replaced, at_unix_ms=NOW)
    assert caught.value.finding is Finding.TRUST_ROTATION


def test_a_stolen_key_whose_time_is_over_names_no_successor():
    pinned = PinnedKey(key=ACME.public, valid_until_unix_ms=NOW)
    over = Trust(publishers={"acme": (pinned,)})
    statement = sign_rotation("acme", ACME, NEW.public, at_unix_ms=NOW)
    assert read_rotation(statement, over, at_unix_ms=NOW) == ("acme", pinned, NEW.public)
    with pytest.raises(SkillRefused) as refused:
        read_rotation(statement, over, at_unix_ms=NOW + 1)
    assert refused.value.finding is Finding.TRUST_EXPIRED


def test_a_rotation_to_a_weak_key_is_refused():
    said = {
        "publisher": "acme",
        "old_key_id": ACME.key_id,
        "new_public_key": base64.b64encode(b"\1" + bytes(31)).decode(),
        "at_unix_ms": NOW,
    }
    statement = canonical(dsse_sign(ACME, "application/vnd.palyra.key-rotation+json", canonical(said)))
    with pytest.raises(SkillRefused) as caught:
        read_rotation(statement, trust(), at_unix_ms=NOW)
    assert caught.value.finding is Finding.TRUST_WEAK_KEY
