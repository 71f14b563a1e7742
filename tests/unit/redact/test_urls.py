"""URLs keep scheme, host and parameter names; userinfo and secret-named values go."""

from __future__ import annotations

import pytest

from palyra.redact.values import redact_text


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("https://user:pass@host/x", "https://{}@host/x"),
        ("git clone https://x-access-token:v1.abc@github.com/a/b.git", "git clone https://{}@github.com/a/b.git"),
        ("https://0123456789abcdef@github.com/a/b", "https://{}@github.com/a/b"),
        ("postgres://app:p%40ss@db:5432/app?sslmode=require", "postgres://{}@db:5432/app?sslmode=require"),
        ("redis://:pass@cache:6379/0", "redis://{}@cache:6379/0"),
        ("ssh://git:pass@host/x", "ssh://{}@host/x"),
        ("amqp://u:a@b@host", "amqp://{}@host"),
        ("['https://u:it's@host','a@b']", "['https://{}@host','a@b']"),
        ('"https:\\/\\/user:pass@host\\/x"', '"https:\\/\\/{}@host\\/x"'),
        ("(https://user:pass@host)", "(https://{}@host)"),
    ],
)
def test_userinfo_is_replaced(text, clean):
    assert redact_text(text) == clean.replace("{}", "[redacted:url-userinfo:1]")


@pytest.mark.parametrize(
    "text",
    [
        "ssh://git@github.com/a/b.git",
        "https://git@github.com/a/b.git",
        "git@github.com:a/b.git",
        "postgres://postgres@localhost/app",
        "ftp://anonymous@host/",
        "https://host:8080/@scope/package?mail=a@b.example",
        "https://host/path user@example.com",
        "['https://host','a@b.example']",
        "https://user:${PASSWORD}@host https://{user}:{password}@host https://<user>:<password>@host",
        "docker://image@sha256:abcdef",
        "http://localhost:8000",
    ],
)
def test_urls_without_a_secret_stay(text):
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "name", ["token", "password", "api_key", "apiKey", "API-KEY", "sig", "X-Amz-Signature", "client_secret"]
)
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("https://h/p?", "&page=2"),
        ("https://h/p?page=1&", '"'),
        ("/p?a=1&amp;", " HTTP/1.1"),
        ("(https://h/p?", ")."),
        ("/p?a=1\\u0026", "\\u0026b=2"),
        ("'/p?", "'"),
        ("?", ""),
    ],
)
def test_secret_named_query_value_is_replaced(name, before, after):
    assert redact_text(f"{before}{name}=s3cr3t%2Fvalue{after}") == f"{before}{name}=[redacted:url-query:1]{after}"


def test_two_values_in_one_url_are_told_apart():
    text = redact_text("?token=abc&password=def&again=1&auth=abc")
    assert text == "?token=[redacted:url-query:1]&password=[redacted:url-query:2]&again=1&auth=[redacted:url-query:1]"


def test_token_in_a_fragment_is_replaced():
    assert (
        redact_text("https://app/cb#access_token=abc&x=1") == "https://app/cb#access_token=[redacted:url-query:1]&x=1"
    )


@pytest.mark.parametrize(
    "text",
    [
        "?tokenizer=bert&signal=9&design=flat&passenger=2&authority=x&keyword=y&secretary=z&page_token_size=3",
        "?next_page_token=&token=&password=${PASSWORD}&api_key={api_key}&secret=<secret>&auth=true",
        "password: see the manual; token=abc in prose",
        "a ? token : other; x & token; #token=comment",
        "?max_tokens=100&tokens=5",
    ],
)
def test_words_that_merely_contain_a_name_stay(text):
    assert redact_text(text) == text
