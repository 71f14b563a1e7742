"""The one text a manifest has: TOML with fixed order, every table written out, nothing left to a writer's taste.

A package holds exactly this text: parsing it and writing it again gives the same bytes, so no comment, spelling or
second reading can hide in it. Authors write their own skill.toml as they like; packing writes this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from palyra.canon import Json
from palyra.skills.capabilities import Capabilities
from palyra.skills.manifest import MANIFEST_VERSION, SkillManifest, ToolEntry

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


def write_manifest(manifest: SkillManifest) -> bytes:
    lines = [
        f"manifest_version = {MANIFEST_VERSION}",
        *_pairs({"skill_id": manifest.skill_id, "name": manifest.name, "version": manifest.version}),
        *_pairs({"publisher": manifest.publisher}),
    ]
    for tool in manifest.tools:
        lines += ["", "[[entrypoints.tools]]", *_tool(tool)]
    lines += ["", "[capabilities]", *_capabilities(manifest.capabilities)]
    lines += ["", "[compat]", *_pairs({"min_palyra": manifest.min_palyra, "surface": manifest.surface})]
    lines += ["", "[integrity.files]", *_pairs(dict(manifest.integrity))]
    lines += ["", "[operator]", *_operator(manifest)]
    lines += ["", "[trust]", *_pairs({"review_required": manifest.review_required})]
    if manifest.builder is not None:
        builder = manifest.builder
        lines += ["", "[builder]", *_pairs({"source": builder.source, "candidate": builder.candidate})]
        lines += _pairs({"intent_sha256": builder.intent_sha256, "model": builder.model})
    return ("\n".join(lines) + "\n").encode("utf-8")


def _tool(tool: ToolEntry) -> Iterator[str]:
    yield from _pairs({"id": tool.id, "name": tool.name, "description": tool.description})
    yield from _pairs({"module": tool.module, "export": tool.export})
    risk = {"default_sensitive": tool.default_sensitive, "requires_approval": tool.requires_approval}
    yield from _pairs({"risk": risk, "input_schema": tool.input_schema, "output_schema": tool.output_schema})


def _capabilities(asked: Capabilities) -> Iterator[str]:
    value = asked.as_json()
    quotas = {name: number for name, number in value.pop("quotas").items() if number is not None}
    order = ("http_egress_allowlist", "filesystem", "secrets", "channels", "device_capabilities", "wildcard_opt_in")
    yield from _pairs({name: value[name] for name in order})
    yield from _pairs({"quotas": quotas})


def _operator(manifest: SkillManifest) -> Iterator[str]:
    info = manifest.operator
    yield from _pairs({"display_name": info.display_name, "summary": info.summary})
    yield from _pairs({"categories": list(info.categories), "tags": list(info.tags), "docs_url": info.docs_url})
    properties = {
        one.name: {"type": one.type, "title": one.title, "required": one.required, "redacted": one.redacted}
        for one in info.config
    }
    yield from _pairs({"config": {"properties": properties}})


def _pairs(values: Mapping[str, Json]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in values.items()]


def _value(value: Json) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int():
            return str(value)
        case float():
            return repr(value)
        case Mapping():
            if not value:
                return "{}"
            return "{ " + ", ".join(f"{_key(key)} = {_value(value[key])}" for key in sorted(value)) + " }"
        case Sequence():
            return "[" + ", ".join(_value(item) for item in value) + "]"
    raise ValueError(f"{type(value).__name__} cannot be written as TOML")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(value: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _unicode(c)) for c in value) + '"'


def _unicode(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
