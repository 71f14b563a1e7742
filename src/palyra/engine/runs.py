"""A run: who works where, within which limits. Calls of one run share its budget and its workspace.

Rules: a run narrows the configuration for its session and never widens it; the one exception is the operator's own
command line, which states its limits itself (`Run` is made by the door, never by an agent's bytes).

Not here: the budget's numbers (journal port), the order of calls (engine/turns).
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum

from palyra.config.schema import Config
from palyra.egress.hosts import parse_pattern
from palyra.errors import Reason, Rejected
from palyra.model.budget import NO_QUOTA, UNLIMITED, Allowance, Quota
from palyra.model.call import Door, OperatorGrant, RequestContext, TierChoice
from palyra.model.limits import Limits
from palyra.model.narrowing import AS_CONFIGURED, Narrowing
from palyra.model.net import EgressMode
from palyra.model.process import ProcessOwner
from palyra.model.record import RunSpec
from palyra.values import dataclass


class RunScope(Enum):
    """What ends a run, and with it the background processes it owns."""

    CALL = "call"
    """Its one call."""
    SESSION = "session"
    """Whoever holds it says so, or that process ends."""
    OPEN = "open"
    """Somebody's word: calls of several processes share it by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    run_id: str
    context: RequestContext
    workspace: str
    limits: Limits
    calls_max: int
    attempts_max: int
    created_unix_ms: int
    most: Allowance = UNLIMITED
    quota: Quota = NO_QUOTA
    tier: TierChoice = TierChoice.AUTO
    egress: EgressMode = EgressMode.STRICT
    grant: OperatorGrant = field(default_factory=OperatorGrant)
    scope: RunScope = RunScope.SESSION
    narrowing: Narrowing = AS_CONFIGURED
    terms_sha256: str | None = None
    """Of what it was made with, where it was made by name."""
    owner: ProcessOwner = field(init=False, repr=False, compare=False)
    """Of the background processes it starts."""
    record: RunSpec = field(init=False, repr=False, compare=False)
    """As it is stored. Both are asked for several times a call."""
    terms: tuple[object, ...] = field(init=False, repr=False, compare=False)
    """All of it that says what a call may do; which run it is, since when and how much it has left says nothing."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "owner", ProcessOwner(self.run_id, str(self.context.principal)))
        record = RunSpec(
            run_id=self.run_id,
            principal=self.owner.principal,
            workspace=self.workspace,
            calls_max=self.calls_max,
            attempts_max=self.attempts_max,
            created_unix_ms=self.created_unix_ms,
            most=self.most,
            quota=self.quota,
            terms_sha256=self.terms_sha256,
        )
        object.__setattr__(self, "record", record)
        terms = (
            *(self.context, self.workspace, self.limits, self.tier, self.egress),
            *(self.grant, self.scope, self.narrowing),
        )
        object.__setattr__(self, "terms", terms)


MAX_TEXT_CHARS = 4096
CALLS_PER_RUN, ATTEMPTS_PER_RUN = 200, 1000
OPEN_ENDED, SESSION_ATTEMPTS = 10**9, 10_000
"""Of a run that is held to a pace instead (engine/pace). Malformed calls have no rows to count in a minute or a day."""


def check_text(name: str, text: object) -> None:
    """What enters records must be text: bytes of another encoding reach Python as lone surrogates."""
    if not isinstance(text, str):
        raise Rejected(Reason.BAD_ARGUMENTS, f"The {name} must be a string.", f"Give a {name} as a string.")
    if len(text) > MAX_TEXT_CHARS:
        most = f"Give a {name} of at most {MAX_TEXT_CHARS} characters."
        raise Rejected(Reason.BAD_ARGUMENTS, f"The {name} is too long: {len(text)} characters.", most)
    if "\0" in text or not _is_unicode(text):
        raise Rejected(Reason.BAD_ARGUMENTS, f"The {name} is not valid text.", f"Give a {name} in UTF-8 without NUL.")


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _fewer(configured: int, asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise Rejected(Reason.BAD_ARGUMENTS, "A run allows at least one call.", "Give calls_max a number above 0.")
    return configured if asked is None else min(configured, asked)


_STRICTNESS = (EgressMode.NONE, EgressMode.PREFLIGHT, EgressMode.STRICT)


def start_run(
    config: Config,
    *,
    run_id: str,
    context: RequestContext,
    workspace: str,
    now_unix_ms: int,
    limits: Limits | None = None,
    tier: TierChoice | None = None,
    egress: EgressMode | None = None,
    grant: OperatorGrant | None = None,
    scope: RunScope = RunScope.SESSION,
    calls_max: int | None = None,
    most: Allowance = UNLIMITED,
    narrowing: Narrowing = AS_CONFIGURED,
    terms_sha256: str | None = None,
) -> Run:
    """A run within the configuration: limits, budgets, tier and egress asked for can only make it stricter.

    Tier B and a looser egress mode are the operator's to give: they come in `grant`.
    """
    runner = config.tool_call.process_runner
    grant = grant or OperatorGrant()
    for name, text in (("workspace", workspace), ("device", context.device), ("channel", context.channel)):
        if text != "":
            check_text(name, text)
    configured = runner.egress_mode
    # Hosts that are named bind only where every other host is out of reach.
    asked = egress if narrowing.allowed_egress_hosts is None else EgressMode.STRICT
    stricter = max(configured, asked or configured, key=_STRICTNESS.index)
    for host in narrowing.allowed_egress_hosts or ():
        parse_pattern(host)
    is_open_ended = context.door is Door.MCP and config.tool_call.has_open_sessions
    calls = config.tool_call.max_calls_per_run or (OPEN_ENDED if is_open_ended else CALLS_PER_RUN)
    attempts = config.tool_call.max_attempts_per_run or (SESSION_ATTEMPTS if is_open_ended else ATTEMPTS_PER_RUN)
    return Run(
        run_id=run_id,
        context=context,
        workspace=workspace or runner.workspace_root,
        limits=config.limits.narrow(limits) if limits else config.limits,
        calls_max=_fewer(calls, calls_max),
        attempts_max=attempts,
        created_unix_ms=now_unix_ms,
        most=config.allowance.narrow(most),
        quota=config.quota,
        tier=grant.tier or (TierChoice.C if tier is TierChoice.C else runner.tier_choice),
        egress=grant.egress or stricter,
        grant=grant,
        scope=scope,
        narrowing=narrowing,
        terms_sha256=terms_sha256,
    )
