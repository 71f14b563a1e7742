"""Core modules run with nothing but what they were granted, and every way too far has its own end."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator

import pytest

from palyra.inside.wasm import abi
from palyra.inside.wasm.core import CoreRuntime, InvalidModule
from palyra.inside.wasm.direct import DirectRuntime, usable
from palyra.inside.wasm.engine import EpochTimer, _Interval, make_engine
from palyra.inside.wasm.guest import End, EndKind, Grants, GuestCall, StorageRoot
from tests.promises import promise
from tests.unit.inside.wasm.guests import ECHO, LOOP, TOO_FAR, Asked, bounds, call, module, wasm

TAKE_ALL = "(call $output (i32.const 64) (call $take (i32.const 64) (i32.const 4096)))"


Runtime = CoreRuntime | DirectRuntime


@pytest.fixture(
    scope="module",
    params=[(CoreRuntime, 0), (DirectRuntime, 0), (DirectRuntime, 4)],
    ids=["wrapper", "direct", "places"],
)
def runtime(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    """Both layers keep the same promises, and so does the one with places made ahead."""
    layer, slots = request.param
    engine = make_engine(slots=slots)
    timer = EpochTimer(engine)
    yield layer(engine, timer)
    timer.close()


def run(runtime: Runtime, guest: bytes, given: GuestCall | None = None) -> End:
    return runtime.run(runtime.load(runtime.compile(guest)), given or call())


def test_a_guest_answers_with_what_it_gave_as_output(runtime: Runtime) -> None:
    end = run(runtime, ECHO, call(b'{"a":1}'))
    assert (end.kind, end.exit_code, end.output) == (EndKind.RETURNED, 0, b'{"a":1}')
    assert end.fuel is not None
    assert 0 < end.fuel < 100


def test_a_guest_that_gives_no_output_answers_nothing(runtime: Runtime) -> None:
    end = run(runtime, module(body="(i32.const 3)"))
    assert (end.kind, end.exit_code, end.output) == (EndKind.RETURNED, 3, None)


@promise("guest.limits")
@pytest.mark.parametrize(("guest", "kind", "words"), TOO_FAR)
def test_too_far_has_an_end_of_its_own(runtime: Runtime, guest: bytes, kind: EndKind, words: str) -> None:
    end = run(runtime, guest, call(gate=Asked({("log", "0"): b""})))
    assert end.kind is kind
    assert words in end.detail


def test_fuel_taken_away_to_stop_a_guest_is_not_said_to_be_used(runtime: Runtime) -> None:
    end = run(runtime, module("output", body="(call $output (i32.const 0) (i32.const 5000))"))
    assert end.fuel is not None
    assert end.fuel < 100


@promise("guest.hostile-module")
def test_many_memories_are_refused_at_compile_time(runtime: Runtime) -> None:
    with pytest.raises(InvalidModule, match="multiple memories"):
        run(runtime, wasm('(module (memory 1) (memory 1) (func (export "run") (result i32) (i32.const 0)))'))


@promise("guest.forged-values")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('(module (import "env" "system" (func)) (func (export "run") (result i32) (i32.const 0)))', "env system"),
        (f'(module (import "{abi.HOST}" "exec" (func)) (func (export "run") (result i32) (i32.const 0)))', "exec"),
        (
            f'(module (import "{abi.HOST}" "take" (func (param i64))) (func (export "run") (result i32) i32.const 0))',
            "the wrong type",
        ),
        (f'(module (import "{abi.HOST}" "take" (memory 1)) (func (export "run") (result i32) i32.const 0))', "type"),
        ('(module (func (export "run") (result i64) (i64.const 0)))', "run: () -> i32"),
        ('(module (func (export "run") (param i32) (result i32) (i32.const 0)))', "run: () -> i32"),
        ('(module (memory (export "run") 1))', "run: () -> i32"),
        ("(module)", "run: () -> i32"),
    ],
)
def test_what_does_not_fit_the_surface_is_not_run(runtime: Runtime, text: str, words: str) -> None:
    with pytest.raises(InvalidModule) as refused:
        runtime.compile(wasm(text))
    assert words in str(refused.value)


@promise("guest.hostile-module")
def test_text_is_not_taken_for_a_module(runtime: Runtime) -> None:
    """wasmtime would read bytes without the magic as WebAssembly text."""
    with pytest.raises(InvalidModule, match="not a WebAssembly core module"):
        runtime.compile(b'(module (func (export "run") (result i32) (i32.const 0)))')


def answers(runtime: Runtime, function: str, *numbers: int, grants: Grants | None = None) -> int | None:
    arguments = " ".join(f"(i32.const {number})" for number in numbers)
    end = run(runtime, module(function, body=f"(call ${function} {arguments})"), call(grants=grants))
    assert end.kind is EndKind.RETURNED
    return end.exit_code


GRANTED = Grants(
    http=("api.test",),
    secrets=("key",),
    storage=(StorageRoot("cache", writable=False),),
    channels=("out",),
)


@promise("guest.forged-values")
@pytest.mark.parametrize(
    ("function", "numbers"),
    [
        ("http-fetch", (10_001, 0, 2)),
        ("http-fetch", (20_000, 0, 2)),
        ("http-fetch", (-1, 0, 2)),
        ("http-fetch", (2_147_483_647, 0, 2)),
        ("secret-get", (20_001,)),
        ("storage-get", (30_001, 0, 1)),
        ("storage-put", (30_001, 0, 1, 0, 1)),
        ("channel-send", (40_001, 0, 1)),
        ("channel-send", (10_000, 0, 1)),
    ],
)
def test_a_forged_handle_is_not_granted(runtime: Runtime, function: str, numbers: tuple[int, ...]) -> None:
    assert answers(runtime, function, *numbers, grants=GRANTED) == abi.NOT_GRANTED


def test_a_secret_that_is_only_injected_cannot_be_read(runtime: Runtime) -> None:
    assert answers(runtime, "secret-get", 20_000, grants=GRANTED) == abi.NOT_GRANTED


@promise("guest.forged-values")
def test_a_read_root_takes_no_writes(runtime: Runtime) -> None:
    assert answers(runtime, "storage-put", 30_000, 0, 1, 0, 1, grants=GRANTED) == abi.NOT_GRANTED
    assert answers(runtime, "storage-delete", 30_000, 0, 1, grants=GRANTED) == abi.NOT_GRANTED


@promise("guest.forged-values")
@pytest.mark.parametrize(
    ("pointer", "count"),
    [
        (65_536, 1),
        (65_535, 2),
        (-1, 1),
        (0, -1),
        (0, 65_537),
        (2_147_483_647, 1),
        (-65_536, 65_537),
        (1, 2_147_483_647),
    ],
)
def test_pointers_out_of_bounds_and_negative_lengths_are_answers(runtime: Runtime, pointer: int, count: int) -> None:
    assert answers(runtime, "channel-send", 40_000, pointer, count, grants=GRANTED) in (
        abi.BAD_ARGUMENT,
        abi.TOO_LARGE,
    )


@promise("guest.forged-values")
def test_the_bounds_checked_are_those_after_the_memory_grew(runtime: Runtime) -> None:
    grown = module(
        "output",
        body="(drop (memory.grow (i32.const 1))) (call $output (i32.const 65536) (i32.const 4))",
    )
    assert run(runtime, grown).output == bytes(4)


@promise("guest.forged-values")
@pytest.mark.parametrize("key", ["../x", "/x", "a//b", "a/../b", "..", ".", "a/", "", "a\\b", "a b", "é", "a\\00b"])
def test_a_storage_key_is_a_name_never_a_path(runtime: Runtime, key: str) -> None:
    length = len(key.replace("\\00", "0").encode())
    guest = module(
        "storage-get",
        memory=f'(memory (export "memory") 1) (data (i32.const 0) "{key}")'.replace("a\\b", "a\\5cb"),
        body=f"(call $storage-get (i32.const 30000) (i32.const 0) (i32.const {length}))",
    )
    gate = Asked({("storage-get", "cache"): b"value"})
    end = run(runtime, guest, call(grants=GRANTED, gate=gate))
    assert (end.exit_code, gate.asked) == (abi.BAD_ARGUMENT, [])


def test_results_are_parked_and_pulled_in_pieces(runtime: Runtime) -> None:
    guest = module(
        "storage-get",
        "take",
        "output",
        memory='(memory (export "memory") 1) (data (i32.const 0) "k")',
        body="""(drop (call $storage-get (i32.const 30000) (i32.const 0) (i32.const 1)))
                (drop (call $take (i32.const 64) (i32.const 2)))
                (drop (call $take (i32.const 66) (i32.const 100)))
                (call $output (i32.const 64) (i32.const 5))""",
    )
    gate = Asked({("storage-get", "cache"): b"value"})
    given = call(grants=GRANTED, gate=gate)
    assert run(runtime, guest, given).output == b"value"
    assert gate.asked == [("storage-get", "cache", b"k")]
    assert given.trail == [("storage-get", "cache", 1)]


def test_the_counting_surface_alone_is_enough(runtime: Runtime) -> None:
    guest = wasm(
        f"""(module (import "{abi.HOST_CAPABILITIES}" "secret-count" (func $count (result i32)))
            (import "{abi.HOST_CAPABILITIES}" "secret-handle" (func $handle (param i32) (result i32)))
            (func (export "run") (result i32) (i32.add (call $handle (i32.const 0)) (call $count))))"""
    )
    assert run(runtime, guest, call(grants=GRANTED)).exit_code == 20_001


@promise("guest.limits")
def test_bytes_through_the_host_are_bounded(runtime: Runtime) -> None:
    guest = module(
        "input-read",
        body="(loop $again (drop (call $input-read (i32.const 0) (i32.const 60000))) (br $again)) (i32.const 0)",
    )
    end = run(runtime, guest, call(bytes(60_000)))
    assert (end.kind, end.detail) == (EndKind.QUOTA, "The guest moved more than 1048576 bytes through the host.")


class Broken:
    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        raise RuntimeError(f"secret detail of {threading.get_ident()}")


class Slow:
    def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
        time.sleep(timeout_s)
        return b""


SENDING = module("channel-send", body="(call $channel-send (i32.const 40000) (i32.const 0) (i32.const 1))")


def test_a_fault_of_the_host_ends_this_guest_alone_and_tells_it_nothing(runtime: Runtime) -> None:
    given = GuestCall(input=b"", bounds=bounds(), grants=GRANTED, gate=Broken())
    end = run(runtime, SENDING, given)
    assert (end.kind, end.detail) == (EndKind.BROKEN, "A host function failed: RuntimeError.")
    assert run(runtime, ECHO, call(b"{}")).output == b"{}"


def test_two_threads_raising_at_once_never_swap_their_ends(runtime: Runtime) -> None:
    loaded = runtime.load(runtime.compile(SENDING))
    storm = runtime.load(
        runtime.compile(module("http-count", body="(loop $a (drop (call $http-count)) (br $a)) (i32.const 0)"))
    )
    ends: dict[str, set[EndKind]] = {"broken": set(), "storm": set()}

    def broken() -> None:
        for _ in range(200):
            given = GuestCall(input=b"", bounds=bounds(), grants=GRANTED, gate=Broken())
            ends["broken"].add(runtime.run(loaded, given).kind)

    def storming() -> None:
        for _ in range(200):
            ends["storm"].add(runtime.run(storm, call(within=bounds(host_calls=5))).kind)

    threads = [threading.Thread(target=each) for each in (broken, storming, broken, storming)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == {"broken": {EndKind.BROKEN}, "storm": {EndKind.QUOTA}}


@promise("guest.limits")
def test_a_host_call_that_takes_the_rest_of_the_time_ends_the_guest(runtime: Runtime) -> None:
    given = GuestCall(input=b"", bounds=bounds(wall_ms=100), grants=GRANTED, gate=Slow())
    assert run(runtime, SENDING, given).kind is EndKind.TIMEOUT


@promise("guest.limits")
def test_a_thread_that_hogs_the_interpreter_does_not_stretch_a_deadline(runtime: Runtime) -> None:
    loaded = runtime.load(runtime.compile(LOOP))
    done = threading.Event()

    def hog() -> None:
        while not done.is_set():
            sum(range(10_000))

    thread = threading.Thread(target=hog)
    thread.start()
    took_s: list[float] = []
    burnt_s: list[float] = []
    try:
        while len(took_s) < 5 and min(took_s, default=1) >= 1:  # a busy machine may take one of them for itself
            began, burning = time.monotonic(), time.thread_time()
            end = runtime.run(loaded, call(within=bounds(fuel=10**15, wall_ms=200)))
            took_s.append(time.monotonic() - began)
            burnt_s.append(time.thread_time() - burning)
            assert (end.kind, end.fuel) == (EndKind.TIMEOUT, None)
    finally:
        done.set()
        thread.join()
    assert min(took_s) < 1, "a ticker in Python needed four seconds for 100 ms"
    assert max(burnt_s) < 1, "however busy the machine is, the guest itself ran no longer than it might"


def test_a_memory_that_grew_under_way_is_where_it_was_and_larger(runtime: Runtime) -> None:
    growing = module(
        "input-read",
        "output",
        body="""(drop (call $input-read (i32.const 0) (i32.const 4)))
                (drop (memory.grow (i32.const 900)))
                (memory.copy (i32.const 59000000) (i32.const 0) (i32.const 4))
                (drop (call $input-read (i32.const 59000004) (i32.const 4)))
                (i32.store (i32.const 4) (i32.load (i32.const 0)))
                (call $output (i32.const 59000000) (i32.const 8))""",
    )
    end = run(runtime, growing, call(b"abcd", within=bounds(memory_bytes=64 << 20)))
    assert (end.kind, end.output, end.memory_bytes) == (EndKind.RETURNED, b"abcdabcd", 901 * 65536)


def test_a_start_function_has_the_same_surface(runtime: Runtime) -> None:
    starting = wasm(
        f"""(module (import "{abi.HOST}" "input-read" (func $read (param i32 i32) (result i32)))
             (import "{abi.HOST}" "output" (func $write (param i32 i32) (result i32)))
             (memory (export "memory") 1)
             (func $s (drop (call $write (i32.const 0) (call $read (i32.const 0) (i32.const 100)))))
             (start $s) (func (export "run") (result i32) (i32.const 5)))"""
    )
    end = run(runtime, starting, call(b"early"))
    assert (end.kind, end.exit_code, end.output) == (EndKind.RETURNED, 5, b"early")


def test_a_call_within_a_host_call_is_not_taken_for_the_one_around_it(runtime: Runtime) -> None:
    inner = []

    class Running:
        def ask(self, operation: str, name: str, payload: bytes, *, timeout_s: float) -> bytes:
            inner.append(run(runtime, ECHO, call(b"inner")).output)
            return b""

    sending = module(
        "channel-send",
        "input-read",
        "output",
        body="""(drop (call $channel-send (i32.const 40000) (i32.const 0) (i32.const 1)))
                (call $output (i32.const 0) (call $input-read (i32.const 0) (i32.const 100)))""",
    )
    end = run(runtime, sending, GuestCall(input=b"outer", bounds=bounds(), grants=GRANTED, gate=Running()))
    assert (end.output, inner) == (b"outer", [b"inner"])


def test_a_timer_rests_only_when_no_guest_runs() -> None:
    engine = make_engine()
    timer = EpochTimer(engine)
    began = []
    for act in (timer.begin, timer.begin, timer.rest, timer.finish, timer.rest, timer.finish, timer.rest, timer.begin):
        act()
        began.append(interval_ns(timer) > 0)
    assert began == [True, True, True, True, True, True, False, True]
    timer.close()
    timer.rest()


def interval_ns(timer: EpochTimer) -> int:
    left = _Interval()
    assert ctypes.CDLL(None).timer_gettime(timer._timer, ctypes.byref(left)) == 0
    return left.interval_ns


def test_the_direct_layer_proves_itself_against_the_wrapper() -> None:
    assert usable()


@promise("guest.limits")
def test_both_layers_end_every_guest_alike() -> None:
    engine = make_engine()
    timer = EpochTimer(engine)
    layers = CoreRuntime(engine, timer), DirectRuntime(engine, timer)
    for case in TOO_FAR:
        guest = case.values[0]
        assert isinstance(guest, bytes)
        ends = [run(layer, guest, call(gate=Asked({("log", "0"): b""}))) for layer in layers]
        assert ends[0] == ends[1]
    timer.close()


def test_a_place_shows_nothing_of_the_guest_before() -> None:
    engine = make_engine(slots=1)
    timer = EpochTimer(engine)
    runtime = DirectRuntime(engine, timer)
    memory = '(memory (export "memory") 8)'
    marking = module(
        "output", memory=memory, body="(memory.fill (i32.const 0) (i32.const 7) (i32.const 524288)) i32.const 0"
    )
    reading = module("output", memory=memory, body="(call $output (i32.const 0) (i32.const 524288))")
    assert run(runtime, marking).kind is EndKind.RETURNED
    end = run(runtime, reading, call(within=bounds(output_bytes=1 << 20)))
    assert end.output == bytes(524_288)
    timer.close()


def test_an_artefact_of_an_engine_without_places_is_loaded_by_one_with() -> None:
    plain, placed = make_engine(), make_engine(slots=1)
    timers = EpochTimer(plain), EpochTimer(placed)
    artefact = CoreRuntime(plain, timers[0]).compile(ECHO)
    runtime = DirectRuntime(placed, timers[1])
    assert runtime.run(runtime.load(artefact), call(b"[]")).output == b"[]"
    for timer in timers:
        timer.close()
