"""Words about secrets: who may use one, which host it belongs to, and what is handed out for a connection.

A value is never part of a `repr`, of JSON or of a plan; it goes from the vault to the socket, and to redaction.
"""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase

from palyra.canon import Json
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Shell patterns; an empty list means everyone, or every tool that may use secrets at all."""

    principals: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    def covers(self, principal: str, tool: str) -> bool:
        return _fits(principal, self.principals) and _fits(tool, self.tools)

    def as_json(self) -> dict[str, Json]:
        return {"principals": list(self.principals), "tools": list(self.tools)}


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """A secret as a header of requests to one host, and to no other."""

    host: str
    """`host`: on port 443, encrypted; `host:port`: on that port, encrypted or not. Exactly, no pattern."""
    header: str
    prefix: str = ""
    """Text before the value: `Bearer `."""

    def as_json(self) -> dict[str, Json]:
        return {"host": self.host, "header": self.header, "prefix": self.prefix}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretFacts:
    """What may be told of a secret: everything but its value."""

    name: str
    version: int
    created_unix_ms: int
    scope: Scope = Scope()
    binding: Binding | None = None

    def as_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "version": self.version,
            "created_unix_ms": self.created_unix_ms,
            "scope": self.scope.as_json(),
            "credential": self.binding.as_json() if self.binding else None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """A header for requests to one host, made outside the sandbox."""

    secret: str
    host: str
    """As in `Binding`."""
    header: str
    value: bytes = field(repr=False)
