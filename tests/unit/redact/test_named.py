"""Values that their name calls secret go, and what only sounds so stays: a corpus each way, in any split."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from palyra.redact.stream import Redactor
from palyra.redact.values import redact_json, redact_text

CORPUS = Path(__file__).parents[2] / "vectors/redaction"
SHOWN = re.compile(r"\[redacted:[\w.-]+:[0-9]+\]")


def lines(name: str) -> list[str]:
    """`⏎` stands for a line break, `⟦…⟧` marks what must go."""
    return [line.replace("⏎", "\n") for line in (CORPUS / name).read_text("utf-8").splitlines()]


def in_parts(data: bytes, size: int) -> bytes:
    redactor = Redactor()
    return b"".join(redactor.feed(data[at : at + size]) for at in range(0, len(data), size)) + redactor.finish()


@pytest.mark.parametrize("end", ["", "\n", "\r\nnext\n"])
def test_every_marked_value_goes_and_every_other_byte_stays(end):
    wrong = []
    for line in lines("gone.txt"):
        text = line.replace("⟦", "").replace("⟧", "") + end
        clean = SHOWN.sub("§", redact_text(text))
        if clean != re.sub("⟦[^⟧]*⟧", "§", line) + end:
            wrong.append((text, clean))
    assert wrong == []


@pytest.mark.parametrize("end", ["", "\n", "\r\nnext\n"])
def test_code_prose_and_public_values_stay(end):
    changed = [line for line in lines("stays.txt") if redact_text(line + end) != line + end]
    assert changed == []


def test_the_corpus_has_two_hundred_lines_each_way():
    assert min(len(set(lines(name))) for name in ("gone.txt", "stays.txt")) >= 200


@pytest.mark.parametrize("name", ["gone.txt", "stays.txt"])
def test_any_split_gives_the_same(name):
    whole = "\n".join(lines(name)).replace("⟦", "").replace("⟧", "").encode()
    expected = in_parts(whole, len(whole))
    for size in (1, 2, 3, 7, 19, 64, 129, 1000):
        assert in_parts(whole, size) == expected, size


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ({"password": "hunter2", "user": "bob"}, {"password": "*", "user": "bob"}),
        ({"apiKey": "a1b2c3d4e5f6", "max_tokens": 4096}, {"apiKey": "*", "max_tokens": 4096}),
        ({"otp": 482913, "tokens": 482913}, {"otp": "*", "tokens": 482913}),
        ({"passwords": ["hunter2", "letmein"]}, {"passwords": ["*", "*"]}),
        ({"args": ["--password", "hunter2", "x"]}, {"args": ["--password", "*", "x"]}),
        ({"args": ["curl", "-u", "bob:letmein", "x"]}, {"args": ["curl", "-u", "*", "x"]}),
        ({"args": ["docker", "run", "-u", "node:node"]}, {"args": ["docker", "run", "-u", "node:node"]}),
        ({"env": [{"name": "DB_PASSWORD", "value": "x1"}]}, {"env": [{"name": "DB_PASSWORD", "value": "*"}]}),
        ({"password": "$PASSWORD", "token": True}, {"password": "$PASSWORD", "token": True}),
        ({"secret": None}, {"secret": None}),
        ({"headers": {"X-Api-Key": "a1b2c3d4"}}, {"headers": {"X-Api-Key": "*"}}),
        ({"headers": {"Authorization": "Bearer abc123"}}, {"headers": {"Authorization": "*"}}),
    ],
)  # fmt: skip
def test_values_named_by_a_key_of_json_go(value, clean):
    def show(found):
        if isinstance(found, dict):
            return {key: show(item) for key, item in found.items()}
        if isinstance(found, list):
            return [show(item) for item in found]
        return "*" if isinstance(found, str) and SHOWN.fullmatch(found) else found

    assert show(redact_json(value)) == clean


@pytest.mark.parametrize(
    "unit",
    [
        *('password="', "password='a ", "token: ", "passwords: [", "password: |\n ", "%3Ftoken%3D", "/reset/token/"),
        *("curl -u ", "key=", "api_key=a1b2c3", "<password>", "secret_", "--token ", "&password=", "%25", "'-u', '"),
        'name="password" value="',
    ],
)  # fmt: skip
def test_a_flood_of_names_costs_linear_time(unit):
    def cost(size: int) -> float:
        data = (unit * (size // len(unit))).encode()
        before = time.process_time()
        in_parts(data, 4096)
        return time.process_time() - before

    small = min(cost(1 << 14) for _ in range(3))
    assert cost(1 << 17) < 8 * 12 * max(small, 0.001)


@pytest.mark.parametrize("unit", ["passwords:\n - ", "secrets:\n - a: b\n - ", "passwords:\r\n  - x\r\n  - "])
def test_lists_that_begin_in_each_other_are_not_read_to_their_end_for_each(unit):
    """A megabyte of `passwords:` and ` - ` held the engine up for more than a minute."""

    def cost(size: int) -> float:
        data = (unit * (size // len(unit))).encode()
        before = time.process_time()
        in_parts(data, size)
        return time.process_time() - before

    small = min(cost(1 << 10) for _ in range(5))
    assert min(cost(1 << 14) for _ in range(2)) < 16 * 5 * max(small, 0.001)


def test_a_secret_in_the_first_lines_of_a_list_takes_all_of_the_list():
    lines = "".join(f" - item{number}\n" for number in range(40))
    text = f"passwords:\n - hunter2x9\n{lines}next: 1\n"
    assert "item39" not in redact_text(text)
    assert redact_text(text).endswith("next: 1\n")


@pytest.mark.parametrize(
    "before", ["password: ", "token: ", 'password="', "API_KEY=", "/reset/", "?csrf_token=", "password"]
)
@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "aB",
        "a1",
        "1",
        "1.",
        "a.",
        "a->",
        "a::b",
        "\u2019",
        "\u00e9 ",
        "a/",
        "/a",
        "a-",
        "_",
        "A_",
        "$a",
        "(",
        "%61",
    ],
)
def test_no_value_makes_a_pattern_backtrack_without_end(before, unit):
    """One line of a program held the engine up for minutes: a name of letters could be read in parts in many ways."""
    data = f"{before}{unit * 200}! x\n".encode()
    start = time.process_time()
    in_parts(data, len(data))
    assert time.process_time() - start < 1
