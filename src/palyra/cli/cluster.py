"""`palyra cluster up | status | drain | down`: this machine in a cluster, and the cluster's nodes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say, say_failure
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.cluster.ray_machine import Machine
    from palyra.config.cluster import ClusterConfig
    from palyra.wiring.embedded import Installation

LOOPBACK = "127.0.0.1:6379"


@click.group("cluster", cls=NounGroup)
def command() -> None:
    """Many machines: the state on PostgreSQL, calls on Ray nodes. Needs palyra[cluster]."""


@command.command(
    "up",
    epilog="\b\nExamples:\n  palyra cluster up\n  palyra cluster up --address 10.0.0.1:6379\n"
    "  palyra cluster up --join 10.0.0.1:6379 --address 10.0.0.2",
)
@click.option(
    "--address",
    default=LOOPBACK,
    show_default=True,
    metavar="HOST[:PORT]",
    help="Where this machine listens; HOST for one that joins.",
)
@click.option(
    "--join", default="", metavar="HOST:PORT", help="The head's address. Without it this machine is the head."
)
@with_settings
def up(settings: Settings, address: str, join: str) -> int:
    """Make this machine a node of the cluster; the first one is its head. Slots: [cluster] slots."""
    if find_spec("ray") is None:
        raise ModuleNotFoundError(name="ray")  # said as every missing extra is
    machine, config = _here(settings)
    host = address if ":" in address else f"{address}:0"
    pid = machine.start(address=host, slots=config.slots, join=join)
    if settings.json:
        click.echo(orjson.dumps({"pid": pid, "slots": config.slots, "address": address, "joined": join or None}))
    else:
        say(f"Ray starts on this machine as process {pid}, with {config.slots} slots.")
        say(f"Other machines join with: palyra cluster up --join {join or address} (and a copy of state/ray.token)")
    return 0


@command.command("down", epilog="Example: palyra cluster down")
@with_settings
def down(settings: Settings) -> int:
    """Stop what `up` started on this machine. Its running calls are run again elsewhere."""
    machine, _ = _here(settings)
    stopped = machine.stop()
    if settings.json:
        click.echo(orjson.dumps({"stopped": stopped}))
    else:
        say(
            "This machine has left the cluster."
            if stopped
            else "Nothing that was started from this home is running here."
        )
    return 0


@command.command("status", epilog="Example: palyra cluster status --json")
@with_settings
def status(settings: Settings) -> int:
    """The nodes with what they are running, and the live daemons."""
    from palyra.cli.session import with_installation
    from palyra.config.cluster import STAYS

    async def work(installation: Installation) -> int:
        nodes = await installation.cluster.nodes()
        daemons = installation.cluster.daemons()
        if settings.json:
            click.echo(orjson.dumps({"items": nodes, "daemons": daemons, "stays": STAYS, "next": None}))
            return 0
        for node in nodes:
            draining = ", draining" if node["draining"] else ""
            say(f"{node['node_id']}  {node['busy']} of {node['slots']} slots in use{draining}  key {node['key']}")
        say(f"{len(nodes)} nodes, {len(daemons)} daemons.")
        for kind, why in STAYS.items():
            say(f"Run where the daemon is: {kind}, because {why}.")
        return 0

    return with_installation(settings, work)


@command.command("drain", epilog="Example: palyra cluster drain NODE_ID")
@click.argument("node_id")
@with_settings
def drain(settings: Settings, node_id: str) -> int:
    """Let a node finish its calls and accept no more. Then stop it with `palyra cluster down` on that machine."""
    from palyra.cli.session import with_installation

    async def work(installation: Installation) -> int:
        left = await installation.cluster.drain(node_id, actor=owner_principal())
        if left is None:
            say_failure("NOT_FOUND", f"There is no node {node_id[:80]!r}.", "palyra cluster status")
            return 1
        if settings.json:
            click.echo(orjson.dumps({"node_id": node_id, "running": left}))
        else:
            say(f"{node_id} accepts no more calls; {left} are still running there.")
        return 0

    return with_installation(settings, work)


def _here(settings: Settings) -> tuple[Machine, ClusterConfig]:
    from palyra.cluster.ray_machine import Machine
    from palyra.config.load import find_home, load_config

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    return Machine(state=home.root / "state", run=home.root / "run"), config.cluster
