"""Tier A: the plan for one guest. What wasmtime and the jail around it keep, said as guarantees.

A guest has no system calls, files or sockets at all; what it can reach are the host functions, which answer only for
what its plan grants. So the file system and the network are isolated by construction, hosts by name, and fuel, memory
and wall time are bounded for the whole of it. The jail (a tier C sandbox around the worker) is what stands if wasmtime
itself is broken; a plan that runs in this process says so in `degraded`.
"""

from __future__ import annotations

from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.wasm import CapabilityGrants, GuestKind, WasmLimits, WasmPlan

GUARANTEES = frozenset(
    {
        Guarantee.FS_ISOLATED,
        Guarantee.NET_ISOLATED,
        Guarantee.HOST_ALLOWLIST,
        Guarantee.CPU_LIMIT,
        Guarantee.MEMORY_LIMIT,
        Guarantee.MEMORY_LIMIT_TREE,
        Guarantee.PROCESS_LIMIT,
        Guarantee.TREE_KILL,
        Guarantee.SYSCALL_FILTER,
    }
)
JAIL = frozenset({Guarantee.TREE_KILL, Guarantee.SYSCALL_FILTER})
"""What only the sandbox around the worker gives."""
IN_PROCESS = "jail: the guest runs in the engine's own process, behind wasmtime alone"


def plan_guest(
    *,
    module_sha256: str,
    guest: GuestKind,
    memories: int,
    skill_id: str,
    tool_id: str,
    input: bytes,
    wasm: WasmLimits,
    grants: CapabilityGrants,
    limits: Limits,
    in_process: bool,
) -> WasmPlan:
    return WasmPlan(
        module_sha256=module_sha256,
        guest=guest,
        memories=max(1, memories),
        skill_id=skill_id,
        tool_id=tool_id,
        input=input,
        wasm=wasm,
        grants=grants,
        in_process=in_process,
        limits=limits,
        guarantees=GUARANTEES - JAIL if in_process else GUARANTEES,
        degraded=(IN_PROCESS,) if in_process else (),
    )


def narrowed(asked: WasmLimits, most: WasmLimits) -> WasmLimits:
    """The smaller of each: neither a manifest nor a call can ask for more than the operator allows."""
    return WasmLimits(**{name: min(value, getattr(most, name)) for name, value in asked.as_json().items()})
