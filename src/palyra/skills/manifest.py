"""skill.toml as a value: what a skill is and what it asks for. Parsing refuses what it does not know.

Rules: a skill's id and its tools' ids begin with its publisher, who owns them; unknown keys are refused at every level;
values are canonical (skills/fields). `export` is `run`, the one entry that guests have.

Not here: the text form (manifest_text), whether files fit (bundle), whether what is asked for is acceptable (review).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import field

from palyra.canon import Json
from palyra.skills.capabilities import Capabilities, parse_capabilities
from palyra.skills.fields import Table, bad, check_line, check_match
from palyra.skills.findings import Finding, SkillRefused
from palyra.skills.tool_schema import check_schema
from palyra.skills.version import is_version
from palyra.values import dataclass

MANIFEST_VERSION = 2
MAX_TEXT_BYTES = 256 << 10
MAX_TOOLS = 32
SURFACE = "palyra:plugins@0.1.0"
RESERVED_PUBLISHERS = frozenset({"palyra", "inline", "skill"})
"""`palyra.*` are tools of Palyra's own; the others are words that stand where a publisher could."""

_LABEL = r"[a-z0-9][a-z0-9-]{0,62}"
PUBLISHER = re.compile(_LABEL)
SKILL_ID = re.compile(rf"{_LABEL}(?:\.{_LABEL}){{1,3}}")
TOOL_ID = re.compile(rf"{_LABEL}(?:\.[a-z0-9][a-z0-9_-]{{0,62}}){{1,3}}")
_MODULE = re.compile(r"modules/[a-z0-9_][a-z0-9._-]{0,58}\.wasm")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_WORD = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_PROPERTY = re.compile(r"[a-z][a-z0-9_]{0,63}")
_URL = re.compile(r"https://[a-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9._~%/?&=#+-]*)?")
_CONFIG_TYPES = frozenset({"string", "integer", "number", "boolean"})
_SOURCES = frozenset({"template", "model", "calls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEntry:
    id: str
    name: str
    description: str
    module: str
    """`modules/NAME.wasm`."""
    input_schema: dict[str, Json]
    output_schema: dict[str, Json]
    export: str = "run"
    default_sensitive: bool = False
    requires_approval: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProperty:
    """A setting that the skill's operator gives it; `redacted` ones are never shown."""

    name: str
    type: str
    title: str
    required: bool = False
    redacted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorInfo:
    display_name: str = ""
    summary: str = ""
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    docs_url: str = ""
    config: tuple[ConfigProperty, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BuilderInfo:
    """On a skill that was generated: from what."""

    source: str
    """`template`, `model` or `calls`."""
    candidate: str = ""
    intent_sha256: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillManifest:
    skill_id: str
    name: str
    version: str
    publisher: str
    tools: tuple[ToolEntry, ...]
    capabilities: Capabilities = field(default_factory=Capabilities)
    min_palyra: str = "0.1.0"
    surface: str = SURFACE
    integrity: tuple[tuple[str, str], ...] = ()
    """(path, sha256) of every module and asset, sorted; empty in a project that was not packed yet."""
    operator: OperatorInfo = field(default_factory=OperatorInfo)
    review_required: bool = True
    builder: BuilderInfo | None = None

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(sorted({tool.module for tool in self.tools}))


def parse_manifest(text: bytes) -> SkillManifest:
    """`SkillRefused` with the place and what is wrong there."""
    top = Table(_parse_toml(text), "")
    if top.raw("manifest_version") != MANIFEST_VERSION or isinstance(top.raw("manifest_version"), bool):
        raise bad("manifest_version", f"is not {MANIFEST_VERSION}")
    publisher = check_publisher(top.raw("publisher"))
    skill_id = check_skill_id(top.raw("skill_id"), publisher)
    tools = _parse_tools(top.table("entrypoints"), publisher)
    compat, trust = top.table("compat"), top.table("trust")
    manifest = SkillManifest(
        skill_id=skill_id,
        name=top.line("name", most=80),
        version=_version(top.raw("version"), "version"),
        publisher=publisher,
        tools=tools,
        capabilities=parse_capabilities(top.table("capabilities")),
        min_palyra=_version(compat.raw("min_palyra", "0.1.0"), "compat.min_palyra"),
        surface=check_match(compat.raw("surface", SURFACE), "compat.surface", re.compile(re.escape(SURFACE)), SURFACE),
        integrity=_parse_integrity(top.table("integrity")),
        operator=_parse_operator(top.table("operator")),
        review_required=trust.flag("review_required", default=True),
        builder=_parse_builder(top.table("builder")) if top.has("builder") else None,
    )
    compat.done()
    trust.done()
    top.done()
    return manifest


def check_publisher(value: object) -> str:
    if not isinstance(value, str) or not PUBLISHER.fullmatch(value) or value in RESERVED_PUBLISHERS:
        raise bad(
            "publisher",
            "is not one label of a-z, 0-9 and -, or is reserved for Palyra",
            Finding.MANIFEST_PUBLISHER,
        )
    return value


def check_skill_id(value: object, publisher: str) -> str:
    found = check_match(value, "skill_id", SKILL_ID, "of the form publisher.name")
    if found.partition(".")[0] != publisher:
        raise bad("skill_id", f"does not begin with its publisher, {publisher}", Finding.MANIFEST_PUBLISHER)
    return found


def _parse_toml(text: bytes) -> dict[str, object]:
    if len(text) > MAX_TEXT_BYTES:
        raise SkillRefused(Finding.MANIFEST_SYNTAX, f"skill.toml is larger than {MAX_TEXT_BYTES} bytes.")
    try:
        return tomllib.loads(text.decode("utf-8"))
    except UnicodeDecodeError:
        raise SkillRefused(Finding.MANIFEST_SYNTAX, "skill.toml is not UTF-8.") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise SkillRefused(Finding.MANIFEST_SYNTAX, f"skill.toml is not TOML: {str(error)[:160]}.") from None


def _version(value: object, path: str) -> str:
    if not isinstance(value, str) or not is_version(value):
        raise bad(path, "is not a semantic version such as 1.2.3")
    return value


def _parse_tools(entrypoints: Table, publisher: str) -> tuple[ToolEntry, ...]:
    tools = tuple(_parse_tool(table, publisher) for table in entrypoints.tables("tools", most=MAX_TOOLS))
    entrypoints.done()
    if not tools:
        raise bad("entrypoints.tools", "names no tool")
    if [tool.id for tool in tools] != sorted({tool.id for tool in tools}):
        raise bad("entrypoints.tools", "are not sorted by id, or one id appears twice")
    return tools


def _parse_tool(table: Table, publisher: str) -> ToolEntry:
    tool_id = table.matching("id", TOOL_ID, "of the form publisher.tool")
    if tool_id.partition(".")[0] != publisher:
        raise bad(
            table.at("id"),
            f"belongs to another publisher: it must begin with {publisher}.",
            Finding.MANIFEST_TOOL_OWNER,
        )
    risk = table.table("risk")
    tool = ToolEntry(
        id=tool_id,
        name=table.line("name", most=80),
        description=table.line("description", most=1000),
        module=table.matching("module", _MODULE, "of the form modules/NAME.wasm"),
        export=table.matching("export", re.compile("run"), "run, the one entry that a guest has", default="run"),
        input_schema=check_schema(table.raw("input_schema"), table.at("input_schema"), of_object=True),
        output_schema=check_schema(table.raw("output_schema"), table.at("output_schema"), of_object=False),
        default_sensitive=risk.flag("default_sensitive", default=False),
        requires_approval=risk.flag("requires_approval", default=False),
    )
    risk.done()
    table.done()
    return tool


def _parse_integrity(table: Table) -> tuple[tuple[str, str], ...]:
    files = table.raw("files", {})
    table.done()
    if not isinstance(files, dict):
        raise bad("integrity.files", "is not a table of paths and digests")
    return tuple(
        (str(path), check_match(digest, f"integrity.files.{path!s:.80}", _DIGEST, "a SHA-256 in hex"))
        for path, digest in sorted(files.items())
    )


def _parse_operator(table: Table) -> OperatorInfo:
    config = table.table("config")
    info = OperatorInfo(
        display_name=table.line("display_name", most=80, default=""),
        summary=table.line("summary", most=400, default=""),
        categories=table.items("categories", _word, most=8),
        tags=table.items("tags", _word, most=16),
        docs_url=table.matching("docs_url", _URL, "an https address", default=""),
        config=_parse_config(config.table("properties")),
    )
    config.done()
    table.done()
    return info


def _word(value: object, path: str) -> str:
    return check_match(value, path, _WORD, "one word of a-z, 0-9 and -")


def _parse_config(table: Table) -> tuple[ConfigProperty, ...]:
    found = []
    for name in sorted(table.names()):
        one = table.table(check_match(name, table.at(name), _PROPERTY, "a name of a-z, 0-9 and _"))
        kind = one.line("type", most=16)
        if kind not in _CONFIG_TYPES:
            raise bad(one.at("type"), f"is not one of {', '.join(sorted(_CONFIG_TYPES))}")
        title = check_line(one.raw("title"), one.at("title"), most=120)
        required, redacted = one.flag("required", default=False), one.flag("redacted", default=False)
        found.append(ConfigProperty(name=name, type=kind, title=title, required=required, redacted=redacted))
        one.done()
    return tuple(found)


def _parse_builder(table: Table) -> BuilderInfo:
    source = table.line("source", most=16)
    if source not in _SOURCES:
        raise bad(table.at("source"), f"is not one of {', '.join(sorted(_SOURCES))}")
    info = BuilderInfo(
        source=source,
        candidate=table.matching("candidate", re.compile(r"[0-9A-Za-z-]{1,64}"), "an id", default=""),
        intent_sha256=table.matching("intent_sha256", _DIGEST, "a SHA-256 in hex", default=""),
        model=table.line("model", most=120, default=""),
    )
    table.done()
    return info
