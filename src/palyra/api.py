"""The names we promise to embedders: `Palyra`, `AsyncPalyra`, their runs, and the values they return.

    with Palyra.open() as palyra:
        run = palyra.run(principal="agent:demo", workspace=".")
        result = run.call("palyra.process.run", {"command": "ls", "args": ["-la"]})

Rules: both faces are the same engine and the same pipeline. Who can open a home is its operator: grants given here are
the operator's. What stands here stays; where it is defined may change.
"""

from __future__ import annotations

from palyra.api_async import AsyncPalyra, AsyncRun
from palyra.api_sync import Palyra, SyncRun
from palyra.errors import ConfigError, PalyraError, Reason, Rejected, StateError
from palyra.model.budget import Allowance, Spending
from palyra.model.call import OperatorGrant
from palyra.model.limits import Limits
from palyra.model.outcome import Outcome, Status
from palyra.protocol.wire import outcome_json
from palyra.wiring.grants import grant

__all__ = [
    "Allowance", "AsyncPalyra", "AsyncRun", "ConfigError", "Limits", "OperatorGrant", "Outcome", "Palyra",
    "PalyraError", "Reason", "Rejected", "Spending", "StateError", "Status", "SyncRun", "grant", "outcome_json",
]  # fmt: skip
