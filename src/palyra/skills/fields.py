"""Strict reading of a manifest's tables: every key is known, every value canonical, every refusal names its place.

Canonical: text in NFC without control characters or spaces at its ends (so "acme " is no publisher), lists sorted with
each item once, numbers whole and within JSON's exact range. Nothing is trimmed, folded or filled in for the author.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from palyra.canon import MAX_INT
from palyra.model.visible import visible
from palyra.skills.findings import Finding, SkillRefused

T = TypeVar("T")
_MISSING = object()


class Table:
    """A table of the manifest under reading; `done` refuses the keys that nobody asked for."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, Mapping):
            raise bad(path, "is not a table")
        self._value: Mapping[str, Any] = value
        self._asked: set[str] = set()
        self.path = path

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def raw(self, name: str, default: object = _MISSING) -> Any:
        self._asked.add(name)
        found = self._value.get(name, default)
        if found is _MISSING:
            raise bad(self.at(name), "is missing")
        return found

    def has(self, name: str) -> bool:
        return name in self._value

    def names(self) -> tuple[str, ...]:
        return tuple(self._value)

    def table(self, name: str) -> Table:
        return Table(self.raw(name, {}), self.at(name))

    def tables(self, name: str, *, most: int) -> list[Table]:
        found = self.raw(name, [])
        if not isinstance(found, list) or len(found) > most:
            raise bad(self.at(name), f"is not a list of at most {most} tables")
        return [Table(item, f"{self.at(name)}[{n}]") for n, item in enumerate(found)]

    def line(self, name: str, *, most: int, default: str | None = None) -> str:
        found = self.raw(name, _MISSING if default is None else default)
        if found == default and default is not None:
            return default
        return check_line(found, self.at(name), most=most)

    def matching(self, name: str, pattern: re.Pattern[str], what: str, *, default: str | None = None) -> str:
        found = self.raw(name, _MISSING if default is None else default)
        if default is not None and found == default:
            return default
        return check_match(found, self.at(name), pattern, what)

    def flag(self, name: str, *, default: bool) -> bool:
        found = self.raw(name, default)
        if not isinstance(found, bool):
            raise bad(self.at(name), "is not true or false")
        return found

    def number(self, name: str, *, default: int | None = None, least: int = 1) -> int:
        found = self.raw(name, _MISSING if default is None else default)
        if type(found) is not int or not least <= found <= MAX_INT:
            raise bad(self.at(name), f"is not a whole number from {least}")
        return found

    def items(self, name: str, check: Callable[[object, str], str], *, most: int) -> tuple[str, ...]:
        """A sorted list with each item once: what a digest or a handle's number hangs on has one order."""
        found = self.raw(name, [])
        if not isinstance(found, list) or len(found) > most:
            raise bad(self.at(name), f"is not a list of at most {most} texts")
        items = [check(item, f"{self.at(name)}[{n}]") for n, item in enumerate(found)]
        if items != sorted(set(items)):
            raise bad(self.at(name), "is not sorted, or lists something twice")
        return tuple(items)

    def done(self) -> None:
        unknown = sorted(set(self._value) - self._asked)
        if unknown:
            name = self.at(str(unknown[0]))
            raise SkillRefused(
                Finding.MANIFEST_KEY,
                f"skill.toml has the unknown key {name[:120]!r}.",
                "docs/spec/skill.md lists every key there is.",
            )


def check_line(value: object, path: str, *, most: int) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise bad(path, f"is not a text of 1 to {most} characters")
    hides = not value.isprintable() or visible(value) != value
    if value != value.strip() or hides or unicodedata.normalize("NFC", value) != value:
        raise bad(path, "has spaces at its ends, hidden characters, or is not in normal form (NFC)")
    return value


def check_match(value: object, path: str, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise bad(path, f"is not {what}")
    return value


def bad(path: str, why: str, finding: Finding = Finding.MANIFEST_VALUE) -> SkillRefused:
    return SkillRefused(finding, f"skill.toml: {path} {why}.", "docs/spec/skill.md says what it may be.")
