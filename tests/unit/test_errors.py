"""What Palyra raises: whole through a process pool, and with its hint where people read it."""

from __future__ import annotations

import pickle
import traceback

import pytest

from palyra.config.schema import ConfigKeyError
from palyra.errors import ConfigError, DuplicateCall, PalyraError, Reason, Rejected, StateError, Unenforceable

RAISED = [
    Rejected(Reason.BUSY, "Too many wait.", "Wait.", fields=(("a", "wrong"),)),
    Unenforceable(("NET_ISOLATED",), "No sandbox.", "palyra doctor"),
    ConfigError("palyra.toml:1: no.", "Mend it."),
    ConfigKeyError(("tool_call", "x"), "Unknown key tool_call.x.", "Known keys here: y."),
    StateError("The disk is full."),
    DuplicateCall("01HF7YAT00000000000000CA11"),
    PalyraError("plain"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_an_exception_crosses_to_another_process_whole(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.args, vars(again)) == (type(error), str(error), error.args, vars(error))


def test_a_traceback_ends_with_the_hint():
    assert traceback.format_exception_only(RAISED[0])[-2:] == [
        "palyra.errors.Rejected: BUSY: Too many wait.\n",
        "hint: Wait.\n",
    ]
    assert PalyraError("plain").hint is None
