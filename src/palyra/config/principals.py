"""`[principals]`: who is known to policy, and as what."""

from __future__ import annotations

from fnmatch import fnmatchcase

from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PrincipalsConfig:
    """`[principals]`: who is known, and in which roles. Names, or patterns such as `agent:ci-*`."""

    known: tuple[str, ...] = ("agent:*", "user:*")
    """A principal that does not match is refused with POLICY_ERROR. Default: every agent and user."""
    operators: tuple[str, ...] = ()
    """Principals that are also in Role::"operator", for policies that use it. It gives no rights by itself."""

    def roles_of(self, principal: str) -> tuple[str, ...]:
        """Empty for a principal nobody knows. Agents are `agent`, people are `developer`."""
        if not any(fnmatchcase(principal, pattern) for pattern in self.known):
            return ()
        own = ("agent",) if principal.startswith("agent:") else ("developer",)
        return (*own, "operator") if any(fnmatchcase(principal, pattern) for pattern in self.operators) else own
