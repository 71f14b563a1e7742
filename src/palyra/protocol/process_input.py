"""The input of palyra.process.run as a value, with the refusals that deserve a hint of their own.

The schema has passed already. What it cannot say well: a command line in `command` is the commonest mistake of models,
and the hint shows the split form; the next are a program of the workspace by its path, and words of a shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.model.process import Lifetime
from palyra.values import dataclass

_IN_A_SHELL = 'What needs a shell runs in one: command="bash", args=["-c", "…"], where policy allows that.'
_IN_FOLDER = 'Give the folder with the call that needs it: "cwd": "FOLDER".'
_AS_VARIABLE = 'Give a variable with the call that needs it: "env": {"KEY": "VALUE"}.'
_SHELL_WORDS = {
    **dict.fromkeys(("cd", "pushd", "popd"), _IN_FOLDER),
    **dict.fromkeys(("export", "unset", "set"), _AS_VARIABLE),
    **dict.fromkeys((".", "source", "eval", "exec", "alias", "unalias", "ulimit", "umask"), _IN_A_SHELL),
}
"""Built into shells, because a program could not do it; the first words of a model that thinks it is in one."""
_SYSTEM = ("/bin/", "/sbin/", "/usr/")
_MAX_SHOWN = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInput:
    command: str
    args: tuple[str, ...] = ()
    cwd: str = ""
    env: tuple[tuple[str, str], ...] = ()
    stdin: bytes = b""
    timeout_ms: int | None = None
    lifetime: Lifetime | None = None
    """None: it ends with its call."""
    requested_egress_hosts: tuple[str, ...] = ()


def check_process_input(value: Mapping[str, Json]) -> ProcessInput:
    command: str = value["command"]
    words = command.split()
    if len(words) != 1 or command != words[0]:
        split = (
            f'command="{_plain(words[0])}", args=[{", ".join(_quote(w) for w in words[1:6])}]'
            if words
            else 'command="ls"'
        )
        typed = (
            f" (at a terminal: palyra run -- {' '.join(words)})" if words and all(map(_needs_no_quotes, words)) else ""
        )
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "command must be one program name; it holds white space.",
            f"Split it: {split}{typed}. There is no shell.",
        )
    if "/" in command or "\\" in command:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "command must be a program name without a folder.",
            _hint_without_folder(command, tuple(value.get("args", ()))),
        )
    if command in _SHELL_WORDS:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"{command} is a word of a shell's, and no program.",
            f"{_SHELL_WORDS[command]} Nothing of that kind lasts from one call to the next.",
        )
    return ProcessInput(
        command=command,
        args=tuple(value.get("args", ())),
        cwd=value.get("cwd", ""),
        env=tuple(sorted(value.get("env", {}).items())),
        stdin=value.get("stdin", "").encode("utf-8"),
        timeout_ms=value.get("timeout_ms"),
        lifetime=_lifetime(value),
        requested_egress_hosts=tuple(value.get("requested_egress_hosts", ())),
    )


def _lifetime(value: Mapping[str, Json]) -> Lifetime | None:
    if value.get("background", False):
        return Lifetime(value.get("lifetime", Lifetime.RUN_OWNED))
    if "lifetime" in value:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            "lifetime is for background processes, and background is not true.",
            'Set "background": true, or leave lifetime out.',
        )
    return None


def _hint_without_folder(command: str, args: Sequence[str]) -> str:
    """A program of the workspace is the agent's own code: it runs within a shell, and never under a name of its own."""
    name = command.replace("\\", "/").rpartition("/")[2]
    installed = f'For an installed program use command="{_plain(name)}"; its folder has to be in the setting path.'
    if command.startswith(_SYSTEM):
        return installed
    line = " ".join((command, *args))
    is_plain = all(map(_needs_no_quotes, line.replace("/", "").replace("_", "").split()))
    shown = line if is_plain or not args else f"{command} …"
    return (
        f"{installed} One of the workspace is started by a shell, where policy allows that: "
        f'command="bash", args=["-c", "{_plain(shown, _MAX_SHOWN)}"]; a script is an argument of its interpreter: '
        'command="python3", args=["build.py"].'
    )


def _needs_no_quotes(word: str) -> bool:
    return word.isascii() and len(word) <= 40 and word.replace("-", "").replace(".", "").isalnum()


def _quote(word: str) -> str:
    return f'"{_plain(word)}"'


def _plain(word: str, most: int = 40) -> str:
    """A word for a hint: printable, short, without quotes of its own."""
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in word[:most]) or "NAME"
