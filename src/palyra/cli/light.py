"""What a command never asks for is not imported for it, even where a library would.

cedarpy imports the types of its syntax trees at once, which take longer than all the rest of it; here they come when
somebody asks for the first of them. Only in Palyra's own processes: an embedder's imports are its own.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_TREES = "cedarpy.pst"


def keep_light() -> None:
    if _TREES in sys.modules:
        return
    stand_in = ModuleType(_TREES, "Stands in for the real one until it is asked for something.")

    def ask(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(_TREES) is stand_in:
            del sys.modules[_TREES]
        return getattr(import_module(_TREES), name)

    stand_in.__getattr__ = ask  # type: ignore[method-assign]
    sys.modules[_TREES] = stand_in
