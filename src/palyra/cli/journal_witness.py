"""`palyra journal witness add | list` and `palyra journal rotate-key`: evidence outside this home, and a new key.

Both are operator acts: they are journaled with who did them, in the transaction of the change itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from palyra.cli.options import NounGroup, Settings, with_settings
from palyra.cli.say import say_error, say_failure
from palyra.state.person import owner_principal

if TYPE_CHECKING:
    from palyra.state.writer import Writer

FEW_CHANGES = 100


def open_writer(settings: Settings) -> Writer:
    """Of the home's journal, which is there already, or of the cluster's where the configuration says that the state is
    on a server."""
    from palyra.cli.session import find_passphrase
    from palyra.config.load import find_home, load_config
    from palyra.wiring.cluster import open_state

    home = find_home(settings.home)
    config, _ = load_config(home, settings.config)
    if not config.cluster.database and not (home.state / "palyra.db").is_file():
        say_failure("JOURNAL_DOWN", f"There is no installation in {home.root}.", "Name its folder with --home.")
        raise click.exceptions.Exit(1)
    return open_state(home.root, config, passphrase=find_passphrase(settings))


def now_unix_ms() -> int:
    from palyra.wiring.clock import SystemClock

    return SystemClock().now_unix_ms()


@click.group("witness", cls=NounGroup)
def witness() -> None:
    """Places outside this home that remember the journal's heads."""


@witness.command(
    "add",
    epilog="\b\nExamples:\n  palyra journal witness add vault /mnt/other-disk/heads.jsonl\n"
    "  palyra journal witness add team /srv/shared/heads/\n  palyra journal witness add twin ~/other-palyra-home",
)
@click.argument("name")
@click.argument("place")
@with_settings
def add(settings: Settings, name: str, place: str) -> int:
    """Show the journal's heads to a file (appended), a folder, or another home from now on."""
    from palyra.state.witness import add_witness

    if not name.isascii() or not name.isidentifier():
        raise click.UsageError("NAME is a word of letters, digits and underscores.")
    writer = open_writer(settings)
    try:
        at = now_unix_ms()
        shown = add_witness(writer, name, Path(place).expanduser(), actor=owner_principal(), at_unix_ms=at)
    finally:
        writer.close()
    if settings.json:
        click.echo(orjson.dumps({"name": shown.name, "size": shown.size, "refusal": shown.refusal}))
    elif shown.refusal is None:
        click.echo(f"{name} has seen {shown.size} entries.")
    if shown.refusal is not None:
        say_error(f"{name} did not accept the head: {shown.refusal}")
        return 1
    return 0


@witness.command("list", epilog="Example: palyra journal witness list")
@with_settings
def list_witnesses(settings: Settings) -> int:
    """Every witness, where it is and what it has seen. Exit 1 if one does not answer."""
    from palyra.cli.journal_home import reading
    from palyra.cli.tables import say_table

    with reading(settings) as journal:
        found = journal.anchors()
    items = [
        {
            "name": one.name,
            "kind": one.kind,
            "place": one.place,
            "size": None if one.head is None else one.head.size,
            "problem": one.problem,
        }
        for one in found
    ]
    if settings.json:
        click.echo(orjson.dumps({"items": items, "next": None}))
    else:
        rows = [
            (one.name, one.kind, one.place, one.problem or f"{one.head and one.head.size} entries") for one in found
        ]
        say_table(settings, ("NAME", "KIND", "PLACE", "HAS SEEN"), rows, nothing="There are no witnesses.")
    return 1 if any(one.problem for one in found) else 0


@click.command("rotate-key", epilog="Example: palyra journal rotate-key")
@click.option(
    "--lock/--unlock",
    default=None,
    help="Whether the passphrase in journal.passphrase_file encrypts the new key's file (default: as the old one's).",
)
@with_settings
def rotate_key(settings: Settings, lock: bool | None) -> int:
    """Sign with a new key from now on. The old one is destroyed; both sign the head that hands over.

    Not while a daemon serves the home, or while background processes run: how they end could no longer be recorded.
    """
    from palyra.cli.session import find_passphrase
    from palyra.config.load import find_home
    from palyra.daemon.places import take_home
    from palyra.launch.keeper_client import take_keeping
    from palyra.state.keyfile import KEY_FILE, is_locked
    from palyra.state.rotation import changes_left, rotate_key
    from palyra.state.witness import push_heads

    passphrase = find_passphrase(settings)
    if lock and passphrase is None:
        raise click.UsageError("--lock needs journal.passphrase_file in the configuration: what opens the key.")
    writer = open_writer(settings)
    try:
        home = find_home(settings.home).root
        daemonless, keeperless = take_home(home), take_keeping(home)
        at = now_unix_ms()
        chosen = passphrase if (is_locked(writer.home.state / KEY_FILE) if lock is None else lock) else None
        handover = rotate_key(writer, actor=owner_principal(), at_unix_ms=at, passphrase=chosen)
        left = changes_left(writer.home.keys)
        refused = [shown for shown in push_heads(writer, at_unix_ms=at) if shown.refusal is not None]
        keeperless.release()
        daemonless.release()
    finally:
        writer.close()
    if settings.json:
        said = {"entry": handover.index, "old": handover.old.vkey, "new": handover.new.vkey, "changes_left": left}
        click.echo(orjson.dumps(said))
    else:
        click.echo(f"entry {handover.index} hands the journal over\nold key: {handover.old.vkey}")
        click.echo(f"new key: {handover.new.vkey}")
    if left <= FEW_CHANGES:
        click.echo(
            f"palyra: This journal's key can be changed {left} more times, then another home must begin.", err=True
        )
    for shown in refused:
        say_error(f"{shown.name} did not accept the head: {shown.refusal}")
    return 1 if refused else 0
