"""A model's part in a candidate: what it is told, and what of its answer is taken.

Rules: a model fills in code, tests and schemas, and nothing else; ids, capabilities and limits follow from the wish,
and an answer that names them is refused as a whole. Its answer is foreign text: strict JSON of one form, bounded, its
schemas and recorded inputs read by the same readers as everybody's.

Not here: sending it (wiring/skill_model), building and trying it (the workshop, like any project).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from palyra.canon import Json
from palyra.skills.candidate import Written, capabilities_of
from palyra.skills.findings import SkillRefused
from palyra.skills.intent import Wish
from palyra.skills.languages import LANGUAGES, Language
from palyra.skills.project import ProjectError
from palyra.skills.tool_schema import check_schema

MAX_ANSWER_BYTES = 512 << 10
MAX_CODE = 128 << 10
MAX_CASES = 32
_KEYS = frozenset({"language", "code", "tests", "input_schema", "output_schema"})
_CASE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}")
_FENCE = re.compile(r"\A\s*```(?:json)?\n(.*)\n```\s*\Z", re.DOTALL)

_RULES = """You write the code of one sandboxed tool. Answer with one JSON object and nothing else:
{"language": L, "code": TEXT, "input_schema": S, "output_schema": S, "tests": {NAME: {"input": …, "expect": …}}}
L is one of: %(languages)s. The code exports `run`; it reads JSON text and gives JSON text. S are JSON Schemas, 2020-12,
the input's of type object. A test may also have "http" [{"host", "request", "answer" or "error"}], "storage" and
"storage_after"; "expect" has exit_code and result. The tool may use exactly these capabilities, by handle:
%(capabilities)s
It has no clock, no randomness, no files and no other host. This is the interface for AssemblyScript (import it as
"../sdk/palyra", and "../sdk/json" for JSON):
%(sdk)s"""


def chat_request(wish: Wish, model: str, *, sdk: str) -> dict[str, Json]:
    """The body of a request to /chat/completions."""
    asked = capabilities_of(wish, Language.ASSEMBLYSCRIPT)
    rules = _RULES % {
        "languages": ", ".join(Language),
        "capabilities": json.dumps({"http": asked.http_egress_allowlist, "storage": asked.write_roots}),
        "sdk": sdk,
    }
    return {
        "model": model,
        "temperature": 0,
        "response_format": {"type": "json_object"},
        "messages": [{"role": "system", "content": rules}, {"role": "user", "content": wish.text}],
    }


def parse_chat(body: bytes, model: str) -> Written:
    """What a model wrote. Raises ProjectError with what is wrong about the answer."""
    if len(body) > MAX_ANSWER_BYTES:
        raise _bad(f"it is larger than {MAX_ANSWER_BYTES} bytes")
    try:
        content = json.loads(body)["choices"][0]["message"]["content"]
        fenced = _FENCE.match(content)
        answer = json.loads(fenced[1] if fenced else content)
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        raise _bad("it holds no JSON object where the code should be") from None
    if not isinstance(answer, dict) or set(answer) != _KEYS:
        raise _bad(f"it has keys other than {', '.join(sorted(_KEYS))}")
    return Written(
        model=model,
        language=_language(answer["language"]),
        code=_code(answer["code"]),
        cases=_cases(answer["tests"]),
        input_schema=_schema(answer["input_schema"], "input_schema", of_object=True),
        output_schema=_schema(answer["output_schema"], "output_schema", of_object=False),
    )


def _language(given: object) -> Language:
    if not isinstance(given, str) or given not in [language.value for language in LANGUAGES]:
        raise _bad("its language is not one that can be built")
    return Language(given)


def _code(given: object) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= MAX_CODE or "\0" in given:
        raise _bad("its code is not text of a usable length")
    try:
        given.encode("utf-8")
    except UnicodeEncodeError:
        raise _bad("its code is not text of a usable length") from None
    return given if given.endswith("\n") else given + "\n"


def _cases(given: Any) -> Mapping[str, Mapping[str, Json]]:
    if not isinstance(given, dict) or not 0 < len(given) <= MAX_CASES:
        raise _bad("it has no tests, or too many")
    for name, case in given.items():
        if not _CASE_NAME.fullmatch(name) or not isinstance(case, dict):
            raise _bad("a test has an invalid name, or is not an object")
    return given


def _schema(given: object, name: str, *, of_object: bool) -> Mapping[str, Json]:
    try:
        return check_schema(given, name, of_object=of_object)
    except SkillRefused as refused:
        raise _bad(refused.detail.removeprefix("skill.toml: ").rstrip(".")) from None


def _bad(why: str) -> ProjectError:
    return ProjectError(
        f"The model's answer cannot be used: {why}.", "Ask again, or leave builder_endpoint empty for a template."
    )
