"""Where modules of ours are: beside each other, in the package's own folder.

Python asks every kind of finder for every module, lists every folder and compares times; for a short command, which
imports hundreds, that is a twentieth of its life. Here one look at the file answers. Rules: whatever is not a plain
file of source where it should be (a zip, a compiled module, a name that is wrong) is left to Python's own finders; how
a module is then read, its cached code included, is Python's own way. Only in Palyra's own processes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from stat import S_ISREG
from types import ModuleType

import palyra

ROOT = os.path.dirname(palyra.__file__)


class OwnModules:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if not name.startswith("palyra.") or ".." in name or name[-1] == ".":
            return None
        place = ROOT + name[len("palyra") :].replace(".", "/")
        for file, folders in ((f"{place}.py", None), (f"{place}/__init__.py", [place])):
            if _is_file(file):
                spec = ModuleSpec(name, SourceFileLoader(name, file), origin=file)
                spec.submodule_search_locations, spec.has_location = folders, True
                return spec
        return None


def _is_file(path: str) -> bool:
    try:
        return S_ISREG(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def find_own_first() -> None:
    if OwnModules not in sys.meta_path:
        sys.meta_path.insert(0, OwnModules)
