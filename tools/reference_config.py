"""docs/reference/config.md, from the configuration's dataclasses: every key with type, default and what it may hold.

A key's sentence is the string below it in config/schema.py, else its row in `MEANINGS`; a key with neither, and a row
without its key, is an error, so the page cannot fall behind.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

from palyra.config import schema

MEANINGS = {
    "posture": "Which of Palyra's own policy bundles decides: `locked` permits nothing by itself, `standard` permits "
    "listed programs in tier C, `developer` also interpreters and build tools in tier C with strict egress.",
    "tool_call.allowed_tools": "Which tools may be called at all, as shell patterns. Checked before policy. A tool of "
    "an enabled skill counts by its own id and as `palyra.plugin.run`.",
    "tool_call.allowed_capabilities": "A tool that needs another capability is refused with `CAPABILITY_DENIED`.",
    "tool_call.wasm_runtime.enabled": "`false` refuses every `palyra.plugin.run`.",
    "tool_call.wasm_runtime.component_fuel_budget": "The same for a component.",
    "tool_call.wasm_runtime.max_table_elements": "Elements in one guest's tables.",
    "tool_call.process_runner.enabled": "`false` refuses every `palyra.process.run`.",
    "tool_call.process_runner.tier": "`auto` is tier C. Tier B is used only when it is set here or asked for with a "
    "flag.",
    "tool_call.process_runner.fallback_tier": "`b`: with `auto`, use tier B where no tier C backend can serve the "
    "call and tier B can. Empty: refuse.",
    "tool_call.process_runner.workspace_root": "The workspace of a run that names none.",
    "tool_call.process_runner.allowed_executables": "Names of programs that may be run; replaces the built-in list.",
    "tool_call.process_runner.allow_interpreters": "Treats interpreters and programs that run code as granted.",
    "tool_call.process_runner.path": "Where program names are looked up, in this order, and `PATH` of the program.",
    "tool_call.process_runner.read_roots": "Additional folders that a tier C program may read.",
    "tool_call.process_runner.egress_enforcement_mode": "Network of native programs; see "
    "[egress.md](../spec/egress.md). `allow_all` is `none`, `block_all` is `strict` without any host.",
    "tool_call.process_runner.allowed_egress_hosts": "Hosts that calls may name: `host`, `host:port`, `.suffix`, "
    "`*.suffix`, an address or a CIDR. For a protocol that Palyra does not know, "
    '`{ host = "db.example.com", port = 9042, raw = true }` lets every byte pass there.',
    "tool_call.process_runner.max_output_bytes": "stdout and stderr together; `palyra run` has 64 MiB of its own.",
}
KINDS = {bool: "boolean", int: "integer", str: "string"}


def make_config() -> Iterator[str]:
    yield "# Configuration"
    yield (
        "Read from `--config FILE`, else `palyra.toml` in the home (`--home`, `$PALYRA_HOME`, else `palyra` below the "
        "XDG data folder), else `/etc/palyra/palyra.toml`, else the defaults below. **Never from a workspace or the "
        "current folder**: agents write there. A file that everyone may write, or that belongs to a user other than "
        "root and yourself, is refused. An unknown key or a wrong value is an error that names file and line. "
        "`palyra init` writes a commented file. The digest of the whole configuration is `config_sha256` in every "
        "attestation. A daemon reads it when it starts; `palyra doctor` says if one still uses an older file."
    )
    seen: set[str] = set()
    yield from _describe(schema.Config, (), seen)
    unused = sorted(MEANINGS.keys() - seen)
    if unused:
        raise LookupError(f"tools/reference_config.py: there is no key {unused[0]}, or it says its meaning itself")
    yield "## Environment variables Palyra reads"
    yield (
        "`PALYRA_HOME` and `XDG_DATA_HOME`, only to find the home, as absolute paths. No setting and no key is read "
        "from the environment. "
        "Where `container_image` is set, its engine's client is given `XDG_RUNTIME_DIR`, `XDG_CONFIG_HOME`, "
        "`XDG_DATA_HOME`, and `DOCKER_HOST` or `CONTAINER_HOST` if they name a Unix socket: that is how it finds its "
        "engine."
    )


def _describe(kind: type[Any], at: tuple[str, ...], seen: set[str]) -> Iterator[str]:
    """One TOML table as a heading and a table of its keys, then the tables inside it."""
    notes, hints = read_notes(kind), get_type_hints(kind)
    inner = [f for f in fields(kind) if is_dataclass(hints[f.name])]
    listed = [f for f in fields(kind) if schema.table_of(hints[f.name]) is not None]
    yield f"## `[{'.'.join(at)}]`" if at else "## Top of the file"
    rows = ["| key | type | default | allowed | meaning |", "|---|---|---|---|---|"]
    for field in (f for f in fields(kind) if f not in inner):
        path = (*at, field.name)
        meaning = notes.get(field.name) or MEANINGS[".".join(path)]
        if field.name not in notes:
            seen.add(".".join(path))
        rows.append(
            f"| `{field.name}` | {_type(hints[field.name])} | {_default(field)} | {_allowed(path)} | {meaning} |"
        )
    if len(fields(kind)) > len(inner):
        yield "\n".join(rows)
    else:
        yield "Holds the tables below."
    for field in inner:
        yield from _describe(hints[field.name], (*at, field.name), seen)
    for field in listed:
        yield from _describe(schema.table_of(hints[field.name]) or kind, (*at, f"[{field.name}]"), seen)


def _type(hint: Any) -> str:
    return KINDS.get(hint, "list of strings" if schema.table_of(hint) is None else "list of tables")


def _default(field: Field[Any]) -> str:
    value = field.default if field.default is not MISSING else None
    return f"`{show(value)}`"


def _allowed(path: tuple[str, ...]) -> str:
    words, bounds = schema._WORDS.get(path), schema._RANGES.get(path[-1])
    if path[0] == "budget":
        bounds = schema.MOST
    if words:
        return " ".join(f"`{show(word)}`" for word in words)
    if bounds:
        return f"{bounds[0]} to {bounds[1]}"
    return "absolute folders" if path[-1] in schema._FOLDERS else "–"


def show(value: object) -> str:
    """A default as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(show(item) for item in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def read_notes(kind: type[Any]) -> dict[str, str]:
    """The strings that stand below the names of a class body, by name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for named, after in zip(body.body, body.body[1:], strict=False):
        match named, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                ast.Expr(value=ast.Constant(value=str(note))),
            ):
                found[name] = " ".join(note.split())
    return found
