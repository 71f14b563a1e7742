"""May this process turn memory it wrote into code? WebAssembly needs it: guests are compiled to machine code.

systemd's MemoryDenyWriteExecute= (a filter on system calls, or the kernel's own switch), SELinux without execmem and
PaX say no, for the process and all it starts. Tried on one page of our own, which is given back.
Not here: what is told about it (wiring/guests, wiring/checkup).
"""

from __future__ import annotations

import mmap
import sys
from functools import cache
from typing import Any

REFUSED = "This process may not make memory executable, and WebAssembly is compiled to machine code."
REMEDY = (
    "Under systemd take MemoryDenyWriteExecute= out of the unit (deploy/palyrad.service has none); under SELinux allow "
    "execmem. Or do without tier A: enabled = false in [tool_call.wasm_runtime]."
)


@cache
def _libc() -> Any:
    """Once: each makes classes of its own."""
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def may_make_code() -> bool:
    """Of Linux only; elsewhere nobody is known to say no."""
    if sys.platform != "linux":
        return True
    import ctypes

    libc = _libc()
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        held = ctypes.c_char.from_buffer(page)
        try:
            address = ctypes.c_void_p(ctypes.addressof(held))
            code = mmap.PROT_READ | mmap.PROT_EXEC
            return not libc.mprotect(address, ctypes.c_size_t(mmap.PAGESIZE), ctypes.c_int(code))
        finally:
            del held
