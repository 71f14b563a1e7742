"""What may be said of a call that nothing will confine: an agent's host runs it itself, and only asked (hooks). Pure.

A policy that allows a program allows it in a sandbox: there `.git`, `.env` and CI files are closed, git obeys no file
of the workspace, the environment is empty and `tar -P` writes nowhere. A plain yes to the same program on the host
would be a yes to all that: a written `.git/config` runs at the next `git status`. So a plain yes is only said to
programs that read and to the file tools, and never where a path is named that a sandbox would have closed.

Not here: the answer in the host's words (protocol/agent_answers), putting it together (wiring/hooks).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from palyra.canon import Json
from palyra.guard.obeyed import is_obeyed, plain_name
from palyra.guard.paths import inside
from palyra.guard.protected import ENV_EXAMPLES, PROTECTED_NAMES
from palyra.guard.readers import READERS
from palyra.late import late
from palyra.model.job import Facts
from palyra.model.sights import Sights
from palyra.model.visible import visible

_CLOSED = frozenset(name.casefold() for name in PROTECTED_NAMES)
_PLAIN = READERS - {"jq", "zcat"}
"""jq prints the environment, which is the user's own there; zcat is a script."""
_RECURSIVE = frozenset({"grep", "egrep", "fgrep", "diff"})


def is_plain(facts: Facts) -> bool:
    """Whether the program does no harm with a user's own rights, whatever its arguments."""
    runs_code = facts.runs_code or facts.interpreter or facts.inline_code or facts.agent_writable
    return not runs_code and not facts.background and {facts.program, facts.effective_program} <= _PLAIN


def reads_lists(program: str, args: Sequence[str]) -> bool:
    """It takes the names of the files it reads from a file, where nobody looked at them: `wc --files0-from=list` tells
    how long a key outside is, `sha256sum -c list` whether it is a certain one."""
    words = [word.partition("=")[0] for word in args]
    if program in ("du", "wc"):
        return any(len(word) > 2 and "--files0-from".startswith(word) for word in words)
    sums = program.endswith("sum") and any(word[:1] == "-" and word[1:2] != "-" and "c" in word for word in words)
    return sums or (program.endswith("sum") and any(len(word) > 2 and "--check".startswith(word) for word in words))


_FOLLOW = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), ("RS", "--dereference-recursive")),
    **dict.fromkeys(("ls", "du"), ("L", "--dereference")),
}
"""By which letters (the second is a Mac's) and which word they go wherever a link in a folder leads."""


def follows_links(program: str, args: Sequence[str]) -> bool:
    """It goes through a folder and out of it by the links there, of which nobody looked at one: a repository brings
    `docs/notes -> ~/.ssh/id_ed25519`, and `grep -R . docs` prints that. In a sandbox such a link leads nowhere."""
    if program == "diff":  # by itself, in any two folders; an option against that may be another one's value
        return True
    letters, name = _FOLLOW.get(program, ("", ""))
    words = [word for word in args if word.startswith("-")]
    short = any(word[1:2] != "-" and not set(letters).isdisjoint(word) for word in words)
    return short or any(len(word) > 2 and name.startswith(word) for word in words)


_SHOWN_INPUTS = ("command", "args", "pattern", "path", "url", "cwd")
_READ_ESCAPES = frozenset({"echo", "printf", "paste", "stat", "tr"})
_ESCAPED = late(r"\\[^nt\\]|:cntrl:")


def shows_hidden(given: Mapping[str, Json]) -> bool:
    """Its words hold what a terminal obeys or does not draw: `echo` prints `ESC ] 52 ;` into the clipboard, and the
    person who is asked reads another command than the one that runs."""
    words = (given.get(name) for name in _SHOWN_INPUTS)
    flat = (word for value in words for word in (value if isinstance(value, (list, tuple)) else (value,)))
    return any(isinstance(word, str) and visible(word) != word for word in flat)


def prints_controls(program: str, args: Sequence[str]) -> bool:
    """It makes control characters of plain ones: `printf '\\033]0;x'`, `echo -e '\\e[2J'`, `base64 -d`."""
    if program == "base64":
        return any(word[:1] == "-" and ("d" in word.lower() or word[:4] == "--de") for word in args)
    return program in _READ_ESCAPES and any(_ESCAPED.search(word) for word in args)


def may_read_hidden(facts: Facts, sights: Sights) -> bool:
    """It may go through all files of a folder, and some of them a sandbox would have hidden."""
    return bool(sights.workspace.masked) and not _RECURSIVE.isdisjoint((facts.program, facts.effective_program))


def closed_name(sights: Sights, *, reads: bool) -> str:
    """The first path of a call, relative to its workspace, that a sandbox would have closed to it; empty without."""
    workspace = sights.workspace.path
    for path in sights.paths:
        for place in (path.resolved, posixpath.normpath(posixpath.join(sights.cwd.resolved, path.text))):
            if inside(workspace, place) and any(_closed(posixpath.relpath(place, workspace), reads=reads)):
                return posixpath.relpath(place, workspace)
    return ""


def _closed(relative: str, *, reads: bool) -> Iterator[bool]:
    """As inside/changes refuses them; who only reads is kept from what is hidden alone."""
    names = [plain_name(part) for part in relative.split("/")]
    yield names[0].startswith(".env") and not (reads and names[0] in ENV_EXAMPLES)
    yield not reads and (".git" in names or names[0] in _CLOSED or is_obeyed(relative))
