"""Recorded inputs of a skill: what a tool is given, what the world around it answers, and what must come back.

`tests/NAME.json`: `input`, `expect` (any of `status`, `exit_code`, `result`, `message`), and where the skill needs them
`tool`, `http` (a list of host, request and answer, in order), `storage` (place → text), `secrets` (name → value),
`storage_after` and `channels` (what it must have left). Unknown keys are refused. Only what `expect` names is compared.

Not here: running it (wiring/skill_testing).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from palyra.canon import Json
from palyra.skills.manifest import SkillManifest
from palyra.skills.project import TESTS, ProjectError
from palyra.values import dataclass

_KEYS = frozenset({"tool", "input", "expect", "http", "storage", "secrets", "storage_after", "channels"})
_EXPECTED = frozenset({"status", "reason", "exit_code", "result", "message"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """A request the skill must make, and what comes back: an answer, or a negative number."""

    host: str
    request: Mapping[str, Json]
    answer: Mapping[str, Json] | None
    error: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    tool: str
    input: Json
    expect: Mapping[str, Json]
    http: tuple[Exchange, ...] = ()
    storage: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    name: str
    passed: bool
    diff: str = ""
    fuel: int | None = None
    """What it used of its budget; None where nothing ran."""

    def as_json(self) -> dict[str, Json]:
        return {"name": self.name, "passed": self.passed, "diff": self.diff, "fuel": self.fuel}


def parse_cases(files: Mapping[str, bytes], manifest: SkillManifest) -> tuple[Case, ...]:
    """Those of tests/, by name. Raises ProjectError."""
    return tuple(
        _parse_case(path.removeprefix(TESTS).removesuffix(".json"), data, manifest)
        for path, data in sorted(files.items())
        if path.startswith(TESTS) and path.endswith(".json")
    )


def judge(case: Case, got: Mapping[str, Json]) -> Verdict:
    """`got` may hold more than the case expects; what it does not name is not compared."""
    seen = {key: got.get(key) for key in case.expect}
    if seen == dict(case.expect) and json.dumps(seen, sort_keys=True) == json.dumps(dict(case.expect), sort_keys=True):
        return Verdict(name=case.name, passed=True)
    told = {**seen, **{key: got[key] for key in ("status", "message") if got.get(key) and key not in seen}}
    lines = difflib.unified_diff(_lines(case.expect), _lines(told), "expected", "got", lineterm="")
    return Verdict(name=case.name, passed=False, diff="\n".join(lines))


def _lines(value: Mapping[str, Json]) -> list[str]:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).splitlines()


def _parse_case(name: str, data: bytes, manifest: SkillManifest) -> Case:
    where = f"{TESTS}{name}.json"
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ProjectError(f"{where} is not JSON: {str(error)[:120]}.") from None
    if not isinstance(found, dict) or not {"input", "expect"} <= found.keys() <= _KEYS:
        raise ProjectError(
            f"{where} is not a recorded input.", f"It has input and expect; of {', '.join(sorted(_KEYS))}."
        )
    expect = {key: found[key] for key in ("storage_after", "channels") if key in found} | dict(found["expect"])
    if not expect or not set(found["expect"]) <= _EXPECTED:
        raise ProjectError(f"{where}: expect names nothing to compare.", f"It has {', '.join(sorted(_EXPECTED))}.")
    try:
        return Case(
            name=name,
            tool=_tool(found.get("tool"), manifest, where),
            input=found["input"],
            expect=expect,
            http=tuple(map(_exchange, found.get("http", []))),
            storage=_texts(found.get("storage", {})),
            secrets=_texts(found.get("secrets", {})),
        )
    except (TypeError, KeyError, ValueError):
        raise ProjectError(f"{where}: http, storage or secrets do not have their documented form.") from None


def _tool(given: object, manifest: SkillManifest, where: str) -> str:
    ids = [tool.id for tool in manifest.tools]
    if given is None and len(ids) == 1:
        return ids[0]
    if not isinstance(given, str) or given not in ids:
        raise ProjectError(f"{where}: tool is not one of this skill's tools.", f"Its tools are {', '.join(ids)}.")
    return given


def _exchange(given: Any) -> Exchange:
    if not given.keys() <= {"host", "request", "answer", "error"} or ("answer" in given) == ("error" in given):
        raise ValueError("an exchange has host, request and one of answer and error")
    answer = given.get("answer")
    return Exchange(
        host=str(given["host"]),
        request=dict(given["request"]),
        answer=None if answer is None else {"status": 200, "headers": [], "body": "", **answer},
        error=int(given.get("error", 0)),
    )


def _texts(given: Any) -> dict[str, str]:
    if not all(isinstance(text, str) for text in given.values()):
        raise ValueError("it contains something other than text")
    return dict(given)
