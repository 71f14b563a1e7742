"""Components get capabilities as resources and nothing else, within the same bounds as core modules."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from wasmtime import wat2wasm

from palyra.inside.wasm.component import ComponentRuntime
from palyra.inside.wasm.core import InvalidModule
from palyra.inside.wasm.engine import EpochTimer, make_engine
from palyra.inside.wasm.guest import Bounds, End, EndKind, Grants, GuestCall, StorageRoot
from palyra.sandbox.wasm_scan import scan
from tests.unit.inside.wasm.components import ECHO, ECHO_TEXT, FAILING, LOGGING, STORING, component
from tests.unit.inside.wasm.guests import Asked, bounds, call


@pytest.fixture(scope="module")
def runtime() -> Iterator[ComponentRuntime]:
    engine = make_engine(components=True)
    timer = EpochTimer(engine)
    yield ComponentRuntime(engine, timer)
    timer.close()


def run(runtime: ComponentRuntime, guest: bytes, given: GuestCall | None = None) -> End:
    return runtime.run(runtime.load(runtime.compile(guest)), given or call(b'{"a":1}'))


WRITABLE = Grants(storage=(StorageRoot("cache", writable=True),))


def test_a_component_answers_with_what_it_returns(runtime: ComponentRuntime) -> None:
    end = run(runtime, ECHO)
    assert (end.kind, end.exit_code, end.output) == (EndKind.RETURNED, 0, b'{"a":1}')


def test_an_err_is_a_failed_call_with_its_sentence(runtime: ComponentRuntime) -> None:
    end = run(runtime, FAILING, call(b"why not"))
    assert (end.kind, end.exit_code, end.output, end.detail) == (EndKind.RETURNED, 1, None, "why not")


def test_a_granted_root_is_a_resource_and_its_keys_are_names(runtime: ComponentRuntime) -> None:
    gate = Asked({("storage-put", "cache"): b""})
    assert run(runtime, STORING, call(b"key", grants=WRITABLE, gate=gate)).output == b"key"
    assert gate.asked == [("storage-put", "cache", b"key\0key")]


@pytest.mark.parametrize("key", ["../x", "/x", "a//b", "..", ""])
def test_a_key_that_is_a_path_is_refused(runtime: ComponentRuntime, key: str) -> None:
    gate = Asked({("storage-put", "cache"): b""})
    end = run(runtime, STORING, call(key.encode(), grants=WRITABLE, gate=gate))
    assert (end.exit_code, end.detail, gate.asked) == (1, "not a proper key or argument", [])


def test_a_read_root_takes_no_writes(runtime: ComponentRuntime) -> None:
    end = run(runtime, STORING, call(b"key", grants=Grants(storage=(StorageRoot("cache", writable=False),))))
    assert (end.exit_code, end.detail) == (1, "not granted")


def test_without_a_grant_there_is_no_resource_to_use(runtime: ComponentRuntime) -> None:
    """A handle is made up: wasmtime itself knows none."""
    end = run(runtime, STORING, call(b"key"))
    assert (end.kind, end.detail) == (EndKind.TRAPPED, "The guest trapped: unknown handle index 0.")


@pytest.mark.parametrize(
    ("guest", "within", "kind", "words"),
    [
        pytest.param(LOGGING, bounds(), EndKind.QUOTA, "100 log lines", id="log flood"),
        pytest.param(
            component("(loop $a (br $a)) (i32.const 0)"), bounds(), EndKind.OUT_OF_FUEL, "fuel of", id="infinite loop"
        ),
        pytest.param(
            component("(loop $a (br $a)) (i32.const 0)"),
            bounds(fuel=10**15, wall_ms=200),
            EndKind.TIMEOUT,
            "200 ms",
            id="a component that sleeps",
        ),
        pytest.param(component("(unreachable)"), bounds(), EndKind.TRAPPED, "unreachable", id="trap"),
        pytest.param(ECHO, bounds(output_bytes=3), EndKind.QUOTA, "output is larger than 3 bytes", id="output"),
        pytest.param(ECHO, bounds(memory_bytes=1000), EndKind.MEMORY, "exceeds memory limits", id="memory"),
        pytest.param(LOGGING, bounds(host_calls=5), EndKind.QUOTA, "5 host calls", id="host-call storm"),
    ],
)
def test_too_far_has_an_end_of_its_own(
    runtime: ComponentRuntime, guest: bytes, within: Bounds, kind: EndKind, words: str
) -> None:
    end = run(runtime, guest, call(b'{"a":1}', within=within, gate=Asked({("log", "2"): b""})))
    assert end.kind is kind
    assert words in end.detail


def test_the_memory_bound_is_for_all_memories_together(runtime: ComponentRuntime) -> None:
    loaded = runtime.load(runtime.compile(ECHO), memories=4)
    end = runtime.run(loaded, call(b"{}", within=bounds(memory_bytes=4 * 65536 - 1)))
    assert end.kind is EndKind.MEMORY


def test_a_module_instantiated_again_and_again_gets_no_more_memory(runtime: ComponentRuntime) -> None:
    """The bound is divided by the memories that are written down: an instance more would be one more of that size."""
    many = ECHO_TEXT.replace("(core instance $mem", "(core instance $more (instantiate $mem)) (core instance $mem", 1)
    guest = bytes(wat2wasm(many))
    assert scan(guest).memories == scan(ECHO).memories == 1
    end = runtime.run(runtime.load(runtime.compile(guest), memories=1), call(b"{}"))
    assert (end.kind, "memory count too high" in end.detail) == (EndKind.MEMORY, True)


class Broken:
    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        raise RuntimeError("secret detail")


def test_a_fault_of_the_host_ends_this_guest_alone_and_tells_it_nothing(runtime: ComponentRuntime) -> None:
    given = GuestCall(input=b"x", bounds=bounds(), grants=Grants(), gate=Broken())
    end = run(runtime, LOGGING, given)
    assert (end.kind, end.detail) == (EndKind.BROKEN, "A host function failed: RuntimeError.")
    assert run(runtime, ECHO).exit_code == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('(component (import "wasi:http/outgoing-handler@0.2.0" (instance)))', "wasi:http/outgoing-handler@0.2.0"),
        ('(component (import "env" (func)))', "imports env"),
        ("(component)", "must export run"),
    ],
)
def test_what_does_not_fit_the_world_is_not_run(runtime: ComponentRuntime, text: str, words: str) -> None:
    with pytest.raises(InvalidModule, match=r"not offered|must export") as refused:
        runtime.compile(bytes(wat2wasm(text)))
    assert words in str(refused.value)


def test_a_run_of_another_type_is_no_answer(runtime: ComponentRuntime) -> None:
    odd = bytes(
        wat2wasm(
            """(component (core module $m (func (export "run") (result i32) (i32.const 7)))
            (core instance $i (instantiate $m)) (func (export "run") (result u32) (canon lift (core func $i "run"))))"""
        )
    )
    with pytest.raises(InvalidModule, match="must export run"):
        runtime.compile(odd)
