"""Approvals for embedders: list, look, decide, revoke, as the home's operator. Both faces of `Palyra` have it.

Rules: a decision names a person (`by`, by default the owner of this process), who is neither an agent nor the one that
asked. Code that an agent can reach must not be given this object: who can open a home is its operator.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypedDict, Unpack

from palyra.api_ready import ReadyList
from palyra.approvals.rules import Verdict
from palyra.approvals.store.desk import ApprovalStore
from palyra.approvals.store.rows import LAST
from palyra.canon import Json
from palyra.model.approval import ApprovalState, Scope
from palyra.model.call import parse_principal
from palyra.state.person import owner_principal
from palyra.values import dataclass

Item = dict[str, Json]
Items = list[Item]


class Terms(TypedDict, total=False):
    """Of a yes; without any: this call, once."""

    by: str | None
    scope: str
    until_unix_ms: int | None
    pattern: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class AsyncApprovals:
    """All of it with `await`; what comes at once need not be awaited."""

    _store: ApprovalStore

    def list(self, state: str = "pending", *, before: str | None = None, count: int = 50) -> ReadyList[Item]:
        """The newest first; `state` is pending, approved, denied, expired or revoked."""
        found = self._store.list(states=(ApprovalState(state),), before=before or LAST, count=count)
        return ReadyList(approval.summary() for approval in found)

    def grants(self) -> ReadyList[Item]:
        """Those that still let something through."""
        return ReadyList(approval.summary() for approval in self._store.grants())

    async def show(self, approval_id: str, *, by: str | None = None) -> Item:
        """All of it, `call` being what the person sees; that somebody looked is journaled."""
        approval = await self._store.view(approval_id, by=_person(by))
        figures = {name: fatigue.as_json() for name, fatigue in self._store.fatigue(approval).items()}
        return {**approval.summary(), "call": dict(self._store.shown(approval)), "fatigue": figures}

    async def approve(
        self,
        approval_id: str,
        *,
        by: str | None = None,
        scope: str = "once",
        until_unix_ms: int | None = None,
        pattern: tuple[str, ...] = (),
        reason: str = "",
    ) -> Item:
        """`scope` is once, run, or until (then with a time); `pattern` opens the arguments, word by word."""
        verdict = Verdict(
            approved=True,
            by=_person(by),
            logins=(owner_principal(),),
            scope=Scope(scope),
            until_unix_ms=until_unix_ms,
            pattern=pattern,
            note=reason,
        )
        return (await self._store.decide(approval_id, verdict)).summary()

    async def deny(self, approval_id: str, *, by: str | None = None, reason: str = "") -> Item:
        """The same call stays refused until the request would have expired, or `revoke` takes the no back."""
        verdict = Verdict(approved=False, by=_person(by), logins=(owner_principal(),), note=reason)
        return (await self._store.decide(approval_id, verdict)).summary()

    async def revoke(self, approval_id: str, *, by: str | None = None) -> Item:
        """Take a decision back: a yes lets nothing through any more, after a no the same call asks again."""
        return (await self._store.revoke(approval_id, by=_person(by), logins=(owner_principal(),))).summary()


@dataclass(frozen=True, slots=True)
class Approvals:
    """The same, for code without an event loop."""

    _inner: AsyncApprovals
    _wait_for: Callable[[Coroutine[Any, Any, Any]], Any]

    def list(self, state: str = "pending", *, before: str | None = None, count: int = 50) -> Items:
        """The newest first; `state` is pending, approved, denied, expired or revoked."""
        return [*self._inner.list(state, before=before, count=count)]

    def grants(self) -> Items:
        """Those that still let something through."""
        return [*self._inner.grants()]

    def show(self, approval_id: str, *, by: str | None = None) -> Item:
        """All of it, `call` being what the person sees; that somebody looked is journaled."""
        return self._answer(self._inner.show(approval_id, by=by))

    def approve(self, approval_id: str, **terms: Unpack[Terms]) -> Item:
        """`scope` is once, run, or until (then with a time); `pattern` opens the arguments, word by word."""
        return self._answer(self._inner.approve(approval_id, **terms))

    def deny(self, approval_id: str, *, by: str | None = None, reason: str = "") -> Item:
        """The same call stays refused until the request would have expired, or `revoke` takes the no back."""
        return self._answer(self._inner.deny(approval_id, by=by, reason=reason))

    def revoke(self, approval_id: str, *, by: str | None = None) -> Item:
        """Take a decision back: a yes lets nothing through any more, after a no the same call asks again."""
        return self._answer(self._inner.revoke(approval_id, by=by))

    def _answer(self, work: Coroutine[Any, Any, Item]) -> Item:
        answer: Item = self._wait_for(work)
        return answer


def _person(by: str | None) -> str:
    return owner_principal() if by is None else str(parse_principal(by))
