"""100 MiB from a granted host into a sandbox, beside the same download on the host's own loopback.

All sides are the same `curl` of the same server; what is compared is the time curl itself says the transfer took, so
neither the start of a sandbox nor the journal is in it. Ours goes through the name server inside, a judged HTTP
exchange and one copy in the engine's process.
"""

from __future__ import annotations

import multiprocessing
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue

from bench import srt
from bench.harness import Aim, Contender, Row
from bench.installation import CONFIG, Ground, check_outcome

BYTES = 100 << 20
NAME = "bulk.test"
CURL = ("-sS", "--fail", "--output", "/dev/null", "--noproxy", "*", "--write-out", "%{time_total} %{size_download}")
SETTINGS = """\
[tool_call.process_runner]
allowed_executables = ["curl"]
allowed_egress_hosts = ["{name}:{port}", "127.0.0.1:{port}"]
[egress]
resolve = ["{name}=127.0.0.1"]
max_connections = 1000000
max_bytes = 1125899906842624
"""


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with _server() as port:
        (ground.home / "palyra.toml").write_text(CONFIG + SETTINGS.format(name=NAME, port=port), encoding="utf-8")
        with _ours(ground, port) as ours:
            yield Row(
                name="egress",
                title="100 MiB from a granted host, in strict mode",
                note="Judged and counted on the way: host, request and answer by the egress server of the engine's own "
                "process. The peers are the same curl on the host, with nothing in between, and inside srt, through "
                "its proxies.",
                contenders=(ours, _direct(port), _through_srt(port)),
                aims=(Aim(peer="direct loopback", at_most=3.0),),
            )


@contextmanager
def _ours(ground: Ground, port: int) -> Iterator[Contender]:
    from palyra import Palyra

    with Palyra.open(home=str(ground.home)) as palyra:
        run = palyra.run(principal="user:bench", workspace=ground.workspace)
        words = {"command": "curl", "args": [*CURL, f"http://{NAME}:{port}/"]}

        def transfer() -> int:
            outcome = run.call("palyra.process.run", words)
            check_outcome(outcome)
            return _nanoseconds(str(outcome.output["stdout"]))

        first = run.call("palyra.process.run", words)
        missing = "" if first.success else f"{first.reason}: {first.message} {first.hint}"
        yield Contender(name="palyra strict", run=None if missing else transfer, why_missing=missing)


def _direct(port: int) -> Contender:
    curl = shutil.which("curl")

    def transfer() -> int:
        words = [str(curl), *CURL, f"http://127.0.0.1:{port}/"]
        return _nanoseconds(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    return Contender(name="direct loopback", run=transfer if curl else None, why_missing="" if curl else "no curl")


def _through_srt(port: int) -> Contender:
    """Its variables exempt loopback from the proxy that is the only way out: --noproxy takes that back. On a busy
    machine the command may start before the proxy listens; curl then tries again, and says how long the last try took.
    """
    patient = ("--retry", "9", "--retry-connrefused")
    words = ["curl", *(word if word != "*" else "" for word in CURL), *patient, f"http://127.0.0.1:{port}/"]

    def transfer() -> int:
        return _nanoseconds(srt.run_with_host(words, "127.0.0.1"))

    try:
        transfer()
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:
        return Contender(name="srt", run=None, why_missing=str(error))
    return Contender(name="srt", run=transfer)


def _nanoseconds(said: str) -> int:
    seconds, size = said.split()
    if int(size) != BYTES:
        raise RuntimeError(f"{size} bytes came, {BYTES} were sent")
    return round(float(seconds) * 1e9)


@contextmanager
def _server() -> Iterator[int]:
    """In a process of its own: in ours it would share the interpreter with what is measured."""
    context = multiprocessing.get_context("spawn")
    ports: Queue[int] = context.Queue()
    process = context.Process(target=serve, args=(ports.put,), daemon=True)
    process.start()
    try:
        yield ports.get(timeout=30)
    finally:
        process.terminate()
        process.join()


def serve(tell: Callable[[int], None]) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    tell(listener.getsockname()[1])
    block = memoryview(bytes(1 << 20))
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.recv(65536)
            try:
                peer.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % BYTES)
                for _ in range(BYTES // len(block)):
                    peer.sendall(block)
            except OSError:
                continue
