"""What an agent's host asks its hook about (Claude Code, Codex, Cursor) → the calls of ours that would do it. Pure.

A shell's line is one `palyra.process.run` for each program in it, or an interpreter with code; files are `palyra.fs.*`,
web pages `palyra.http.fetch`. Rules: what cannot be read is an error and not a guess; a tool that Palyra knows no
counterpart of has no calls and `known` false, and the answer is then never a plain yes; tools of Palyra's own MCP
server are decided when they are called.

Not here: deciding (wiring/hooks), the hosts' ways of being answered (agent_answers).
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.model.visible import visible_line
from palyra.protocol.shell_line import programs_of

MAX_EVENT_BYTES = 4 << 20
MAX_INLINE_CODE = 4096
_MAX_TEXT = 16 * 1024
MCP_SERVER = "palyra"
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash", "/usr/bin/zsh", "/bin/zsh"})
_PATCHED = re.compile(r"^\s*\*\*\* (?:Add|Update|Delete) File: (.+)$|^\s*\*\*\* Move to: (.+)$", re.MULTILINE)
"""Indented as well: who applies the patch takes such a line too."""
_WILD = frozenset("*?[]{}!()")
_SHORT_NAME = re.compile(r"git~[0-9]", re.IGNORECASE)

Call = tuple[str, dict[str, Json]]
"""A tool of ours, and its input."""


class Agent(StrEnum):
    CLAUDE_CODE = "claude-code"
    CODEX = "codex"
    CURSOR = "cursor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    agent: Agent
    name: str
    """The host's word for the moment: PreToolUse, beforeShellExecution …"""
    tool: str
    """The host's word for the tool."""
    workspace: str
    session: str = ""
    calls: tuple[Call, ...] = ()
    known: bool = True
    """False: Palyra has no policy for such a tool."""
    own: bool = False
    """It will come to Palyra by itself."""


def parse_event(agent: Agent, data: bytes, *, project: str = "", mcp_server: str = MCP_SERVER) -> Event:
    """`project`: the host's word for the project's folder, where the event has none. `mcp_server`: what the host calls
    Palyra's MCP server. `Rejected` for what is no event."""
    if len(data) > MAX_EVENT_BYTES:
        raise Rejected(Reason.TOO_LARGE, "The hook's event is too large.", "Do it in smaller steps.")
    try:
        value = orjson.loads(data)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _malformed("it is not a JSON object")
    name = value.get("hook_event_name")
    if not isinstance(name, str):
        raise _malformed("hook_event_name is missing")
    if agent is Agent.CURSOR:
        return _cursor(value, name)
    return _tool_use(agent, value, name, project, mcp_server)


def is_own(tool: str, mcp_server: str) -> bool:
    """Exactly that server's, as the hosts spell it: any other may have our name within its own. No tool of ours has two
    underscores in a row, so the server `palyra__x` is not taken for `palyra`."""
    prefix = f"mcp__{mcp_server}__"
    name = tool.removeprefix(prefix)
    return bool(mcp_server) and name != tool and bool(name) and "__" not in name


def _malformed(why: str) -> Rejected:
    return Rejected(Reason.MALFORMED, f"The hook's event cannot be read: {why}.", "Is the agent newer than Palyra?")


def _text(value: Mapping[str, Any], *names: str) -> str:
    """The one of these that is there: of two, the host might take the other."""
    found = [value[name] for name in names if value.get(name) not in (None, "")]
    if len(found) > 1:
        raise _malformed(f"{names[0]} is given under two names")
    if not found or not isinstance(found[0], str):
        raise _malformed(f"{names[0]} is missing")
    return found[0]


# ── Claude Code and Codex ────────────────────────────────────────────────────


def _tool_use(agent: Agent, value: Mapping[str, Any], name: str, project: str, mcp_server: str) -> Event:
    cwd = _text(value, "cwd")
    workspace = project if project and _below(cwd, project) else cwd
    tool, given = _text(value, "tool_name"), value.get("tool_input")
    if not isinstance(given, Mapping):
        raise _malformed("tool_input is not an object")
    make = _TOOLS.get(tool)
    return Event(
        agent=agent,
        name=name,
        tool=tool[:100],
        workspace=workspace,
        session=str(value.get("session_id", ""))[:100],
        calls=make(given, _Place(workspace, cwd)) if make is not None else (),
        known=make is not None,
        own=is_own(tool, mcp_server),
    )


@dataclass(frozen=True, slots=True)
class _Place:
    workspace: str
    cwd: str

    def relative(self, path: str) -> str:
        """As our tools name files: below the workspace. What is elsewhere keeps its name, and is refused for it."""
        absolute = os.path.normpath(os.path.join(self.cwd, path))
        _check_spelling(path)
        if not _below(absolute, self.workspace):
            return path
        whole = os.path.join(self.cwd, path)
        if ".." in path.split("/") and whole.startswith(self.workspace.rstrip("/") + "/"):
            # Behind a link `link/../x` is another file than x: the disk says which.
            return whole[len(self.workspace.rstrip("/")) + 1 :]
        return os.path.relpath(absolute, self.workspace)


def _check_spelling(path: str) -> None:
    """Hosts and file systems read some spellings as another file: they trim blanks, follow URLs and variables, drop
    letters that nobody sees and dots at the end, know `GIT~1`. Rejected: which file is meant cannot be told."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    odd = path != path.strip() or visible_line(path) != path or path.startswith(("$", "%")) or "://" in path
    if odd or any(part[-1] in ". " or _SHORT_NAME.match(part) for part in parts):
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "The path is spelled in a way that the host could take for another file's.",
            "Name the file plainly: no blanks or dots at its ends, no hidden letters, no URL, no variable.",
        )


def _below(path: str, folder: str) -> bool:
    folder = os.path.normpath(folder)
    return os.path.normpath(path) == folder or os.path.normpath(path).startswith(folder.rstrip("/") + "/")


def _shell(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    if "command" in given and "cmd" in given:
        raise _malformed("command is given under two names")
    if given.get("shell") is not None and given["shell"] not in _SHELLS:
        raise _malformed("it names a shell of its own")
    if given.get("workdir"):  # Codex runs the line there
        place = _Place(place.workspace, os.path.join(place.cwd, _text(given, "workdir")))
    command = given.get("command", given.get("cmd"))
    if isinstance(command, list) and command and all(isinstance(word, str) for word in command):
        if len(command) == 3 and command[0] in _SHELLS and command[1] in ("-c", "-lc"):
            command = command[2]
        else:
            return (_run(tuple(command), place.relative(place.cwd)),)
    if not isinstance(command, str) or not command.strip():
        raise _malformed("command is missing")
    return line_calls(command, place.workspace, place.cwd)


def line_calls(line: str, workspace: str, cwd: str) -> tuple[Call, ...]:
    """The calls that stand for a shell's line; `cd FOLDER` moves those that follow."""
    place = _Place(workspace, cwd)
    programs = programs_of(line)
    moves = programs is not None and any(program.words[0] == "cd" for program in programs)
    if programs is None or (moves and any(program.joined_by not in ("", "&&") for program in programs)):
        # After `cd` anything but && also runs where the cd did not happen, and `..` means another folder there.
        return (_code(line, place.relative(cwd)),)
    calls: list[Call] = []
    for words in (program.words for program in programs):
        if words[0] == "cd" and len(words) == 2 and words[1][:1] not in ("-", "+"):  # +1: a folder that was left
            if _goes_back(words[1], moved=place.cwd != cwd):
                return (_code(line, _Place(workspace, cwd).relative(cwd)),)
            place = _Place(workspace, os.path.normpath(os.path.join(place.cwd, words[1])))
            calls.append(("palyra.fs.list", {"path": place.relative(place.cwd)}))
        else:
            calls.append(_run(words, place.relative(place.cwd)))
    return tuple(calls)


def _goes_back(folder: str, *, moved: bool) -> bool:
    """`..` behind a name: if that is a link, it is the shell's options that say where this leads."""
    parts = [part for part in folder.split("/") if part not in ("", ".")]
    names = next((at for at, part in enumerate(parts) if part != ".."), len(parts))
    return ".." in (parts if moved else parts[names:])


def _run(words: tuple[str, ...], cwd: str) -> Call:
    return "palyra.process.run", {"command": words[0], "args": list(words[1:]), "cwd": cwd}


def _code(line: str, cwd: str) -> Call:
    if len(line.encode("utf-8", "replace")) <= MAX_INLINE_CODE:
        return "palyra.process.run", {"command": "bash", "args": ["-c", line], "cwd": cwd}
    return "palyra.process.run", {"command": "bash", "args": ["-s"], "stdin": line, "cwd": cwd}


def _reads(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    return (("palyra.fs.read", {"path": place.relative(_text(given, "file_path", "path"))}),)


def _writes(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    path = place.relative(_text(given, "file_path", "notebook_path", "path"))
    text = given.get("content", given.get("new_string", ""))
    shown = text if isinstance(text, str) and len(text) <= _MAX_TEXT else ""
    return (("palyra.fs.write", {"path": path, "text": shown}),)


def _lists(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    path = given.get("path")
    return (("palyra.fs.list", {"path": place.relative(path if isinstance(path, str) and path else place.cwd)}),)


def _globs(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    """What a pattern lists is below its words without wildcards, and those may lead anywhere."""
    base = given.get("path")
    parts = _text(given, "pattern").split("/")
    wild = next((at for at, part in enumerate(parts) if not _WILD.isdisjoint(part)), len(parts))
    if any(word in "/".join(parts[wild:]) for word in ("..", "{/", ",/", "{~", ",~")):
        raise Rejected(Reason.OUTSIDE_WORKSPACE, "The pattern may lead out of its folder.", "Name the folder as path.")
    fixed = "/".join(parts[:wild]) or ("/" if wild and not parts[0] else "")
    where = os.path.join(base if isinstance(base, str) and base else place.cwd, fixed)
    return (("palyra.fs.list", {"path": place.relative(where)}),)


def _searches(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    path = given.get("path")
    where = place.relative(path if isinstance(path, str) and path else place.cwd)
    return (("palyra.fs.search", {"pattern": _text(given, "pattern")[:256], "path": where}),)


def _fetches(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    return (("palyra.http.fetch", {"url": _text(given, "url")}),)


def _patches(given: Mapping[str, Any], place: _Place) -> tuple[Call, ...]:
    found = _PATCHED.findall(_text(given, "command", "input", "patch"))
    if not found:
        raise _malformed("the patch names no file")
    paths = (place.relative((changed or moved).strip()) for changed, moved in found)
    return tuple(("palyra.fs.write", {"path": path, "text": ""}) for path in paths)


_TOOLS: Mapping[str, Callable[[Mapping[str, Any], _Place], tuple[Call, ...]]] = {
    **dict.fromkeys(("Bash", "shell", "shell_command", "exec_command", "local_shell", "unified_exec"), _shell),
    **dict.fromkeys(("Read", "NotebookRead", "view_image"), _reads),
    **dict.fromkeys(("Write", "Edit", "MultiEdit", "NotebookEdit"), _writes),
    "LS": _lists,
    "Glob": _globs,
    "Grep": _searches,
    "WebFetch": _fetches,
    "apply_patch": _patches,
}


# ── Cursor ───────────────────────────────────────────────────────────────────


def _cursor(value: Mapping[str, Any], name: str) -> Event:
    roots = value.get("workspace_roots")
    root = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    cwd = value.get("cwd") if isinstance(value.get("cwd"), str) and value.get("cwd") else root
    if not isinstance(cwd, str) or not cwd:
        raise _malformed("neither cwd nor workspace_roots is given")
    workspace = root if root and _below(cwd, root) else cwd
    place = _Place(workspace, cwd)
    known = True
    match name:
        case "beforeShellExecution":
            calls = line_calls(_text(value, "command"), workspace, cwd)
        case "beforeReadFile":
            calls = _reads(value, place)
        case _:
            calls, known = (), False  # a tool of MCP too: which server's it is, it does not say
    session = str(value.get("conversation_id", ""))[:100]
    return Event(
        agent=Agent.CURSOR,
        name=name,
        tool=str(value.get("tool_name", name))[:100],
        workspace=workspace,
        session=session,
        calls=calls,
        known=known,
    )
