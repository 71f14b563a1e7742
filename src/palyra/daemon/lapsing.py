"""Calls are worth no more than the credential that asked for them: looked at again when a call's turn has come, and
when one that was taken on before a crash is begun.

Rules: a token, and a session by the token that opened it; who logs out keeps what they asked for. Not here: streams
(daemon/holding), when a call waited long enough to be looked at (engine/asking).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from palyra.daemon.auth import Caller
from palyra.daemon.state import State
from palyra.errors import Reason, Rejected


def token_behind(caller: Caller) -> str:
    """The id of the token that this caller's word rests on; empty for the socket's owner."""
    return caller.credential_id or (caller.session.credential_id if caller.session is not None else "")


def refusal_of(state: State, token_id: str) -> Rejected | None:
    token = state.tokens.by_id(token_id)
    if token is not None and token.holds(state.clock.now_unix_ms()):
        return None
    return Rejected(Reason.CAPABILITY_DENIED, "The token that made this call is no longer valid.", "Use another token.")


def lapse_of_calls(state: State, caller: Caller) -> Callable[[], Rejected | None] | None:
    token_id = token_behind(caller)
    return partial(refusal_of, state, token_id) if token_id else None
