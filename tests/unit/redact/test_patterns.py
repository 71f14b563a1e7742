"""Keys are found by their shape; words that look a little like one are left alone."""

from __future__ import annotations

from base64 import b64encode

import pytest

from palyra.redact.values import redact_text

BODY = "0123456789abcdefghijABCDEFGHIJ012345"
PEM = f"-----BEGIN %s-----\n{BODY}{BODY}\n{BODY}\n-----END %s-----\n"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("jwt", JWT),
        ("jwt", "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxMjM0In0."),
        ("jwt", "eyJhbGciOiJSU0EifQ.aaaaaaaa.bbbbbbbb.cccccccc.dddddddd"),
        ("palyra", "palyra_01M7H5HTKV17CC3XWPME4C2JKD_" + "0123456789abcdef" * 4),
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
        ("notion", "ntn_" + BODY + BODY[:10]),
        ("supabase", "sbp_" + "0123456789abcdef" * 2 + "01234567"),
        ("xai", "xai-" + BODY + BODY),
        ("perplexity", "pplx-" + BODY + BODY[:12]),
        ("sentry", "sntrys_eyJ" + BODY + "=_" + BODY),
        ("pypi", "pypi-AgEIcHlwaS5vcmcCJ" + BODY),
        *(("stripe", f"{kind}k_{mode}_{BODY[:24]}") for kind in "sr" for mode in ("live", "test")),
        ("stripe", "whsec_" + BODY[:32]),
        ("huggingface", "hf_" + "abcdefghijABCDEFGHIJ0123456789abcd"),
        *(("vault", f"hv{kind}.CAES{BODY}") for kind in "sbr"),
        ("docker", "dckr_pat_" + BODY[:27]),
        ("docker", "dckr_oat_" + BODY[:10] + "-" + BODY[:20]),
        ("sendgrid", "SG." + BODY[:22] + "." + BODY + "_-abcde"),
        *(("shopify", f"shp{kind}_" + "0123456789abcdef" * 2) for kind in ("at", "ss", "ca", "pa")),
        *(("digitalocean", f"do{kind}_v1_" + "0123456789abcdef" * 4) for kind in "opr"),
        ("age", "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2),
        ("tailscale", "tskey-auth-" + BODY[:12] + "-" + BODY[:32]),
        ("linear", "lin_api_" + BODY + "0123"),
        ("databricks", "dapi" + "0123456789abcdef" * 2),
        ("atlassian", "ATATT3xFfGF0" + BODY * 2 + "=ABCDEF01"),
        ("rubygems", "rubygems_" + "0123456789abcdef" * 3),
        ("groq", "gsk_" + BODY + BODY[:16]),
        ("grafana", "glsa_" + BODY[:32] + "_0123abcd"),
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
        ("\\u001b[32m", "\\u001b[0m"),
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


@pytest.mark.parametrize("between", [",", ":", " ", "\n", '", "', "\t| "])
def test_an_aws_key_and_its_secret_beside_each_other_both_go(between):
    pair = f"AKIAIOSFODNN7EXAMPLE{between}wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert redact_text(f"<{pair}>") == "<[redacted:aws:1]>"


def test_what_only_stands_behind_an_aws_key_stays():
    digest = "0123456789abcdef" * 4
    assert redact_text(f"AKIAIOSFODNN7EXAMPLE {digest}\n") == f"[redacted:aws:1] {digest}\n"


def test_an_azure_connection_string_loses_its_key():
    key = BODY + BODY + "+/0123456789=="
    text = f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={key};EndpointSuffix=core"
    assert redact_text(text) == text.replace(key, "[redacted:azure:1]")


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
        "sk_live_ rk_test_short sk_test_mode whsec_x hf_hub_download hf_transfer hvs.short SG.x SG.message.body",
        "shpat_short shp_at dop_v1_0123 dapi_client tskey-short lin_api_key gsk_x glsa_x AGE-SECRET-KEY-1",
        "MYsk_live_0123456789abcdefghij ashf_0123456789abcdefghijABCDEFGHIJ0123",
        "AKIA is a prefix; AccountKey=short; the AccountKey= field",
        "test_" * 20 + " and " + "a-" * 40 + " and " + "0123456789abcdef" * 4,
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert redact_text(text) == text


def test_sentences_keep_their_full_stops():
    assert redact_text(f"Use {JWT}. Or not.") == "Use [redacted:jwt:1]. Or not."


@pytest.mark.parametrize("kind", ["", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP "])
def test_a_key_file_that_a_clusters_settings_hold_in_base64_is_replaced(kind: str) -> None:
    """`kubectl config view --raw`, `kubectl get secret -o yaml`: the file stands there in one long word."""
    held = b64encode((PEM % (f"{kind}PRIVATE KEY", f"{kind}PRIVATE KEY")).encode()).decode()
    text = f"    client-key-data: {held}\n    user: x\n"
    assert redact_text(text) == text.replace(held, "[redacted:private-key:1]")


@pytest.mark.parametrize("kind", ["CERTIFICATE", "PUBLIC KEY"])
def test_a_certificate_in_base64_is_no_secret(kind: str) -> None:
    text = f"    client-certificate-data: {b64encode((PEM % (kind, kind)).encode()).decode()}\n"
    assert redact_text(text) == text


def test_the_address_by_which_anybody_may_write_to_a_channel_is_replaced() -> None:
    text = f"curl https://discord.com/api/webhooks/123456789012345678/{BODY}{BODY} -d x"
    assert redact_text(text) == "curl https://discord.com/api/webhooks/[redacted:discord:1] -d x"
