"""Palyra runs AI agents' tool calls: decided by policy, enforced by the kernel, proven by a signed journal.

What embedders need is here by name, and loaded when first asked for, because every start of the command line imports
this. `palyra.api` has a few more, for those who open a home themselves.
"""

from __future__ import annotations

from palyra.version import __version__

TYPE_CHECKING = False
"""As type checkers know it. `typing` has it too: importing that takes as long as Python's own start, and a command that
is interrupted meanwhile ends with Python's traceback."""

__all__ = [
    "Allowance", "AsyncPalyra", "ConfigError", "DaemonError", "Limits", "Outcome", "Palyra", "PalyraError", "Reason",
    "Rejected", "StateError", "Status", "Unreachable", "__version__", "grant", "outcome_json",
]  # fmt: skip

if TYPE_CHECKING:
    from palyra.api import (
        Allowance,
        AsyncPalyra,
        ConfigError,
        Limits,
        Outcome,
        Palyra,
        PalyraError,
        Reason,
        Rejected,
        StateError,
        Status,
        grant,
        outcome_json,
    )
    from palyra.client.wire import Unreachable
    from palyra.client.words import DaemonError
else:  # a type checker that saw this would believe any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'palyra' has no attribute {name!r}")
        if name in ("DaemonError", "Unreachable"):  # of the client, which loads no engine
            from palyra.client import wire, words

            return getattr(words if name == "DaemonError" else wire, name)
        from palyra import api

        return getattr(api, name)

    def __dir__() -> list[str]:
        return [*globals(), *(name for name in __all__ if name not in globals())]
