"""Keys are found by their shape; words that look a little like one are left alone."""

from __future__ import annotations

import pytest

from palyra.redact.stream import redact_text

BODY = "0123456789abcdefghijABCDEFGHIJ012345"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("jwt", JWT),
        ("jwt", "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0In0."),
        ("jwt", "eyJhbGciOiJSU0EifQ.aaaaaaaa.bbbbbbbb.cccccccc.dddddddd"),
        ("aws", "AKIAIOSFODNN7EXAMPLE"),
        ("aws", "ASIAIOSFODNN7EXAMPLE"),
        *(("github", f"gh{letter}_{BODY}") for letter in "pousr"),
        ("github", "github_pat_11ABCDEFG0" + BODY + "_" + BODY),
        *(("gitlab", f"gl{name}-{BODY[:20]}") for name in ("pat", "dt", "rt", "ptt", "agent", "soat", "cbt")),
        ("gitlab", f"glpat-{BODY}.01.0w1abc234"),
        ("slack", "xoxb-" + "123456789012-1234567890123-" + BODY[:24]),
        ("slack", "xoxe.xoxp-1-" + BODY),
        ("slack", "xapp-1-A0123456789-1234567890123-" + BODY),
        ("google", "AIza" + BODY[:35]),
        ("google", "ya29.a0" + BODY),
        ("google", "GOCSPX-" + BODY[:28]),
        ("anthropic", "sk-ant-api03-" + BODY + "-" + BODY),
        ("openai", "sk-proj-" + BODY + "_" + BODY),
        ("openai", "sk-svcacct-" + BODY),
        ("openai", "sk-" + BODY + BODY[:12]),
        ("npm", "npm_" + BODY),
        ("pypi", "pypi-AgEIcHlwaS5vcmcCJ" + BODY),
    ],
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("token = ", "\n"),
        ('{"t": "', '"}'),
        ("line\\n", "\\n"),
        ("\x1b[01;31m\x1b[K", "\x1b[m"),
        ("x%20", "%20"),
        ("=", ". Done"),
        ("é", "é"),
    ],
)
def test_key_is_replaced_wherever_it_stands(kind, key, before, after):
    key_shown = key.rstrip(".")
    stops = key[len(key_shown) :]
    assert redact_text(before + key + after) == f"{before}[redacted:{kind}:1]{stops}{after}"


@pytest.mark.parametrize(
    "text",
    [
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n",
        'AWS_SECRET_ACCESS_KEY="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"',
        '"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",',
        '{\\"SecretAccessKey\\":\\"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\\"}',
    ],
)
def test_aws_secret_key_is_replaced_behind_its_name(text):
    assert redact_text(text) == text.replace("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "[redacted:aws:1]")


def test_slack_webhook_keeps_its_host():
    text = "POST https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX ok"
    assert redact_text(text) == "POST https://hooks.slack.com/[redacted:slack:1] ok"


def test_npmrc_token_keeps_its_registry():
    text = "//registry.example.com/:_authToken=01234567-89ab-cdef-0123-456789abcdef\n"
    assert redact_text(text) == "//registry.example.com/:_authToken=[redacted:npm:1]\n"


@pytest.mark.parametrize(
    "text",
    [
        "the tokenizer signs a token; the signature is significant",
        "token: 5, max_tokens=4096, sig=SIGTERM, design=flat",
        "task-0123456789abcdefghijABCDEFGHIJ0123456789",
        "disk-0123456789abcdefghijABCDEFGHIJ0123456789",
        "class='sk-loading-spinner-container-wrapper-element'",
        "ghp_short gho_ ghs_tooshort github_pat_x glpat-x npm_config_registry pypi-server",
        "eyJust a word, eyJ.eyJ.eyJ and base64 eyJhbGciOiJIUzI1NiJ9 alone",
        "MYAKIAIOSFODNN7EXAMPLE AKIAlowercase",
        "sha256:" + "0123456789abcdef" * 4,
        "commit 0123456789abcdef0123456789abcdef01234567",
        "npm_lifecycle_event=test npm_package_name=x",
        "xoxo-love and xoxox",
        "secret_access_key = os.environ['KEY']",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert redact_text(text) == text


def test_sentences_keep_their_full_stops():
    assert redact_text(f"Use {JWT}. Or not.") == "Use [redacted:jwt:1]. Or not."
