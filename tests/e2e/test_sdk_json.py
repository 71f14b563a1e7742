"""The SDK's JSON, built and run: it takes what JSON is and nothing else, and gives texts back as they were."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from palyra.signing import SigningKey
from palyra.skills.languages import Language
from palyra.wiring.skill_bench import Bench, try_project
from palyra.wiring.skill_building import build_project
from tests.authoring import assemblyscript, at_the_bench, new_project, place_files

KEY = SigningKey.from_seed(bytes(range(32)))
SOURCE = """import { input, output } from "../sdk/palyra";
import { Json, Writer } from "../sdk/json";

export function run(): i32 {
  const texts = Json.parse(input())!.member("texts")!.values();
  const out = new Writer().open("{").key("valid").open("[");
  for (let i = 0; i < texts.length; i++) out.boolean(Json.parse(texts[i].raw()) != null);
  out.close("]").key("texts").open("[");
  for (let i = 0; i < texts.length; i++) out.quoted(texts[i].raw());
  return output(out.close("]").close("}").bytes());
}
"""
SEEDS = [
    '{"a": [1, -0.5, 2e10, 1E-2, true, false, null, "x"], "b": {"c": {}, "": []}}',
    '"\\u00e9\\ud83d\\ude00\\n\\"\\\\\\/" ',
    "[[[[]]],{},\t\r\n 0 ]",
    '"Grüße 🌍"',
    "-12.5e+3",
]
ODD = [
    "",
    " ",
    "nul",
    "tru",
    "[1,]",
    "{,}",
    '{"a":}',
    '{"a" 1}',
    "01",
    "1.",
    ".5",
    "+1",
    "-",
    "1e",
    '"\\x"',
    '"\\u12"',
    '"a',
    "]",
]
ODD += [
    "[" * 64 + "]" * 64,
    '"\x01"',
    "\ufeff1",
    "NaN",
    "Infinity",
    "1 2",
    '{"a":1 "b":2}',
    "'a'",
    "\x00",
    "[\x00]",
    '"\\ud800"',
]


def cases() -> list[str]:
    """What is JSON, what nearly is, and what chance makes of it; the same in every run."""
    chance = random.Random(7)
    texts = [*SEEDS, *ODD]
    for _ in range(400):
        text = list(chance.choice(SEEDS))
        for _ in range(chance.randint(1, 3)):
            place = chance.randrange(len(text) + 1)
            text[place : place + chance.randint(0, 1)] = chance.choice('{}[]",:\\0123456789eE+-.truefalsn \n\x0b\x7fé')
        texts.append("".join(text))
    return texts


def is_json(text: str) -> bool:
    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return True


@pytest.mark.slow
def test_the_sdk_reads_what_json_is_and_writes_texts_back_as_they_were(tmp_path: Path) -> None:
    texts = cases()
    expected = {"valid": [is_json(text) for text in texts], "texts": texts}
    assert {True, False} <= set(expected["valid"])
    case = json.dumps({"input": {"texts": texts}, "expect": {"exit_code": 0, "result": expected}})
    files = {**new_project("acme.json", Language.ASSEMBLYSCRIPT), "src/main.ts": SOURCE, "tests/object.json": case}
    folder = place_files(
        tmp_path / "project", {path: text for path, text in files.items() if path != "tests/empty.json"}
    )

    async def work(bench: Bench) -> str:
        await build_project(folder, bench.workshop, lambda publisher: KEY, at_unix_ms=1)
        ((verdict,),) = ((await try_project(folder, bench))[1],)
        return verdict.diff

    assert at_the_bench(tmp_path / "home", work, path=assemblyscript()) == ""
