"""Authorization headers lose their credentials and keep their scheme; code and prose about them stay."""

from __future__ import annotations

import pytest

from palyra.redact.stream import Redactor
from palyra.redact.values import redact_text

SHOWN = "[redacted:authorization:1]"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc123\r\nHost: x\r\n", "abc123"),
        ("authorization: bearer abc.def-ghi_jkl~mno+/=\n", "abc.def-ghi_jkl~mno+/="),
        ("AUTHORIZATION: Basic dXNlcjpwYXNz\n", "dXNlcjpwYXNz"),
        ("Proxy-Authorization: Basic dXNlcjpwYXNz\n", "dXNlcjpwYXNz"),
        ("aUTHORIZATION: Basic dXNlcjpwYXNz\n", "dXNlcjpwYXNz"),
        ("pRoXy-aUtHoRiZaTiOn: Basic dXNlcjpwYXNz\n", "dXNlcjpwYXNz"),
        ("> Authorization: token 0123456789abcdef\n", "0123456789abcdef"),
        ("GET / HTTP/1.1\nAuthorization: supersecretvalue\n", "supersecretvalue"),
        ("Authorization: Custom abcdefgh\n", "Custom abcdefgh"),
        ("HTTP_AUTHORIZATION=Bearer abc123\n", "abc123"),
        ("curl -H 'Authorization: Bearer abc123' https://example.com", "abc123"),
        ('curl -H "Authorization: my-key-without-scheme" https://example.com', "my-key-without-scheme"),
        ('{"Authorization": "Bearer abc123", "Accept": "*/*"}', "abc123"),
        ("{'Authorization': 'Basic dXNlcjpwYXNz', 'X': 'y'}", "dXNlcjpwYXNz"),
        ('{\\"authorization\\":\\"Bearer abc123\\",\\"x\\":1}', "abc123"),
        ('headers["Authorization"] = "Bearer abc123"', "abc123"),
        ("headers = {Authorization: Bearer abc123, Host: x}", "abc123"),
        ("sent authorization: 8f7d6a5b4c3d2e1f to host", "8f7d6a5b4c3d2e1f"),
        (
            'Authorization: Digest username="u", nonce="n", response="6629fae4"\nNext',
            'username="u", nonce="n", response="6629fae4"',
        ),
        (
            "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20250101, SignedHeaders=host, Signature=fe5f80\n",
            "Credential=AKIA/20250101, SignedHeaders=host, Signature=fe5f80",
        ),
        ("map[Accept:[*/*] Authorization:[Bearer abc123] Host:[x]]", "abc123"),
        ("{Authorization=[Bearer abc123], Accept=[*/*]}", "abc123"),
        ('{"Authorization": ["Bearer abc123"], "Accept": ["*/*"]}', "abc123"),
        ('{"multiValueHeaders":{"authorization":["my-key-without-scheme"]}}', "my-key-without-scheme"),
        ('{"Authorization"=>"Bearer abc123", "Accept"=>"*/*"}', "abc123"),
        ("array('Authorization' => 'Basic dXNlcjpwYXNz')", "dXNlcjpwYXNz"),
        ("[('Authorization', 'Bearer abcdef123456'), ('X', 'y')]", "abcdef123456"),
        ("(b'authorization', b'Basic dXNlcjpwYXNzd29yZA==')", "dXNlcjpwYXNzd29yZA=="),
        ('"request": "GET / HTTP/1.1\\r\\nAuthorization: Bearer abc123\\r\\nHost: x"', "abc123"),
    ],
)
def test_credentials_are_replaced_and_nothing_else(text, secret):
    assert text.count(secret) == 1
    assert redact_text(text) == text.replace(secret, SHOWN)


@pytest.mark.parametrize(
    "text",
    [
        'allow_headers=["Authorization", "Content-Type"]',
        "allowedHeaders: ['Authorization', 'X-Requested-With'],",
        'headers.set("Authorization", "Bearer " + token)',
        'headers.set("Authorization", `Bearer ${token}`)',
        "request.headers.get('Authorization', '')",
        "'Authorization' => 'Bearer ' . $token,",
        '"Authorization" => "Bearer #{token}"',
        "(authorization) => next(authorization1234567)",
        "const { authorization, cookie } = request.headers",
        "security:\n  - Authorization: []\n",
        '"Authorization", "Basic auth"',
        "Authorization: Bearer ${TOKEN}\n",
        "Authorization: Bearer $TOKEN\n",
        "Authorization: Bearer <token>\n",
        "headers = {'Authorization': f'Bearer {token}'}\n",
        'headers = {"Authorization": "Bearer " + token}\n',
        "  Authorization: `Bearer ${token}`,\n",
        "  authorization: string;\n",
        "  authorization: req.headers.authorization2,\n",
        "authorization: enabled\n",
        "if authorization == 'abcdef123456789':\n",
        "Authorization: the caller must present a token.\n",
        "Enter authorization code: 123456\n",
        "def authorization(self) -> str: ...\n",
        "Authorization: Bearer token\n",
    ],
)
def test_code_and_prose_about_it_stay(text):
    assert redact_text(text) == text


def test_prose_with_a_comma_behind_the_name_is_not_held_back():
    redactor = Redactor()
    text = b"checks authentication, authorization, and"
    assert redactor.feed(text) == text
