"""The hosts' own settings with our hook in them, and without it. Pure: bytes in, bytes out.

Rules: what cannot be understood is refused and left alone; nothing of the user's is dropped or reordered; adding twice
is adding once; our entries are known by the program they start.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palyra.errors import ConfigError
from palyra.protocol.agent_events import Agent

MARK = "palyra/cli/hook_entry.py"
TIMEOUT_S = 90
_CLAUDE_TOOLS = "Bash|Read|NotebookRead|Edit|MultiEdit|Write|NotebookEdit|Glob|Grep|LS|WebFetch"
_CODEX_TOOLS = "Bash|shell|shell_command|exec_command|local_shell|unified_exec|apply_patch|Edit|Write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    folder: str
    """Below the user's home."""
    environ: str
    """A variable that names another folder."""
    file: str
    entries: Callable[[str], Mapping[str, Any]]
    """The command → event → our one entry of its list."""
    root: Mapping[str, Any]
    """What a file that is not there yet begins with."""


def _groups(matcher: str) -> Callable[[str], Mapping[str, Any]]:
    def entries(command: str) -> Mapping[str, Any]:
        hook = {"type": "command", "command": command, "timeout": TIMEOUT_S}
        return {"PreToolUse": {"matcher": matcher, "hooks": [hook]}}

    return entries


def _cursor(command: str) -> Mapping[str, Any]:
    entry = {"command": command, "failClosed": True}
    return {"beforeShellExecution": entry, "beforeReadFile": entry}


HOSTS: Mapping[Agent, Host] = {
    Agent.CLAUDE_CODE: Host(
        folder=".claude", environ="CLAUDE_CONFIG_DIR", file="settings.json", entries=_groups(_CLAUDE_TOOLS), root={}
    ),
    Agent.CODEX: Host(folder=".codex", environ="CODEX_HOME", file="hooks.json", entries=_groups(_CODEX_TOOLS), root={}),
    Agent.CURSOR: Host(folder=".cursor", environ="", file="hooks.json", entries=_cursor, root={"version": 1}),
}


def with_hook(agent: Agent, data: bytes | None, command: str, *, where: str) -> bytes:
    """The file with our entries in it; the very same bytes when they are there already."""
    root = dict(HOSTS[agent].root) if data is None else _parse(data, where)
    hooks = _object(root.setdefault("hooks", {}), "hooks", where)
    wanted = HOSTS[agent].entries(command)
    if data is not None and all(_has(hooks.get(event), entry) for event, entry in wanted.items()):
        return data
    _drop(hooks, where)  # of an older installation, or of one elsewhere
    for event, entry in wanted.items():
        _list(hooks.setdefault(event, []), f"hooks.{event}", where).append(entry)
    return _dump(root, data)


def without_hook(data: bytes, *, where: str) -> bytes:
    """The file without our entries; the very same bytes when there are none."""
    root = _parse(data, where)
    hooks = root.get("hooks")
    if not isinstance(hooks, dict) or not _drop(hooks, where):
        return data
    if not hooks:
        del root["hooks"]
    return _dump(root, data)


def state_of(agent: Agent, data: bytes | None, command: str, *, where: str) -> str:
    """`installed`, `outdated` (it starts another program than it would now) or `absent`."""
    if data is None:
        return "absent"
    root = _parse(data, where)
    hooks = root.get("hooks", {})
    if not isinstance(hooks, dict):
        return "absent"
    if all(_has(hooks.get(event), entry) for event, entry in HOSTS[agent].entries(command).items()):
        return "installed"
    return "outdated" if any(_is_ours(entry) for found in hooks.values() for entry in _entries(found)) else "absent"


def _has(found: Any, entry: Any) -> bool:
    return isinstance(found, list) and entry in found


def _entries(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _is_ours(entry: Any) -> bool:
    return MARK in json.dumps(entry)


def _drop(hooks: dict[str, Any], where: str) -> bool:
    dropped = False
    for event in list(hooks):
        found = _list(hooks[event], f"hooks.{event}", where)
        left = [_without_ours(entry) for entry in found]
        if left == found:
            continue
        dropped = True
        hooks[event] = [entry for entry in left if entry is not None]
        if not hooks[event]:
            del hooks[event]
    return dropped


def _without_ours(entry: Any) -> Any:
    """None where nothing is left of it. Somebody may have put a hook of their own beside ours."""
    group = entry.get("hooks") if isinstance(entry, dict) else None
    if not isinstance(group, list):
        return None if _is_ours(entry) else entry
    kept = [hook for hook in group if not _is_ours(hook)]
    return entry if len(kept) == len(group) else {**entry, "hooks": kept} if kept else None


def _parse(data: bytes, where: str) -> dict[str, Any]:
    try:
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where} is not valid JSON: {error}.", "Nothing was changed. Fix the file first.") from None
    return _object(value, "its content", where)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that stands twice: writing it back would lose one of them."""
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice")
    return value


def _object(value: Any, name: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {name} is not an object.", "Nothing was changed. Fix the file first.")
    return value


def _list(value: Any, name: str, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{where}: {name} is not a list.", "Nothing was changed. Fix the file first.")
    return value


def _dump(root: Mapping[str, Any], before: bytes | None) -> bytes:
    second = before.partition(b"\n")[2] if before is not None else b""
    indent: int | str = "\t" if second.startswith(b"\t") else 4 if second.startswith(b"    ") else 2
    return json.dumps(root, indent=indent, ensure_ascii=False).encode("utf-8") + b"\n"
