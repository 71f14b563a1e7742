"""A home's journal as it lies there, for commands that only read: one snapshot, nothing created, nothing changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.options import Settings
from palyra.cli.say import say_failure
from palyra.errors import StateError
from palyra.journal.chain import RESULT
from palyra.journal.entry import parse_entry
from palyra.journal.lookup import Lookup, Rows
from palyra.journal.tree import Tree
from palyra.model.call import is_ulid
from palyra.model.record import Checkpoint, Entry
from palyra.state.anchors import Anchor, anchors
from palyra.state.connection import snapshot
from palyra.state.db import ReadHome, read_home
from palyra.state.rows import JournalRows
from palyra.state.sealed import SealedBodies
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.config.cluster import ClusterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    home: ReadHome
    lookup: Lookup
    tree: Tree
    rows: JournalRows
    query: Rows

    def anchors(self) -> tuple[Anchor, ...]:
        """What witnesses hold of this journal, as it lies there now."""
        return tuple(anchors(self.query, self.home.verifier.name))

    def head(self) -> Checkpoint:
        """The newest head, its signature checked: nothing is shown or proven under another one."""
        from palyra.wiring.journal_desk import checked_head

        newest = self.lookup.checkpoint()
        if newest is None:
            raise StateError("The journal is empty.")
        return checked_head(newest, self.home.keys.open)


def entries_of(journal: Reading, call_id: str) -> tuple[Entry, ...]:
    """A call's entries. One that waits for a person is no finished call and has no row yet: it is looked for itself.

    That reads every entry, which only who holds the home can ask for.
    """
    found = journal.lookup.by_call(call_id)
    if found or not is_ulid(call_id):
        return found
    said = f'"call_id":"{call_id}"'.encode()
    return tuple(entry for entry in journal.rows.entries() if said in entry.body and _is_of(entry, call_id))


def _is_of(entry: Entry, call_id: str) -> bool:
    """An act may name the call too, in what it is about."""
    try:
        view = parse_entry(entry.body)
    except ValueError:
        return False
    return view.kind == RESULT and view.call_id == call_id


@contextmanager
def readable(settings: Settings) -> Iterator[ReadHome]:
    """The home without configuration and policies. What is wrong with it is exit 1."""
    from palyra.config.load import find_home

    try:
        yield read_home(find_home(settings.home).root)
    except StateError as error:
        say_failure("JOURNAL_DOWN", error.detail, error.hint)
        raise click.exceptions.Exit(1) from error


@contextmanager
def reading(settings: Settings) -> Iterator[Reading]:
    """The home's journal, or the cluster's where the configuration says that the state is on a server."""
    if (server := cluster_database(settings)) is not None:
        with _on_server(*server) as journal:
            yield journal
        return
    with readable(settings) as home, snapshot(home.database) as connection:

        def rows(sql: str, parameters: tuple[object, ...]) -> list[tuple[Any, ...]]:
            try:
                return connection.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise StateError(f"The database cannot be read: {error}.", "Run: palyra journal verify") from error

        yield Reading(
            home=home,
            lookup=Lookup(rows, home.verifier, SealedBodies(rows, home.segments).body),
            tree=Tree(rows),
            rows=JournalRows(connection, home.segments),
            query=rows,
        )


@contextmanager
def _on_server(root: Path, cluster: ClusterConfig) -> Iterator[Reading]:
    from palyra.cluster import verifying

    try:
        with verifying.snapshot(cluster.database) as (view, connection):
            home = verifying.server_home(root, connection, cluster.segments)
            yield Reading(
                home=home,
                lookup=Lookup(view.rows, home.verifier, SealedBodies(view.rows, home.segments).body),
                tree=Tree(view.rows),
                rows=JournalRows(view, home.segments),
                query=view.rows,
            )
    except StateError as error:
        say_failure("JOURNAL_DOWN", error.detail, error.hint)
        raise click.exceptions.Exit(1) from error


def cluster_database(settings: Settings) -> tuple[Path, ClusterConfig] | None:
    """(this daemon's folder, its settings), where the configuration says that the state is on one."""
    from palyra.config.load import find_home, load_config
    from palyra.errors import ConfigError

    home = find_home(settings.home)
    try:
        config, _ = load_config(home, settings.config)
    except ConfigError:  # then the home is read as it lies there
        return None
    return (home.root, config.cluster) if config.cluster.database else None
