"""A wish made into a project that builds: manifest with the least capabilities, schemas, code, tests, a checklist.

The same wish gives the same files. What a model writes takes the place of the code, the tests and the schemas, never of
the capabilities: those follow from the wish alone. A generated skill always needs a recorded review.

Not here: reading the wish (intent), asking a model (model_answer), keeping candidates (wiring/skill_builder).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from palyra.canon import Json, canonical, sha256_hex
from palyra.skills.capabilities import Capabilities, Quotas, SecretScope
from palyra.skills.intent import Shape, Wish
from palyra.skills.languages import LANGUAGES, Language
from palyra.skills.manifest import BuilderInfo, OperatorInfo, SkillManifest, ToolEntry
from palyra.skills.manifest_text import write_manifest
from palyra.skills.scaffold import fill

MODULE = "modules/main.wasm"
SECRET = "token"
_PATH_SIGNS = "[A-Za-z0-9._~/?&=%+-]*"
_ANSWER: dict[str, Json] = {
    "type": "object",
    "properties": {
        "status": {"type": "integer"},
        "headers": {"type": "array"},
        "body": {"type": "string"},
        "error": {"type": "string"},
    },
    "additionalProperties": False,
}
_OBJECT: dict[str, Json] = {"type": "object"}
_WORKS: Mapping[Shape, str] = {  # what a template does, whatever its wish asks for: agents choose tools by this
    Shape.PASS: "Returns the object it was given.",
    Shape.FETCH: "Fetches a page of its one host and returns status, headers and body.",
    Shape.KEEP: "Stores the object it is given; an empty object returns the one stored last.",
    Shape.FETCH_KEEP: "Fetches one page of its one host and keeps a copy: the answer while the host is silent.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a model wrote for a wish, already checked to be of this form."""

    model: str
    language: Language
    code: str
    cases: Mapping[str, Mapping[str, Json]]
    input_schema: Mapping[str, Json]
    output_schema: Mapping[str, Json]


def candidate_files(
    wish: Wish, candidate_id: str, *, templates: Mapping[str, str], written: Written | None = None
) -> dict[str, str]:
    """Place in the project → text. `templates` has one code for each shape."""
    language = written.language if written else Language.WAT
    manifest = manifest_of(wish, candidate_id, written)
    source = LANGUAGES[language].source
    code = written.code if written else fill(templates[wish.shape.value], _holes(wish))
    cases = written.cases if written else _cases(wish)
    return {
        "skill.toml": write_manifest(manifest).decode("utf-8"),
        "build.toml": f'language = "{language.value}"\n\n[modules]\n"{MODULE}" = "{source}"\n',
        source: code,
        **{f"tests/{name}.json": json.dumps(case, indent=2, ensure_ascii=False) + "\n" for name, case in cases.items()},
        "REVIEW.md": review_of(wish, manifest, written),
    }


def manifest_of(wish: Wish, candidate_id: str, written: Written | None = None) -> SkillManifest:
    publisher, _, name = wish.skill_id.partition(".")
    does = wish.text if written else _WORKS[wish.shape]
    tool = ToolEntry(
        id=wish.skill_id,
        name=name,
        description=_cut(does, 900),
        module=MODULE,
        input_schema=dict(written.input_schema if written else _input(wish)),
        output_schema=dict(written.output_schema if written else _output(wish)),
        default_sensitive=wish.secret,
        requires_approval=wish.secret,
    )
    return SkillManifest(
        skill_id=wish.skill_id,
        name=name,
        version="0.1.0",
        publisher=publisher,
        tools=(tool,),
        capabilities=capabilities_of(wish, written.language if written else Language.WAT),
        operator=OperatorInfo(display_name=name, summary=_cut(does, 380), categories=("generated",)),
        review_required=True,
        builder=BuilderInfo(
            source="model" if written else wish.source,
            candidate=candidate_id,
            intent_sha256=sha256_hex(wish.text.encode("utf-8")),
            model=written.model if written else "",
        ),
    )


def capabilities_of(wish: Wish, language: Language) -> Capabilities:
    facts = LANGUAGES[language]
    secrets = (SecretScope(scope=f"skill:{wish.skill_id}", key_names=(SECRET,)),) if wish.secret else ()
    return Capabilities(
        http_egress_allowlist=(wish.host,) if wish.host else (),
        write_roots=("kept",) if wish.keeps else (),
        secrets=secrets,
        quotas=Quotas(fuel_budget=facts.fuel, max_memory_bytes=facts.memory_bytes),
    )


def _input(wish: Wish) -> dict[str, Json]:
    match wish.shape:
        case Shape.FETCH:
            pattern = f"^{_escaped(wish.path)}{_PATH_SIGNS}$"
            path: Json = {
                "type": "string",
                "maxLength": 2000,
                "pattern": pattern,
                "description": "Begins with " + wish.path,
            }
            return {"type": "object", "properties": {"path": path}, "required": ["path"], "additionalProperties": False}
        case Shape.FETCH_KEEP:
            return {"type": "object", "additionalProperties": False}
    return _OBJECT


def _output(wish: Wish) -> dict[str, Json]:
    return _ANSWER if wish.host else _OBJECT


def _escaped(text: str) -> str:
    return re.sub(r"([.+?*()\[\]{}|^$\\])", r"\\\1", text)


def _request(wish: Wish) -> bytes:
    return canonical({"path": wish.path})


def _holes(wish: Wish) -> dict[str, str]:
    request = _request(wish)
    return {"request": "".join(f"\\{byte:02x}" for byte in request), "request_length": str(len(request))}


def _cases(wish: Wish) -> dict[str, dict[str, Json]]:
    answer: dict[str, Json] = {"status": 200, "headers": [["content-type", "text/plain"]], "body": "hello"}
    asked: dict[str, Json] = {"path": wish.path}
    given: dict[str, Json] = asked if wish.shape is Shape.FETCH else {}
    silent: dict[str, Json] = {"exit_code": 1, "result": {"error": "the host did not answer"}}
    good: dict[str, Json] = {"host": wish.host, "request": asked, "answer": answer}
    bad: dict[str, Json] = {"host": wish.host, "request": asked, "error": -4}
    kept: dict[str, Json] = {"kept/last": canonical(answer).decode()}
    match wish.shape:
        case Shape.FETCH:
            return {
                "answered": {"input": given, "http": [good], "expect": {"exit_code": 0, "result": answer}},
                "silent": {"input": given, "http": [bad], "expect": silent},
                "elsewhere": {"input": {"path": "other"}, "expect": {"status": "refused", "reason": "BAD_ARGUMENTS"}},
            }
        case Shape.FETCH_KEEP:
            whole: dict[str, Json] = {"exit_code": 0, "result": answer}
            return {
                "answered": {"input": {}, "http": [good], "expect": whole, "storage_after": kept},
                "kept": {"input": {}, "http": [bad], "storage": kept, "expect": whole},
                "silent": {"input": {}, "http": [bad], "expect": silent},
            }
        case Shape.KEEP:
            note: dict[str, Json] = {"note": "hello"}
            text: dict[str, Json] = {"kept/last": '{"note":"hello"}'}
            return {
                "keeps": {"input": note, "expect": {"exit_code": 0, "result": note}, "storage_after": text},
                "gives": {"input": {}, "storage": text, "expect": {"exit_code": 0, "result": note}},
                "nothing": {"input": {}, "expect": {"exit_code": 0, "result": {}}},
            }
    return {"object": {"input": {"a": [1, None]}, "expect": {"exit_code": 0, "result": {"a": [1, None]}}}}


def review_of(wish: Wish, manifest: SkillManifest, written: Written | None) -> str:
    """What a person looks at before this is enabled."""
    asked = manifest.capabilities
    by = f"written by the model {written.model}" if written else f"a template ({wish.shape.value})"
    secret = f"{wish.skill_id}.{SECRET}, added outside to requests to its host"
    lines = [
        f"# Review of {wish.skill_id}",
        "",
        f"Wish: {wish.text}",
        "",
        f"Code: {by}.{'' if written else ' ' + _works(wish)}",
        "",
        "## What it could do",
        "",
        f"- reach: {', '.join(asked.http_egress_allowlist) or 'no host'}",
        f"- use secrets: {secret if wish.secret else 'none'}",
        f"- keep: {'values of its own under ' + ', '.join(asked.write_roots) if asked.write_roots else 'nothing'}",
        "",
        "## Before it is enabled",
        "",
        "- [ ] The wish is one that this installation should grant.",
        "- [ ] Every capability above is needed for it, and none is missing.",
        "- [ ] The code was read; it does what the wish says and nothing else.",
        "- [ ] The schemas admit no more than the wish needs.",
        "- [ ] The recorded inputs cover an answer, a failure and an input that must be refused.",
    ]
    if wish.host:
        lines.append("- [ ] Whatever a call's input holds may be told to that host.")
    if wish.secret:
        lines.append(
            f"- [ ] The secret is bound to the host: palyra secrets set {wish.skill_id}.{SECRET} --host {wish.host}"
        )
    return "\n".join(lines) + "\n"


def _works(wish: Wish) -> str:
    rest = " What the wish asks for still has to be written." if wish.shape is Shape.PASS else ""
    return _WORKS[wish.shape] + rest


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
