"""Keys that hold, envelopes and notes that cannot be bent."""

from __future__ import annotations

import base64
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra import signing
from palyra.errors import TrustError
from palyra.signing import (
    NoteSigner,
    NoteVerifier,
    PublicKey,
    SigningKey,
    dsse_sign,
    dsse_verify,
    open_note,
    parse_pem,
    parse_vkey,
    write_pem,
)
from tests.promises import promise

KEY = SigningKey.from_seed(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
OTHER = SigningKey.from_seed(bytes(range(32)))
P = 2**255 - 19
ORDER_8 = "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"


def encode(y: int, sign: int = 0) -> bytes:
    return (y | sign << 255).to_bytes(32, "little")


# ── keys ─────────────────────────────────────────────────────────────────────


def test_rfc_8032_first_vector() -> None:
    assert KEY.public.raw.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    assert KEY.sign(b"").hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    KEY.public.verify(KEY.sign(b""), b"")


@given(seed=st.binary(min_size=32, max_size=32), data=st.binary(max_size=4096))
def test_a_hastened_key_makes_the_same_signatures(seed: bytes, data: bytes) -> None:
    hastened = SigningKey(seed)
    before = hastened.sign
    hastened.hasten()
    assert hastened.sign is not before
    assert hastened.sign(data) == before(data)
    hastened.public.verify(hastened.sign(data), data)


def test_where_libsodium_is_reached_by_its_front_door_alone_signatures_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "nacl._sodium", None)
    hastened = SigningKey(bytes(range(32)))
    before = hastened.sign
    hastened.hasten()
    assert hastened.sign is not before
    assert hastened.sign(b"data") == before(b"data")


def test_a_library_that_signs_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signing, "_sodium_sign", lambda pair: lambda data: bytes(64))
    key = SigningKey(bytes(range(32)))
    before = key.sign
    key.hasten()
    assert key.sign is before


def test_who_signs_notes_with_a_key_is_hastened_with_it() -> None:
    key = SigningKey(bytes(range(32)))
    signer, text = NoteSigner("example", key), "a line\n"
    before = signer.sign(text)
    key.hasten()
    hastened = key.sign
    asked: list[bytes] = []

    def watched(data: bytes) -> bytes:
        asked.append(data)
        return hastened(data)

    key.sign = watched
    assert (signer.sign(text), asked) == (before, [text.encode()])


@promise("journal.forged-attestation")
@pytest.mark.parametrize(
    "raw",
    [
        encode(1),
        encode(P - 1),
        encode(0),
        encode(0, 1),
        bytes.fromhex(ORDER_8),
        encode(int.from_bytes(bytes.fromhex(ORDER_8), "little"), 1),
        encode(P - int.from_bytes(bytes.fromhex(ORDER_8), "little")),
        encode(P - int.from_bytes(bytes.fromhex(ORDER_8), "little"), 1),
    ],
)
def test_points_of_small_order_are_refused(raw: bytes) -> None:
    with pytest.raises(TrustError, match="small order"):
        PublicKey(raw)


@promise("journal.forged-attestation")
@pytest.mark.parametrize(
    "raw", [encode(P), encode(P + 1), encode(P + 5), encode(2**255 - 1), encode(1, 1), encode(P - 1, 1)]
)
def test_non_canonical_points_are_refused(raw: bytes) -> None:
    with pytest.raises(TrustError, match="canonical"):
        PublicKey(raw)


def test_bytes_that_are_no_point_of_the_curve_are_refused() -> None:
    off = [y for y in range(2, 40) if not accepted(encode(y))]
    assert off
    assert all(not accepted(encode(y, 1)) for y in off)


def accepted(raw: bytes) -> bool:
    try:
        PublicKey(raw)
    except TrustError:
        return False
    return True


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_keys_of_another_length_are_refused(length: int) -> None:
    with pytest.raises(TrustError):
        PublicKey(bytes(length))
    with pytest.raises(TrustError):
        SigningKey(bytes(length))


@given(st.binary(min_size=32, max_size=32))
def test_every_key_that_a_seed_makes_is_accepted(seed: bytes) -> None:
    key = SigningKey.from_seed(seed)
    assert PublicKey(key.public.raw) == key.public


@promise("journal.forged-attestation")
@given(st.binary(max_size=200), st.integers(0, 511))
def test_a_signature_with_one_bit_changed_is_refused(data: bytes, bit: int) -> None:
    signature = bytearray(KEY.sign(data))
    signature[bit // 8] ^= 1 << bit % 8
    with pytest.raises(TrustError):
        KEY.public.verify(bytes(signature), data)


def test_a_private_key_shows_itself_nowhere() -> None:
    assert KEY.seed.hex() not in repr(KEY)
    assert repr(KEY) == f"SigningKey({KEY.key_id})"
    with pytest.raises(TypeError):
        pickle.dumps(KEY)


def test_two_generated_keys_differ() -> None:
    assert SigningKey.generate().seed != SigningKey.generate().seed


def test_the_key_file_is_what_openssl_writes_and_reads() -> None:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    loaded = load_pem_private_key(write_pem(KEY).encode(), None)
    assert loaded.public_key().public_bytes_raw() == KEY.public.raw
    assert parse_pem(write_pem(KEY)).seed == KEY.seed


@pytest.mark.parametrize(
    "change", [("BEGIN", "BEGIN ENCRYPTED"), ("MC4", "MC5"), ("-----\n", "-----\r\n"), ("END", "end")]
)
def test_a_damaged_key_file_is_refused(change: tuple[str, str]) -> None:
    with pytest.raises(TrustError):
        parse_pem(write_pem(KEY).replace(*change))


# ── DSSE ─────────────────────────────────────────────────────────────────────


@given(st.binary(max_size=300))
def test_an_envelope_opens_with_its_key_only(payload: bytes) -> None:
    envelope = dsse_sign(KEY, "application/x", payload)
    assert dsse_verify(envelope, KEY.public) == ("application/x", payload)
    with pytest.raises(TrustError):
        dsse_verify(envelope, OTHER.public)


def test_the_signed_bytes_are_those_of_the_dsse_standard() -> None:
    envelope = dsse_sign(KEY, "http://example.com/HelloWorld", b"hello world")
    signature = base64.b64decode(envelope["signatures"][0]["sig"])
    KEY.public.verify(signature, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world")


def broken(**changes: object) -> dict[str, object]:
    return dsse_sign(KEY, "application/x", b"payload!") | changes


@promise("journal.forged-attestation")
@pytest.mark.parametrize(
    "envelope",
    [
        None,
        [],
        broken(extra=1),
        broken(payloadType="application/y"),
        broken(payloadType=5),
        broken(payload=base64.b64encode(b"payload?").decode()),
        broken(payload="cGF5bG9hZCF="),
        broken(payload="cGF5 bG9hZCE="),
        broken(payload="cGF5bG9hZCE"),
        broken(payload=7),
        broken(signatures=[]),
        broken(signatures={}),
        broken(signatures=dsse_sign(KEY, "application/x", b"payload!")["signatures"] * 2),
        broken(signatures=dsse_sign(OTHER, "application/x", b"payload!")["signatures"]),
        broken(signatures=[{"keyid": KEY.key_id, "sig": "AAAA"}]),
        broken(signatures=[{"keyid": KEY.key_id, "sig": "AAAA", "cert": ""}]),
        broken(signatures=[{"keyid": OTHER.key_id, "sig": dsse_sign(KEY, "application/x", b"payload!")["signatures"]}]),
    ],
)
def test_an_envelope_that_was_touched_is_refused(envelope: object) -> None:
    with pytest.raises(TrustError):
        dsse_verify(envelope, KEY.public)


# ── signed notes ─────────────────────────────────────────────────────────────

SIGNER = NoteSigner("palyra.local/test", KEY)
NOTE = SIGNER.sign("first\nsecond\n")


def test_a_note_opens_and_says_who_signed_it() -> None:
    assert open_note(NOTE, [SIGNER.verifier]) == ("first\nsecond\n", (SIGNER.verifier,))


def test_a_verifier_key_survives_being_written_down() -> None:
    assert SIGNER.vkey == "palyra.local/test+b7fda4ac+AddamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea"
    assert parse_vkey(SIGNER.vkey) == SIGNER.verifier


def test_lines_of_unknown_signers_are_passed_over() -> None:
    other = NoteSigner("witness.example", OTHER)
    both = NOTE + other.sign("first\nsecond\n").rpartition("\n\n")[2]
    assert open_note(both, [SIGNER.verifier]) == ("first\nsecond\n", (SIGNER.verifier,))
    assert open_note(both, [other.verifier, SIGNER.verifier])[1] == (SIGNER.verifier, other.verifier)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "text\n",
        "text\n\n",
        NOTE[:-1],
        NOTE + "\n",
        NOTE.replace("second", "zecond"),
        NOTE.replace("first\n", "first\r\n"),
        NOTE.replace("\u2014", "-"),
        NOTE.replace("palyra.local/test", "palyra.local/tezt"),
        NOTE.replace("\u2014 ", "\u2014  "),
        NOTE + NOTE.rpartition("\n\n")[2],
        NoteSigner("palyra.local/test", OTHER).sign("first\nsecond\n"),
        "x" * (1 << 17) + NOTE,
        NOTE + "\u2014 a AAAAAAAA\n" * 40,
        "\ud800\n" + NOTE,
    ],
)
def test_a_note_that_was_touched_is_refused(note: str) -> None:
    with pytest.raises(TrustError):
        open_note(note, [SIGNER.verifier])


def test_a_known_key_that_signed_something_else_spoils_the_note() -> None:
    other = NoteSigner("witness.example", OTHER)
    forged = NOTE + other.sign("something else\n").rpartition("\n\n")[2]
    with pytest.raises(TrustError):
        open_note(forged, [SIGNER.verifier, other.verifier])


@pytest.mark.parametrize("name", ["", "a b", "a+b", "a\nb", "a\u00a0b", "a\u2003b", "a\x00", "\ud800", "n" * 257])
def test_names_that_would_bend_a_note_are_refused(name: str) -> None:
    with pytest.raises(TrustError):
        NoteVerifier(name, KEY.public)


@pytest.mark.parametrize("text", ["", "a+b", "a+00000000+AA==", SIGNER.vkey.replace("test", "tost"), SIGNER.vkey + "="])
def test_a_verifier_key_that_was_touched_is_refused(text: str) -> None:
    with pytest.raises(TrustError):
        parse_vkey(text)


@given(st.text(max_size=80))
def test_no_text_opens_as_a_note_by_chance(text: str) -> None:
    with pytest.raises(TrustError):
        open_note(text, [SIGNER.verifier])
