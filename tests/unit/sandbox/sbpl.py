"""A reader of seatbelt profiles: what can be said of one without a Mac. S-expressions, known words, parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

Form: TypeAlias = "list[Form] | str"

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|;[^\n]*|[()]|[^\s()";]+')
ACTIONS = frozenset({"allow", "deny", "version"})
OPERATIONS = frozenset(
    "default process-exec process-fork process-info* signal file-read* file-read-metadata file-test-existence "
    "file-map-executable file-write* file-write-data file-write-unlink file-write-setugid file-ioctl sysctl-read "
    "mach-lookup ipc-posix-sem network-outbound network-inbound network-bind system-socket".split()
)
FILTERS = frozenset(
    "literal subpath path-ancestors target sysctl-name sysctl-name-prefix global-name remote local "
    "socket-domain".split()
)


def parse(text: str) -> list[list[Form]]:
    """Raises ValueError for what does not balance or is no list at the top."""
    stack: list[list[Form]] = [[]]
    at = 0
    for match in TOKEN.finditer(text):
        if text[at : match.start()].strip():
            raise ValueError(f"{text[at : match.start()]!r} is no token")
        at, token = match.end(), match[0]
        if token.startswith(";"):
            continue
        if token == "(":
            stack.append([])
        elif token == ")":
            if len(stack) == 1:
                raise ValueError("a bracket too many is closed")
            done = stack.pop()
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) != 1 or text[at:].strip():
        raise ValueError("a bracket is not closed")
    if not all(isinstance(form, list) for form in stack[0]):
        raise ValueError("a word stands alone at the top")
    return [form for form in stack[0] if isinstance(form, list)]


def problems(text: str) -> Iterator[str]:
    forms = parse(text)
    if forms[:2] != [["version", "1"], ["deny", "default"]]:
        yield "it does not begin by refusing everything"
    for form in forms:
        action, *rest = form
        if action not in ACTIONS:
            yield f"unknown action {action}"
        for part in rest if action != "version" else ():
            if isinstance(part, str) and part not in OPERATIONS:
                yield f"unknown operation {part}"
            if isinstance(part, list):
                yield from _filter_problems(part)


def _filter_problems(form: list[Form]) -> Iterator[str]:
    name, *arguments = form
    if name not in FILTERS:
        yield f"unknown filter {name}"
    if name in ("literal", "subpath", "path-ancestors"):
        (where,) = arguments
        if isinstance(where, list):
            if where[0] != "param" or len(where) != 2:
                yield f"{where} is no parameter"
        elif not re.fullmatch(r'"/[^"\\]*"', where):
            yield f"{where} is no absolute path"


def parameters(text: str) -> set[str]:
    return set(re.findall(r'\(param "(\w+)"\)', text))
