"""Private-key blocks are replaced whole, cut off or endless; what only mentions one stays."""

from __future__ import annotations

import json

import pytest

from palyra.redact import pem
from palyra.redact.stream import Redactor
from palyra.redact.values import redact_text
from palyra.redact.verdict import CAP
from tests.promises import promise

LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
SHOWN = "[redacted:private-key:1]"


def block(label: str = "RSA PRIVATE KEY", lines: int = 5) -> str:
    body = "".join(f"{LINE[index:] + LINE[:index]}\n" for index in range(lines))
    return f"-----BEGIN {label}-----\n{body}Ab3=\n-----END {label}-----"


@pytest.mark.parametrize(
    "label",
    [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "DSA PRIVATE KEY",
    ],
)
def test_block_is_replaced(label):
    assert redact_text(f"before\n{block(label)}\nafter\n") == f"before\n{SHOWN}\nafter\n"


def test_blocks_of_other_programs_are_replaced():
    pgp = block("PGP PRIVATE KEY BLOCK").replace("-----\nMII", "-----\nVersion: GnuPG v2\n\nMII", 1)
    ssh2 = f"---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: me\n{LINE}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----"
    old = block().replace("-----\nMII", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0011\n\nMII", 1)
    for text in (pgp, ssh2, old):
        assert redact_text(f"<{text}>") == f"<{SHOWN}>"


@pytest.mark.parametrize(
    "dress",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\n      "),
        lambda text: text.replace("\n", '\\n" +\n  "'),
        lambda text: text.replace("\n", "\n+"),
        lambda text: text.replace("\n", "\n# "),
        lambda text: text.replace("\n", " "),
        lambda text: text.replace("\n", ""),
        lambda text: text.replace("\n", " |\n| "),
        lambda text: json.dumps({"key": text})[9:-2],
        lambda text: json.dumps(json.dumps({"key": text}))[13:-4],
    ],
)
def test_block_is_replaced_in_any_dress(dress):
    assert redact_text(f"<{dress(block())}>") == f"<{SHOWN}>"


def test_two_blocks_are_told_apart_and_certificates_stay():
    certificate = block("CERTIFICATE")
    text = f"{block()}\n{certificate}\n{block('EC PRIVATE KEY')}\n"
    assert redact_text(text) == f"{SHOWN}\n{certificate}\n[redacted:private-key:2]\n"


def test_block_cut_off_is_replaced_as_far_as_it_goes():
    cut = block()[:200]
    assert redact_text(f"x {cut}") == f"x {SHOWN}"
    assert redact_text(f"{cut}\nThis line is prose.\n") == f"{SHOWN}This line is prose.\n"
    assert redact_text(f"{cut}\n{block('CERTIFICATE')}") == SHOWN + block("CERTIFICATE")


def test_block_without_end_before_another_hides_both():
    assert redact_text(f"{block()[:200]} {block('EC PRIVATE KEY')}!") == f"{SHOWN}[redacted:private-key:2]!"


@pytest.mark.parametrize(
    "text",
    [
        "if '-----BEGIN RSA PRIVATE KEY-----' in text:\n    raise ValueError\n",
        'BEGIN = "-----BEGIN PRIVATE KEY-----"\nEND = "-----END PRIVATE KEY-----"\n',
        "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n" + LINE + "\n-----END PUBLIC KEY-----\n",
        "----------\n--- BEGIN ---\n-----BEGIN\n",
    ],
)
def test_text_that_only_mentions_a_key_stays(text):
    assert redact_text(text) == text


def test_endless_block_neither_grows_nor_leaks():
    redactor = Redactor()
    out = redactor.feed(b"go\n-----BEGIN PRIVATE KEY-----\n")
    largest = 0
    for _ in range(3000):
        out += redactor.feed(LINE.encode() + b"\n")
        largest = max(largest, len(redactor._shapes._data))
    assert out == b"go\n[redacted:private-key:1]"
    assert largest <= CAP + 4096
    assert redactor.feed(b"-----END PRIVATE KEY-----\nafter\n" + b"." * 500) == b"\nafter\n" + b"." * 500
    assert redactor.counts == {"private-key": 1}


def test_endless_block_ends_at_a_line_that_cannot_be_a_key():
    text = "-----BEGIN PRIVATE KEY-----\n" + (LINE + "\n") * 600 + "And now for something else.\n"
    assert redact_text(text) == SHOWN + "And now for something else.\n"


def test_endless_block_on_one_line_is_swallowed():
    redactor = Redactor()
    out = redactor.feed(b"-----BEGIN PRIVATE KEY-----\\n" + b"A" * 100_000) + redactor.feed(b"B" * 100_000)
    assert out + redactor.finish() == b"[redacted:private-key:1]"


@promise("secrets.incremental-search")
@pytest.mark.parametrize("line", [b"\n", b"AB\n", b"MIIEpAIBAAKCAQEA0123\n"])
def test_a_block_that_comes_byte_by_byte_is_not_followed_from_its_beginning_for_each(
    monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    """Eight thousand empty lines took ten milliseconds for each byte behind them."""
    judged = 0

    def counting(one: bytes) -> bool:
        nonlocal judged
        judged += 1
        return may_belong(one)

    may_belong = pem._may_belong
    monkeypatch.setattr(pem, "_may_belong", counting)
    text = b"-----BEGIN PRIVATE KEY-----\n" + line * (8_000 // len(line))
    redactor = Redactor()
    shown = b"".join(redactor.feed(text[at : at + 1]) for at in range(len(text))) + redactor.finish()
    assert judged < 10 * len(text)
    whole = Redactor()
    assert shown == whole.finish(text)
