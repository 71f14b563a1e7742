"""The audit's checks over one module: what it imports, exports and declares, against what its manifest asks for.

Rules: a core module imports what it calls, so an import that no capability justifies fails; a component's world imports
every interface, used or not, so there it warns. Nothing here compiles or runs anything.

Not here: checks over the whole skill (review), reading a module's facts (sandbox/wasm_scan).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from palyra.canon import Json
from palyra.model.wasm import PAGE_BYTES, GuestKind, ModuleFacts
from palyra.skills.capabilities import Capabilities
from palyra.skills.findings import FAIL, MAX_SHOWN, PASS, WARN, Check, make_check
from palyra.skills.subject import Ceilings, ModuleSight, Surface

_CORE_NEEDS = {
    "http-fetch": "http_egress_allowlist",
    "secret-get": "secrets.raw_key_names",
    "storage-get": "filesystem.read_roots",
    "storage-list": "filesystem.read_roots",
    "storage-put": "filesystem.write_roots",
    "storage-delete": "filesystem.write_roots",
    "channel-send": "channels",
}
"""Host functions that do something outside, and what a manifest must ask for to justify importing them."""
_INTERFACE_NEEDS = {
    "http": "http_egress_allowlist",
    "secrets": "secrets",
    "storage": "filesystem.read_roots",
    "channels": "channels",
}
_USUAL_EXPORTS = frozenset(
    {
        "run",
        "memory",
        "_initialize",
        "__heap_base",
        "__data_end",
        "__stack_pointer",
        "cabi_realloc",
        "__wasm_call_ctors",
    }
)


def review_module(
    path: str, sight: ModuleSight, asked: Capabilities, surface: Surface, ceilings: Ceilings
) -> Iterator[Check]:
    """Its shape, imports, exports, sizes, and whether it compiled."""
    if sight.facts is None:
        yield make_check("module.shape", FAIL, f"{path}: {sight.refused}", module=path)
        return
    facts = sight.facts
    counts: dict[str, Json] = {
        "module": path,
        "kind": facts.kind.value,
        "bytes": facts.size_bytes,
        "functions": facts.functions,
        "memories": facts.memories,
        "tables": facts.tables,
    }
    yield make_check("module.shape", PASS, f"{path} has an ordinary structure.", **counts)
    yield _imports(path, facts, asked, surface)
    yield _entry(path, facts)
    yield _size(path, facts, asked, ceilings)
    if sight.not_compiled:
        yield make_check("module.compile", FAIL, f"{path}: {sight.not_compiled}", module=path)
    else:
        yield make_check("module.compile", PASS, f"{path} compiles, with the entry a guest must have.", module=path)


def _imports(path: str, facts: ModuleFacts, asked: Capabilities, surface: Surface) -> Check:
    offered = _offered_core if facts.kind is GuestKind.CORE else _offered_component
    unknown = [f"{module} {name}".strip() for module, name in facts.imports if not offered(module, name, surface)]
    if unknown:
        return make_check(
            "module.imports",
            FAIL,
            f"{path} imports what guests are not offered.",
            module=path,
            imports=unknown[:MAX_SHOWN],
        )
    missing = sorted({need for module, name in facts.imports if (need := _need(facts, module, name, asked))})
    if missing:
        # A component's world imports every interface, used or not; a core module imports what it calls.
        status = FAIL if facts.kind is GuestKind.CORE else WARN
        message = f"{path} imports functions that its capabilities do not justify."
        return make_check("module.imports", status, message, module=path, missing=missing)
    return make_check(
        "module.imports", PASS, f"{path} imports what its capabilities justify, and nothing else.", module=path
    )


def _offered_core(module: str, name: str, surface: Surface) -> bool:
    return name in surface.functions.get(module, frozenset())


def _offered_component(module: str, name: str, surface: Surface) -> bool:
    return module in surface.interfaces


def _need(facts: ModuleFacts, module: str, name: str, asked: Capabilities) -> str:
    """What the manifest would have to ask for, and does not."""
    if facts.kind is GuestKind.CORE:
        need = _CORE_NEEDS.get(name, "")
    else:
        need = _INTERFACE_NEEDS.get(module.rpartition("/")[2].partition("@")[0], "")
    given: Mapping[str, object] = {
        "http_egress_allowlist": asked.http_egress_allowlist,
        "secrets": asked.secrets,
        "secrets.raw_key_names": any(scope.raw_key_names for scope in asked.secrets),
        "filesystem.read_roots": asked.read_roots or asked.write_roots,
        "filesystem.write_roots": asked.write_roots,
        "channels": asked.channels,
    }
    return need if need and not given[need] else ""


def _entry(path: str, facts: ModuleFacts) -> Check:
    extra = sorted(name for name in facts.exports if name not in _USUAL_EXPORTS)
    if "run" not in facts.exports and facts.kind is GuestKind.CORE:
        return make_check("module.entry", FAIL, f"{path} does not export run.", module=path)
    if facts.has_start or extra:
        message = f"{path} runs code before its entry, or exports more than a guest needs."
        return make_check(
            "module.exports", WARN, message, module=path, exports=extra[:MAX_SHOWN], has_start=facts.has_start
        )
    return make_check("module.exports", PASS, f"{path} exports its entry and little else.", module=path)


def _size(path: str, facts: ModuleFacts, asked: Capabilities, ceilings: Ceilings) -> Check:
    most = min(asked.quotas.max_memory_bytes, ceilings.memory_bytes)
    needed = facts.memory_min_pages * PAGE_BYTES
    if needed > most:
        message = f"{path} declares {needed} bytes of memory; it may have {most}."
        return make_check("module.size", FAIL, message, module=path, declared=needed, most=most)
    if facts.table_min_elements > ceilings.table_elements:
        message = f"{path} declares {facts.table_min_elements} table elements; it may have {ceilings.table_elements}."
        declared = facts.table_min_elements
        return make_check("module.size", FAIL, message, module=path, declared=declared, most=ceilings.table_elements)
    return make_check("module.size", PASS, f"{path} declares no more memory and tables than it may have.", module=path)
