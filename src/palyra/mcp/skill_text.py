"""An active skill as an agent skill (SEP-2640): one `SKILL.md`, written from what its manifest says. Pure.

Palyra's skills are signed packages of WebAssembly tools and bring no instructions of their own; what an agent needs to
know is which tools there are, what they take and what was granted to them. The text is the same for the same payload,
so its digest is too. Rules: a publisher's words stand in the text as words (one line each, no fences, no headings of
their own), because the host shows them to a model.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from palyra.canon import Json
from palyra.model.visible import visible_line

EXTENSION = "io.modelcontextprotocol/skills"
MIME = "text/markdown"
_MAX_LINE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillFile:
    uri: str
    frontmatter: Mapping[str, Json]
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode("utf-8")

    def entry(self) -> dict[str, Any]:
        digest = hashlib.sha256(self.data).hexdigest()
        file = {"uri": self.uri, "digest": f"sha256:{digest}", "size": len(self.data)}
        return {"uri": self.uri, "frontmatter": dict(self.frontmatter), "resources": [file]}

    def resource(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "name": self.frontmatter["name"],
            "description": self.frontmatter["description"],
            "mimeType": MIME,
            "size": len(self.data),
        }


def skill_file(view: Mapping[str, Any], tools: Sequence[tuple[str, str, Mapping[str, Json]]]) -> SkillFile:
    """`view` is what `palyra skills show` prints; `tools`: (listed name, description, input schema)."""
    skill_id = str(view["skill_id"])
    *above, last = skill_id.split(".")
    name = _name(last)
    frontmatter: dict[str, Json] = {
        "name": name,
        "description": _line(str(view.get("summary") or view.get("display_name") or skill_id)),
        "metadata": {
            "skill_id": skill_id,
            "version": str(view["version"]),
            "publisher": str(view["publisher"]),
            "payload_sha256": str(view["sha256"]),
        },
    }
    lines = ["---", *_yaml(frontmatter), "---", "", f"# {_line(str(view.get('display_name') or skill_id))}", ""]
    lines += [str(frontmatter["description"]), "", "## Tools", ""]
    for listed, description, schema in tools:
        lines += [f"- `{listed}`: {_line(description)} Input schema: `{_json(schema)}`"]
    words = [_line(str(word)) for word in view.get("capability_words", [])]
    lines += ["", "## What it may do", "", *(f"- {word}" for word in words or ["Nothing but compute."]), ""]
    uri = f"skill://{'/'.join((*above, name))}/SKILL.md"
    return SkillFile(uri=uri, frontmatter=frontmatter, text="\n".join(lines))


def _name(label: str) -> str:
    """Agent skills allow no hyphen at an end and no two together."""
    return re.sub("-+", "-", label).strip("-") or "skill"


def _line(text: str) -> str:
    """A publisher's words: one line, nothing that ends it or redraws it."""
    return " ".join(visible_line(text.replace("\n", " ")).replace("`", "'").split())[:_MAX_LINE]


def _json(schema: Mapping[str, Json]) -> str:
    """Still the same JSON, and no sign in it ends the quotation."""
    return visible_line(orjson.dumps(schema).decode()).replace("`", "\\u0060")


def _yaml(value: Mapping[str, Json], indent: str = "") -> list[str]:
    """JSON strings are YAML strings, whatever is in them."""
    lines: list[str] = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            lines += [f"{indent}{key}:", *_yaml(item, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {orjson.dumps(item).decode()}")
    return lines
