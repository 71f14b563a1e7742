"""What a run gives up of what is configured, for its session: fewer tools, capabilities, programs, hosts.

Names are those of the configuration. None is as configured; an empty list is nothing at all. It only ever takes away:
who names more than is configured gets what is configured. Not here: numbers (model/limits, model/budget).
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json
from palyra.errors import Reason, Rejected
from palyra.values import dataclass

NAMES = ("allowed_tools", "allowed_capabilities", "allowed_executables", "allowed_egress_hosts")
Words = tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    allowed_tools: Words = None
    allowed_capabilities: Words = None
    allowed_executables: Words = None
    allowed_egress_hosts: Words = None

    def as_json(self) -> dict[str, Json]:
        """Only what it narrows."""
        return {name: list(words) for name in NAMES if (words := getattr(self, name)) is not None}


AS_CONFIGURED = Narrowing()


def parse_narrowing(given: Mapping[str, object]) -> Narrowing:
    """From lists, as Python code and JSON have them. Raises BAD_ARGUMENTS."""
    if unknown := sorted(given.keys() - set(NAMES)):
        raise Rejected(Reason.BAD_ARGUMENTS, f"A run has no setting {unknown[0]}.", f"It knows {', '.join(NAMES)}.")
    return Narrowing(**{name: _words(name, given[name]) for name in NAMES if given.get(name) is not None})


def _words(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(word, str) for word in value):
        raise Rejected(Reason.BAD_ARGUMENTS, f"{name} must be a list of strings.", f"Give {name} as a list.")
    return tuple(value)
