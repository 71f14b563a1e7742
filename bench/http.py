"""`POST /v1/calls` of palyra.echo beside a bare Starlette echo: what deciding, signing and journaling cost a server.

Measured is the processor time of the server's process for one request, as the kernel counts it, not the time a client
waits: a durable write waits for the disk, and that is another row's subject. Both servers read and validate the same
body the same way, from as many agents at once, each on a kept connection.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.harness import Aim, Contender, Row
from bench.installation import Ground

PROJECT = Path(__file__).parents[1]
"""Where `-m bench…` finds the peer: `palyra bench` is typed in any folder."""
AGENTS = 16
"""Connections at once."""
EACH = 6
"""Requests of each, in one round."""
WARM_UP_ROUNDS = 8
BODY = json.dumps({"tool": "palyra.echo", "input": {"hello": "world", "numbers": [1, 2, 3]}}).encode()


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    with ExitStack() as stack:
        ours, bare = stack.enter_context(daemon(ground)), stack.enter_context(echo())
        yield Row(
            name="http",
            title="POST /v1/calls of palyra.echo: processor time of the server for one request",
            note="Ours checks the token, decides by Cedar, spends the budget, writes a durable intent and a durable "
            "result and signs; the peer is a bare Starlette echo with the same validation under the same server.",
            contenders=(ours, bare),
            aims=(Aim(peer="bare Starlette echo", at_most=3.0),),
        )


def cpu_ns(pid: int) -> int:
    """Of all threads of a process, as the scheduler counted it."""
    tasks = Path(f"/proc/{pid}/task")
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir())


def contender(stack: ExitStack, name: str, pid: int, port: int, headers: dict[str, str]) -> Contender:
    lines = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(AGENTS)]
    pool = stack.enter_context(ThreadPoolExecutor(AGENTS))

    def ask(line: http.client.HTTPConnection) -> None:
        for _ in range(EACH):
            line.request("POST", "/v1/calls", body=BODY, headers=headers)
            assert json.loads(line.getresponse().read())["output"]["hello"] == "world"

    def run() -> int:
        before = cpu_ns(pid)
        list(pool.map(ask, lines))
        return (cpu_ns(pid) - before) // (AGENTS * EACH)

    for _ in range(WARM_UP_ROUNDS):
        run()
    return Contender(name=name, run=run)


@contextmanager
def daemon(ground: Ground) -> Iterator[Contender]:
    with (ground.home / "palyra.toml").open("a", encoding="utf-8") as config:
        config.write("[daemon]\nidle_timeout_ms = 600000\n")
    palyra = (sys.executable, "-m", "palyra", "--home", str(ground.home))
    made = subprocess.run([*palyra, "token", "create", "--principal", "agent:bench"], capture_output=True, check=True)
    words = [*palyra, "--json", "--quiet", "serve", "--port", "0", "--socket", str(ground.workspace / "s")]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            port = int(json.loads(process.stdout.readline())["listening"][0].rsplit(":", 1)[1])
            headers = {"Authorization": f"Bearer {made.stdout.decode().strip()}"}
            with ExitStack() as stack:
                yield contender(stack, "palyra daemon", process.pid, port, headers)
        finally:
            process.terminate()


@contextmanager
def echo() -> Iterator[Contender]:
    words = [sys.executable, "-m", "bench.http_echo_worker"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        with ExitStack() as stack:
            yield contender(stack, "bare Starlette echo", process.pid, int(process.stdout.readline()), {})
        process.stdin.close()
