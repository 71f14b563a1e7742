"""What a command never asks for is not done for it: not imported, even where a library would; not tidied up.

Modules that libraries import at once and these commands seldom use come when somebody asks for the first name in them:
cedarpy's syntax trees, and TLS for asyncio. The collector of cycles, which would walk all that an import makes, again
and again, waits until there is more than a short command ever has. A process whose threads have ended leaves at once,
instead of taking hundreds of modules apart. Only in Palyra's own processes: an embedder's are its own.
"""

from __future__ import annotations

import gc
import os
import sys
from _thread import allocate_lock
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import FunctionType, MethodType, ModuleType
from typing import Any

LATE = (
    "asyncio.sslproto",
    "cedarpy.pst",
    "inspect",
    "linecache",
    "platform",
    "ssl",
    "textwrap",
    "tomllib",
    "traceback",
)
Ask = Callable[[str], Any]
SHORT_LIFE_OBJECTS = 100_000
"""`palyra run` has 70 000 of them when it ends."""
YOUNG_OBJECTS = 5000
"""More than these before a long life's newest are looked through: a call and its answer are gone by themselves."""
OLDER_EVERY = 4
"""So many looks at the newer before one at the older, twice over: what ended in a circle after it had grown old (a kept
call, a cancelled task) waits for that. With all that was there at the start set aside it is a walk of milliseconds."""


def keep_light() -> None:
    """Before anything of weight is imported."""
    gc.set_threshold(SHORT_LIFE_OBJECTS, *gc.get_threshold()[1:])
    for name in LATE:
        if name not in sys.modules:
            sys.modules[name] = _stand_in(name, KNOWN.get(name, {}))


def stay() -> None:
    """This command will live long. What it was started with stays: looking through it for garbage, again and again,
    would stop every call for a tenth of a second."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, OLDER_EVERY, OLDER_EVERY)
    _bind_plainly()


def _bind_plainly() -> None:
    """SQLite takes bytes and nothing as they are. Python's layer does not know that, and looks for somebody who would
    change them, with an error made and dropped for each: a call binds forty. Told to the whole process, so not to an
    embedder's."""
    import sqlite3

    sqlite3.register_adapter(bytes, bytes)
    nothing: dict[None, None] = {}
    sqlite3.register_adapter(type(None), nothing.get)  # without a step of Python


def leave(code: int) -> None:
    """End the process; whatever asked to be called at the end is called, and a thread that still works is waited for.

    All that must last has been closed by then, the home first of all, and the streams are flushed.
    """
    import atexit
    import threading

    from palyra.cli.say import flush_streams

    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        sys.exit(code)
    atexit._run_exitfuncs()
    flush_streams()  # the last functions may have spoken
    os._exit(code)


def _clean_doc(ask: Ask, text: str) -> str:
    return text.lstrip() if text.isprintable() else str(ask("cleandoc")(text))


def _is_coroutine_function(ask: Ask, one: Any) -> bool:
    bare = one
    while type(bare) is MethodType:
        bare = bare.__func__
    if type(bare) is FunctionType and not vars(bare):  # newer Pythons mark some that do not look it
        return bool(bare.__code__.co_flags & IS_COROUTINE)
    return bool(ask("iscoroutinefunction")(one))


def _is_function(ask: Ask, one: object) -> bool:
    return isinstance(one, FunctionType)


def _unwrap(ask: Ask, one: Any, **how: Any) -> Any:
    return one if not how and not hasattr(one, "__wrapped__") else ask("unwrap")(one, **how)


def _system(ask: Ask) -> str:
    return os.uname().sysname if sys.platform == "linux" else str(ask("system")())


IS_COROUTINE = 128
_MAKING_WAY = allocate_lock()
KNOWN: dict[str, dict[str, Callable[..., Any]]] = {
    "inspect": {
        "cleandoc": _clean_doc,
        "iscoroutinefunction": _is_coroutine_function,
        "isfunction": _is_function,
        "unwrap": _unwrap,
    },
    "platform": {"system": _system},
}
"""What libraries ask in every command, answered as the real ones would; what is not so plain they are asked."""


def _stand_in(name: str, known: dict[str, Callable[..., Any]]) -> ModuleType:
    module = ModuleType(name, "Stands in for the real one until it is asked for something.")

    def ask(wanted: str) -> Any:
        if wanted.startswith("__"):
            raise AttributeError(wanted)
        with _MAKING_WAY:  # of two threads that ask at once, one would take the real one away again
            if sys.modules.get(name) is module:
                del sys.modules[name]
        real = import_module(name)
        module.__dict__.update({key: value for key, value in vars(real).items() if not key.startswith("__")})
        return getattr(real, wanted)

    module.__getattr__ = ask  # type: ignore[method-assign]
    module.__dict__.update({key: partial(answer, ask) for key, answer in known.items()})
    return module
