"""Fakes for what goes out over the network and what must not: secrets and their credentials. No disk, no socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palyra.model.credential import Credential


@dataclass
class FakeSecrets:
    values: tuple[tuple[str, bytes], ...] = ()
    bound: dict[str, tuple[Credential, ...]] = field(default_factory=dict)
    """host → its headers."""
    asked: list[tuple[str, int, str, str]] = field(default_factory=list)

    def known_values(self, run_id: str) -> Sequence[tuple[str, bytes]]:
        return self.values

    def credentials(self, host: str, port: int, *, principal: str, tool: str) -> Sequence[Credential]:
        self.asked.append((host, port, principal, tool))
        return self.bound.get(host, ())
