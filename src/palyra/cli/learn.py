"""What `palyra run --learn` says at the end, on stderr: what was missing, and the smallest grant in two spellings.

Flags for the next call and settings for every call. What cannot be granted is said too.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.render import visible_line
from palyra.cli.say import say_error

if TYPE_CHECKING:
    from palyra.model.outcome import Outcome

CANNOT = 125


def tell_learned(outcome: Outcome, flags: dict[str, Any]) -> int:
    """0, or the exit code where nothing could be watched."""
    learned: Any = outcome.output.get("learned")
    if learned is None:
        return 0  # it was refused: that has been said
    if learned["problem"]:
        say_error(f"--learn cannot watch here: {learned['problem']}.", "The program was not run. Leave out --learn.")
        return CANNOT
    for line in learned_lines(learned, flags):
        click.echo(visible_line(line), err=True)
    return 0


def learned_lines(learned: dict[str, Any], flags: dict[str, Any]) -> list[str]:
    lines = []
    for title, paths in (
        ("it missed", learned["read"]),
        ("it wanted to write, outside its workspace (choose one that holds it, or point the program elsewhere)",
         learned["write"]),
        ("it asked for what looks like secrets (not granted: see palyra secrets)", learned["secret"]),
        ("it wanted to reach", learned["hosts"]),
    ):  # fmt: skip
        if paths:
            lines += [f"palyra: {title}:", *(f"  {path}" for path in paths)]
    if not learned["complete"]:
        lines.append("palyra: it asked for more than could be recorded")
    roots, hosts = learned["grant"]["read_roots"], learned["grant"]["allowed_egress_hosts"]
    if not roots and not hosts:
        return [*lines, "palyra: nothing was refused that a grant would allow"]
    return [*lines, *_spellings(roots, hosts, flags)]


def _spellings(roots: list[str], hosts: list[str], flags: dict[str, Any]) -> list[str]:
    words = [word for root in roots for word in ("--read", root)]
    words += [word for host in hosts for word in _host_words(host)]
    lines = [
        "palyra: the smallest grant, for one call:",
        f"  {shell_words(['palyra', 'run', *_given(flags), *words])} \\",
    ]
    lines.append(f"    -- {shell_words(flags['argv'])}")
    lines += ["palyra: for every call, in palyra.toml:", "  [tool_call.process_runner]"]
    if roots:
        lines.append(f"  read_roots = {_toml(roots)}")
    if hosts:
        lines.append(f"  allowed_egress_hosts = {_toml(hosts)}")
    return lines


def _host_words(pattern: str) -> tuple[str, str]:
    plain = pattern.removesuffix(" raw")
    return ("--allow-host" if plain == pattern else "--allow-raw", plain)


_SPELLED = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t"}


def shell_words(words: Sequence[str]) -> str:
    """To be copied from a terminal: what cannot be seen there is spelled as bash and zsh read it."""
    return " ".join(shlex.quote(word) if word.isprintable() else f"$'{_spelled(word)}'" for word in words)


def _spelled(word: str) -> str:
    return "".join(_SPELLED.get(one) or (one if one.isprintable() else _bytes_of(one)) for one in word)


def _bytes_of(one: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in one.encode("utf-8", "surrogateescape"))


def _given(flags: dict[str, Any]) -> list[str]:
    """The flags of this call that its next run needs as well."""
    words = [word for name in ("executables", "read_roots", "hosts", "raw_hosts") for value in flags[name]
             for word in (_OPTIONS[name], value)]  # fmt: skip
    words += [word for key, value in flags["env"] for word in ("--env", f"{key}={value}")]
    words += [word for name in ("workspace", "egress", "principal") if flags[name]
              for word in (_OPTIONS[name], flags[name])]  # fmt: skip
    return [*words, "--allow-interpreters"] if flags["allow_interpreters"] else words


_OPTIONS = {
    "executables": "--allow",
    "read_roots": "--read",
    "hosts": "--allow-host",
    "raw_hosts": "--allow-raw",
    "workspace": "--workspace",
    "egress": "--egress",
    "principal": "--as",
}


def _toml(values: list[str]) -> str:
    import json

    return json.dumps(values, ensure_ascii=False)
