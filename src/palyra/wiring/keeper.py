"""The keeper's own process: joins a supervisor to the journal of its home and serves the socket. Not a user's command.

Started on demand by `launch/keeper_client`, in a session of its own, with an empty environment, from `/`, with the
home's log as its stdout and stderr. It reaches the network only for processes with granted hosts. It ends by itself
when it keeps nothing; on SIGTERM, SIGHUP or SIGINT it ends what it keeps, records that, and leaves.

As a service of its own (`python -m palyra.wiring.keeper HOME CONFIG stay`, deploy/palyra-keeper.service) it stays when
it keeps nothing: what a service manager ends together with the daemon is then not what its callers left running.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from palyra import loops
from palyra.config.load import Home, git_files, load_config, read_passphrase, user_home
from palyra.errors import ConfigError, StateError
from palyra.guard.look import Looker
from palyra.launch.background import Supervisor
from palyra.launch.keeper import IDLE_S, Keeper
from palyra.launch.keeper_client import prepare_folders
from palyra.launch.keeper_message import LOCK
from palyra.launch.process import ProcessExecutor
from palyra.launch.survivors import kill_strays
from palyra.model.process import StartOrder
from palyra.model.sights import WorkspaceSight
from palyra.state.lock import FileLock
from palyra.state.writer import Writer
from palyra.wiring.clock import SystemClock
from palyra.wiring.cluster import open_state
from palyra.wiring.egress import Egress
from palyra.wiring.host import look_at_host
from palyra.wiring.lasting_records import LastingRecords
from palyra.wiring.owners import ProcessOwners
from palyra.wiring.processes import KeptProcesses

_LOCK_PATIENCE_S = 5.0
_OPEN_FILES = 8192


def main(arguments: Sequence[str]) -> int:
    """Exit 0 also when there is a keeper already; anything else leaves its reason as the last line of the log."""
    os.umask(0o077)
    os.chdir("/")
    root, source, *more = arguments
    stays = more == ["stay"]
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    _allow_open_files()
    if stays:
        Path(root).mkdir(mode=0o700, exist_ok=True)
        prepare_folders(Path(root))
    lock = FileLock(Path(root) / "run" / LOCK)
    if not lock.acquire(_LOCK_PATIENCE_S):
        return int(stays)  # whoever manages services tries again: the other one leaves when it keeps nothing
    try:
        loops.run(_keep(Home(Path(root)), source or None, idle_s=math.inf if stays else IDLE_S))
    except (ConfigError, StateError) as error:
        sys.stderr.write(f"{error.detail}\n")
        return 1
    finally:
        lock.close()
    return 0


async def _keep(home: Home, config_file: str | None, *, idle_s: float) -> None:
    config, _ = load_config(home, config_file)

    def opened() -> Writer:
        return open_state(home.root, config, passphrase=read_passphrase(config))

    writer = opened()
    records = LastingRecords(writer, opened)
    try:
        clock, owners = SystemClock(), ProcessOwners(writer.home.lock)
        host = look_at_host(home, config, owns_process=True)
        looker = Looker(home=user_home(), state_home=str(home.root), git_files=git_files())
        supervisor = Supervisor(
            executor=ProcessExecutor(host, egress=Egress(config)),
            host=host,
            records=records,
            logs=home.root / "logs",
            me=owners.me(),
            now_unix_ms=clock.now_unix_ms,
            appeared=lambda order: looker.appeared(_sight(order)),
        )
        kept = KeptProcesses(writer=writer, keeping=supervisor, logs=home.root / "logs", owners=owners, clock=clock)
        await kept.recover()
        keeper = Keeper(supervisor, home.root / "run", idle_s=idle_s)

        def end() -> None:
            records.hurry()
            keeper.end()

        for number in (
            signal.SIGTERM,
            signal.SIGHUP,
            signal.SIGINT,
        ):  # a session that ends sends the second right after
            asyncio.get_running_loop().add_signal_handler(number, end)
        await keeper.serve()
        await kill_strays()
        if supervisor.failure is not None:
            raise supervisor.failure
    finally:
        records.close()


def _sight(order: StartOrder) -> WorkspaceSight:
    guarded = tuple(os.fsdecode(path) for path in order.guarded)
    return WorkspaceSight(path=os.fsdecode(order.workspace), protected=guarded)


def _allow_open_files() -> None:
    """Each process costs some descriptors; what a program may open is set for it apart."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
