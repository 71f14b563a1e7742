"""A hook's question, answered: the same assessment as a call's, worst of all first, and an entry in the journal.

Rules: the agent's host runs its tool itself, outside every sandbox of ours, so this is a decision and no wall: see
docs/guide/hooks.md. A plain yes, which goes before the host's own questions, is said only to what needs no sandbox
(guard/unconfined); to the rest that policy allows, nothing. Nothing is run here, no budget is spent and no approval
used; `ask` is put to the host's own user. Every answer is an act in the journal (program names, never arguments); when
it cannot be written the answer is no.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from palyra.canon import Json
from palyra.engine.ports import Look
from palyra.engine.runs import RunScope, start_run
from palyra.engine.trip import CallRequest, Trip
from palyra.errors import PalyraError, Reason, Rejected, StateError
from palyra.guard.paths import candidates, judge_paths
from palyra.guard.unconfined import (
    closed_name,
    follows_links,
    is_plain,
    may_read_hidden,
    prints_controls,
    reads_lists,
    shows_hidden,
)
from palyra.journal.acts import Act, ActKind
from palyra.model.call import Door, RequestContext, parse_principal
from palyra.model.grant import Ask
from palyra.model.tool import Capability, ToolKind
from palyra.protocol.agent_answers import Answer, Permission, answer, refusal
from palyra.protocol.agent_events import Agent, Call, Event, parse_event
from palyra.wiring.embedded import Installation
from palyra.wiring.places import resolve_workspace

_RANK = (Permission.ALLOW, Permission.NONE, Permission.ASK, Permission.DENY)
MAX_CALLS = 64
"""Programs in one line."""
SEARCH = "palyra.fs.search"
_NAME = "Palyra: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    permission: Permission
    sentence: str = ""
    hint: str | None = None
    reason: Reason | None = None
    policies: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        code = f"{self.reason}: " if self.reason else ""
        return f"{_NAME}{code}{self.sentence}" + (f" {self.hint}" if self.hint else "")


ALLOWED = Verdict(permission=Permission.ALLOW, sentence="Policy allows it.")
NO_OBJECTION = Verdict(
    permission=Permission.NONE, sentence="Policy allows it in a sandbox; nothing confines it here, so the host decides."
)
OWN = Verdict(permission=Permission.NONE, sentence="Palyra decides when it is called.")


async def answer_hook(installation: Installation, agent: Agent, data: bytes, *, project: str = "") -> Answer:
    """What the hook prints and its exit code. Never raises: what goes wrong is a no."""
    event: Event | None = None
    try:
        event = parse_event(agent, data, project=project, mcp_server=installation.config.hooks.mcp_server)
        verdict = await judge(installation, event)
    except Rejected as wrong:
        verdict = _no(wrong)
    except PalyraError as error:
        verdict = Verdict(permission=Permission.DENY, sentence=str(error), reason=Reason.POLICY_ERROR)
    try:
        await _record(installation, agent, event, verdict)
    except StateError as error:
        return refusal(f"JOURNAL_DOWN: {error.detail} {error.hint or ''}")
    if event is None:
        return refusal(verdict.text.removeprefix(_NAME))
    return answer(agent, event.name, verdict.permission, verdict.text)


async def judge(installation: Installation, event: Event) -> Verdict:
    if event.own:
        return OWN
    if not event.known:
        sentence = f"There is no policy for the tool {event.tool}, so a person decides."
        return Verdict(permission=Permission.ASK, sentence=sentence)
    if len(event.calls) > MAX_CALLS:
        raise Rejected(
            Reason.TOO_LARGE, f"The command line runs more than {MAX_CALLS} programs.", "Run them one by one."
        )
    workspace = resolve_workspace(event.workspace)
    verdicts = [await _judge_call(installation, event, workspace, call) for call in event.calls]
    return max(verdicts, key=lambda verdict: _RANK.index(verdict.permission), default=ALLOWED)


async def _judge_call(installation: Installation, event: Event, workspace: str, call: Call) -> Verdict:
    ports = installation.ports
    principal = parse_principal(f"agent:{event.agent}")
    run = start_run(
        ports.config,
        run_id=ports.ids.ulid(),
        context=RequestContext(principal=principal, door=Door.HOOK, channel=event.agent.value),
        workspace=workspace,
        now_unix_ms=ports.clock.now_unix_ms(),
        scope=RunScope.CALL,
    )
    trip, refused = await installation.engine.assess(CallRequest(tool=call[0], input=call[1], run=run))
    policies = trip.decision.policies if trip.decision is not None else ()
    if refused is not None:
        verdict = _no(refused)
        return Verdict(
            permission=Permission.DENY,
            sentence=verdict.sentence,
            hint=verdict.hint,
            reason=verdict.reason,
            policies=policies,
        )
    if isinstance(trip.decision, Ask):
        sentence = f"Policy asks for a person ({', '.join(policies)})."
        return Verdict(permission=Permission.ASK, sentence=sentence, policies=policies)
    return _unconfined(trip, ports.look)


def _unconfined(trip: Trip, look: Look) -> Verdict:
    """What policy allows, it allows in a sandbox. Here there is none: a plain yes is for what needs none."""
    assert trip.tool is not None
    assert trip.facts is not None
    is_process, sights = trip.tool.spec.kind is ToolKind.PROCESS, trip.sights
    writes = not _only_reads(trip) if is_process else Capability.FILESYSTEM_WRITE in trip.tool.spec.capabilities
    assert trip.call is not None
    if shows_hidden(trip.call.input):
        return Verdict(permission=Permission.ASK, sentence="It holds letters that a terminal obeys or does not show.")
    closed = closed_name(sights, reads=not writes) if sights is not None else ""
    if closed:
        sentence = f"{closed[:200]} is closed to agents: other programs run or trust what is in it."
        return Verdict(permission=Permission.ASK, sentence=sentence)
    searches = trip.tool.spec.name == SEARCH and sights is not None and bool(sights.workspace.masked)
    hidden = sights is not None and may_read_hidden(trip.facts, sights)
    hidden = hidden or (is_process and not writes and _may_read_elsewhere(trip, look))
    return NO_OBJECTION if (is_process and writes) or searches or hidden else ALLOWED


def _may_read_elsewhere(trip: Trip, look: Look) -> bool:
    """With every word taken for a path, patterns too: which one is the pattern depends on which grep it is, and only a
    sandbox would hold the one that was mistaken. `grep --binary '' ~/.ssh/id_ed25519`, on a Mac `grep -C x FILE`."""
    assert trip.look is not None
    assert trip.call is not None
    sights = look.look(replace(trip.look, candidates=candidates(trip.call.input.get("args", ()))))
    return bool(judge_paths(sights, ())) or bool(closed_name(sights, reads=True))


def _only_reads(trip: Trip) -> bool:
    assert trip.facts is not None
    assert trip.call is not None
    program, args = trip.facts.program, trip.call.input.get("args", ())
    if reads_lists(program, args) or follows_links(program, args) or prints_controls(program, args):
        return False
    return is_plain(trip.facts)


def _no(wrong: Rejected) -> Verdict:
    return Verdict(permission=Permission.DENY, sentence=wrong.detail, hint=wrong.hint, reason=wrong.reason)


async def _record(installation: Installation, agent: Agent, event: Event | None, verdict: Verdict) -> None:
    details: dict[str, Json] = {
        "agent": agent.value,
        "permission": verdict.permission.value,
        "reason": verdict.reason.value if verdict.reason else None,
        "policies": list(verdict.policies),
    }
    if event is not None:
        programs = [str(given.get("command", tool)) for tool, given in event.calls]
        details |= {
            "event": event.name[:60],
            "tool": _name(event.tool),
            "programs": [_name(program) for program in programs],
            "session_sha256": hashlib.sha256(event.session.encode("utf-8", "replace")).hexdigest(),
        }
    act = Act(kind=ActKind.HOOK_ANSWERED, actor=f"agent:{agent}", subject=f"hook/{agent}", details=details)
    await installation.journal.record_act(act, at_unix_ms=installation.ports.clock.now_unix_ms())


def _name(text: str) -> str:
    """A program's or a tool's name; what is none may be anything, a secret too."""
    plain = text.replace(".", "").replace("-", "").replace("_", "").replace("+", "")
    return text if len(text) <= 64 and plain.isascii() and plain.isalnum() else "?"
