"""Palyra runs AI agents' tool calls: decided by policy, enforced by the kernel, proven by a signed journal.

`Palyra` and `AsyncPalyra` are loaded when first asked for, because every start of the command line imports this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palyra.version import __version__

__all__ = ["AsyncPalyra", "Palyra", "__version__"]

if TYPE_CHECKING:
    from palyra.api import AsyncPalyra, Palyra


def __getattr__(name: str) -> object:
    if name in ("Palyra", "AsyncPalyra"):
        from palyra import api

        return getattr(api, name)
    raise AttributeError(f"module 'palyra' has no attribute {name!r}")
