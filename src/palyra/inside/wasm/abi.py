"""The surface a core module sees: import modules, function names and types, handle numbers, error numbers.

Rules: handles are numbers by family, in the sorted order of what was granted; a negative answer is an error and never a
length; nothing is ever called back into the guest, results are parked and pulled with `take`.

Not here: what the functions do (surface), how wasmtime is told (core, direct).
"""

from __future__ import annotations

from typing import Final

HOST: Final = "palyra:plugins/host@0.1.0"
HOST_CAPABILITIES: Final = "palyra:plugins/host-capabilities@0.1.0"
"""The eight functions that only count and number what was granted; a module written to them alone runs too."""

FAMILIES: Final = {"http": 10_000, "secret": 20_000, "storage": 30_000, "channel": 40_000}

NOT_GRANTED, BAD_ARGUMENT, ABSENT, FAILED, TOO_LARGE = -1, -2, -3, -4, -5

COUNTING: Final = {
    name: parameters for family in FAMILIES for name, parameters in ((f"{family}-count", 0), (f"{family}-handle", 1))
}

FUNCTIONS: Final[dict[str, int]] = {
    **COUNTING,
    "input-len": 0,
    "input-read": 2,
    "output": 2,
    "take": 2,
    "http-fetch": 3,
    "secret-get": 1,
    "storage-get": 3,
    "storage-put": 5,
    "storage-list": 3,
    "storage-delete": 3,
    "channel-send": 3,
    "log": 3,
}
"""name → number of i32 parameters; each returns one i32."""

IMPORTS: Final = {HOST: FUNCTIONS, HOST_CAPABILITIES: COUNTING}

RUN: Final = "run"
MEMORY: Final = "memory"
MAX_KEY_BYTES: Final = 256
MAX_LOG_BYTES: Final = 4096
