"""Makes and takes back an operator's exceptions, for the command line, the daemon's API and the console.

- Each exception is a file of its own in the home's policies folder, `allow.ULID.cedar`, whichever version is in use.
- The journal's entry is durable before the file appears, so that no exception is in force that no entry tells of.
- Nothing is written that does not load beside the policies of now, and that was not seen to allow its call.

Not here: what an exception says (policy/exceptions), the difference it makes (policy_acts).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from palyra.canon import Json, sha256_hex
from palyra.engine.replay import RecordedDecision, read_decision
from palyra.journal.acts import Act, ActKind, record_act
from palyra.model.outcome import Status
from palyra.policy.exceptions import Scope, is_exception_id, write_exception
from palyra.policy.scan import PolicyError
from palyra.policy.store import load_posture
from palyra.state.keyfile import sync_folder
from palyra.state.whole import write_whole
from palyra.wiring.policy_acts import replay_json

if TYPE_CHECKING:
    from palyra.model.record import StoredCall
    from palyra.wiring.embedded import Installation


async def allow_call(
    installation: Installation, call_id: str, scope: Scope, *, by: str, dry_run: bool = False
) -> dict[str, Json]:
    """Make an exception for a refused call; with `dry_run` only say what it would be and change.

    Raise PolicyError where no exception can allow the call.
    """
    stored, recorded = await _refused_call(installation, call_id)
    if scope == "run":
        _check_run(installation, stored.run_id)
    name = f"allow.{installation.ports.ids.ulid()}"
    head = f"// From call {call_id}, --for {scope}. To take it back: palyra policy disallow {name}\n"
    bundle = installation.policies.look_again()
    then = frozenset(recorded.policies)
    try:
        made = write_exception(bundle, recorded.request, scope, name=name, head=head, then=then)
    except PolicyError as error:
        hint = error.hint and error.hint.replace("CALL_ID", call_id)
        raise PolicyError(error.detail, hint) from None
    file = f"{name}.cedar"
    local = {**installation.policies.in_force(), file: made.text}
    tried = await asyncio.to_thread(load_posture, installation.config.posture, local)
    replayed = await asyncio.to_thread(replay_json, installation, tried)
    if not dry_run:
        details = {"call_id": call_id, "scope": scope, "lifts": list(made.lifts)}
        await _record(installation, ActKind.POLICY_ALLOWED, name, made.text, details, by=by)
        folder = installation.home.policies
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / file, made.text.encode())
        sync_folder(folder)
        installation.policies.look_again()
    return {
        "id": name,
        "call_id": call_id,
        "scope": scope,
        "lifts": list(made.lifts),
        "note": made.note or None,
        "file": str(installation.home.policies / file),
        "text": made.text,
        "dry_run": dry_run,
        "replay": replayed,
    }


async def disallow(installation: Installation, name: str, *, by: str) -> dict[str, Json]:
    """Take an exception back, by its id. Raise PolicyError when there is no such exception."""
    name = name if name.startswith("allow.") else f"allow.{name}"
    path = installation.home.policies / f"{name}.cedar"
    if not is_exception_id(name) or not path.is_file():
        raise PolicyError("There is no such exception.", "palyra policy show lists them: allow.…")
    try:
        text = path.read_text(errors="replace")
    except OSError:
        text = ""  # what cannot be read can be taken back all the same
    path.unlink()
    sync_folder(path.parent)
    await _record(installation, ActKind.POLICY_DISALLOWED, name, text, {}, by=by)
    return {"id": name, "file": str(path)}


async def _refused_call(installation: Installation, call_id: str) -> tuple[StoredCall, RecordedDecision]:
    stored = await installation.ports.journal.find_call(call_id)
    if stored is None:
        raise PolicyError(f"The journal has no decided call {call_id[:40]!r}.", "palyra journal tail lists calls.")
    try:
        recorded = read_decision(stored.details)
    except ValueError as error:
        raise PolicyError(f"{error}.", "Run: palyra journal verify") from None
    if stored.status != Status.REFUSED:
        raise PolicyError(f"This call was not refused: it is {stored.status}.", "Name a call that was.")
    if recorded is None:
        why = (
            f"{stored.reason} refused this call before policies decided" if stored.reason else "It never reached policy"
        )
        raise PolicyError(f"{why}, so no exception can allow it.", f"palyra journal show {call_id} says what to do.")
    if recorded.effect == "allow":
        raise PolicyError(
            f"Policy allowed this call; {stored.reason} refused it.", f"palyra journal show {call_id} says what to do."
        )
    if not recorded.exact:
        raise PolicyError(
            "The record of this call is redacted, so an exception could not name exactly this call.",
            "Leave the secret out of the call's arguments, and make it again.",
        )
    return stored, recorded


def _check_run(installation: Installation, run_id: str) -> None:
    from palyra.errors import Rejected
    from palyra.wiring.ending import run_terms

    try:
        run_terms(installation).check_goes_on(run_id)
    except Rejected as refusal:
        raise PolicyError(refusal.detail, "Use --for call or --for program.") from None


async def _record(
    installation: Installation, kind: ActKind, name: str, text: str, details: dict[str, Json], *, by: str
) -> None:
    act = Act(
        kind=kind, actor=by, subject=f"exception/{name}", details={**details, "text_sha256": sha256_hex(text.encode())}
    )
    at = installation.ports.clock.now_unix_ms()
    await installation.writer.commit(lambda tx: record_act(tx, act, at_unix_ms=at))
