"""What a conversation may do, and the few words it needs to refuse: fixed when its connection is accepted.

Rules: a connection was made to one host; what its client then names (Host, SNI) must be that host and port. Only where
the connection goes to an address that was granted as such may a name stand for it, and only one that is granted too.

Not here: the conversation itself (egress/conversation).
"""

from __future__ import annotations

from palyra.egress.credentials import Credential
from palyra.egress.grammar import Target
from palyra.egress.names import NameTable
from palyra.egress.rules import judge_host
from palyra.model.net import EgressMode, HostPattern, NetGrant
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    grant: NetGrant
    names: NameTable
    credentials: tuple[Credential, ...] = ()
    intercepted: tuple[HostPattern, ...] = ()
    """Hosts whose TLS is ended outside the sandbox, so that credentials can be added."""

    def may_name(self, target: Target, named: Target) -> bool:
        if named == target:
            return True
        return (
            target.is_literal and named.port == target.port and judge_host(self.grant, named.host, named.port).allowed
        )

    def is_raw(self, target: Target) -> bool:
        """All bytes pass: the operator granted this very host and port so."""
        if not any(pattern.raw for pattern in self.grant.hosts):
            return False
        verdict = judge_host(self.grant, target.host, target.port)
        return verdict.allowed and verdict.is_raw

    def credentials_for(self, target: Target) -> tuple[Credential, ...]:
        return self.credentials if not self.credentials or not self.is_raw(target) else ()

    def intercepts(self, target: Target) -> bool:
        marked = NetGrant(EgressMode.STRICT, self.intercepted)
        return bool(self.intercepted) and judge_host(marked, target.host, target.port).allowed


class Refused(Exception):
    """A host that may not be reached, or not so: one record, one answer, the end."""

    def __init__(self, target: Target | None, why: str, *, told: str = "", grants: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.target = target
        self.why = why
        """For the record."""
        self.told = told or why
        """For the program, which need not learn what only the host's resolver knows."""
        self.grants = grants
        """Patterns that would allow it."""


class Broken(Exception):
    """Something granted did not work out: the host failed, or its answer makes no sense."""

    def __init__(self, why: str, *, status: int = 502) -> None:
        super().__init__(why)
        self.why = why
        self.status = status
