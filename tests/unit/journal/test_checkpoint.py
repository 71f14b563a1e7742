"""A head has one text, and no other passes for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import TrustError
from palyra.journal.checkpoint import MAX_SIZE, open_checkpoint, parse_checkpoint, sign_checkpoint
from palyra.model.record import Checkpoint
from palyra.signing import NoteSigner, NoteVerifier, SigningKey
from tests.promises import promise

KEY = SigningKey.from_seed(bytes(range(32)))
SIGNER = NoteSigner("palyra.local/0123456789abcdef", KEY)
ROOT = bytes(range(32))


def note_with(old: str, new: str) -> str:
    """Signed as it stands: only the form can be wrong."""
    text = sign_checkpoint(SIGNER, 42, ROOT).note.partition("\n\n")[0] + "\n"
    assert old in text
    return SIGNER.sign(text.replace(old, new, 1))


@given(st.integers(0, MAX_SIZE), st.binary(min_size=32, max_size=32))
def test_a_head_survives_being_written_down(size: int, root: bytes) -> None:
    checkpoint = sign_checkpoint(SIGNER, size, root)
    assert open_checkpoint(checkpoint.note, SIGNER.verifier) == checkpoint
    assert checkpoint == Checkpoint("palyra.local/0123456789abcdef", size, root, checkpoint.note)


def test_the_text_is_that_of_the_standard() -> None:
    note = sign_checkpoint(SIGNER, 42, ROOT).note
    assert note.startswith(
        "palyra.local/0123456789abcdef\n42\nAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n\n\u2014 palyra.local/"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\n42\n", "\n042\n"),
        ("\n42\n", "\n+42\n"),
        ("\n42\n", "\n-42\n"),
        ("\n42\n", "\n 42\n"),
        ("\n42\n", "\n4_2\n"),
        ("\n42\n", "\n\u0664\u0662\n"),
        ("\n42\n", "\n0x2a\n"),
        ("\n42\n", "\n42.0\n"),
        ("\n42\n", "\n9007199254740992\n"),
        ("\n42\n", "\n" + "9" * 5000 + "\n"),
        ("\n42\n", "\n\n"),
        ("Hh8=", "Hh9="),
        ("Hh8=", "Hh8"),
        ("Hh8=", "Hh8=="),
        ("Hh8=\n", "Hh8=\nextension\n"),
        ("Hh8=\n", "Hh8=\n\nmore\n"),
        ("AAEC", "AAE-"),
        ("palyra.local/0123456789abcdef\n", ""),
        ("palyra.local/0123456789abcdef\n", "\n"),
        ("palyra.local", "elsewhere.local"),
    ],
)
def test_tricks_with_the_text_are_refused_though_signed(old: str, new: str) -> None:
    with pytest.raises(TrustError):
        open_checkpoint(note_with(old, new), SIGNER.verifier)


def test_carriage_returns_are_refused() -> None:
    note = sign_checkpoint(SIGNER, 42, ROOT).note
    for changed in (note.replace("\n42\n", "\r\n42\n"), note.replace("\n42\n", "\n42\r\n")):
        with pytest.raises(TrustError):
            parse_checkpoint(changed)


@promise("journal.replaced-key")
def test_another_key_under_the_same_origin_is_refused() -> None:
    other = NoteSigner(SIGNER.verifier.name, SigningKey.from_seed(bytes(range(1, 33))))
    with pytest.raises(TrustError):
        open_checkpoint(sign_checkpoint(other, 42, ROOT).note, SIGNER.verifier)


def test_the_same_key_under_another_origin_is_refused() -> None:
    with pytest.raises(TrustError):
        open_checkpoint(sign_checkpoint(SIGNER, 42, ROOT).note, NoteVerifier("palyra.local/other", KEY.public))


@given(st.text(max_size=200))
def test_any_text_is_refused_or_read_and_never_crashes(text: str) -> None:
    try:
        checkpoint = parse_checkpoint(text)
    except TrustError:
        return
    assert checkpoint.note == text
