"""Whose signatures `palyra verify` takes: the key that was given, else this installation's, newest and retired ones.

Rules: the reader is told which key it was; what a retired key signed counts only where the journal itself, under its
newest key, has the same execution. Not here: what is checked with the key (cli/verify).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.options import Settings
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.journal.keys import Keys
    from palyra.signing import NoteVerifier


@dataclass(slots=True)
class Trust:
    keys: Keys
    named: str
    """How the key is named to the reader."""
    settings: Settings | None = None
    """Where the installation's own journal can be asked."""

    def choose(self, key_id: object) -> NoteVerifier:
        """Which of the installation's keys an attestation names; the newest when it names none of them."""
        earlier = (handover.old for handover in self.keys.handovers)
        chosen = next((verifier for verifier in earlier if verifier.key.key_id == key_id), None)
        if chosen is not None:
            self.named = f"a retired key of this installation ({key_id})"
        return chosen or self.keys.newest

    def earlier(self) -> str | None:
        """What to do with a file from before a change of keys: nothing in it leads to the newest one."""
        if not self.keys.handovers:
            return None
        key = self.keys.handovers[-1].old.vkey
        return f"A file from before the last change of keys is checked with the key of its time: --key '{key}'"

    def holds(self, attested: Mapping[str, Any], receipt: Mapping[str, Any] | None) -> bool:
        """Whether the journal itself has this execution where its receipt says, under a head of its own: a retired key
        may have been stolen since, and whoever has it signs attestations and receipts."""
        from palyra.cli.journal_home import reading
        from palyra.errors import StateError, TrustError
        from palyra.journal.entry import parse_entry
        from palyra.journal.tree import signed_body

        assert self.settings is not None
        places: set[int] = set()
        with reading(self.settings) as journal:
            head = journal.head()
            for entry in journal.lookup.by_call(str(attested.get("call_id"))):
                # Who stole the key may also have written the row: only what the newest key signed for counts.
                with contextlib.suppress(StateError):
                    journal.tree.inclusion(entry.index, head)
                    said = parse_entry(signed_body(entry)).predicate
                    places |= {entry.index} if said.get("execution_sha256") == attested["execution_sha256"] else set()
            if not places or receipt is None:
                return bool(places)
            with contextlib.suppress(StateError, TrustError):
                seen = journal.home.keys.open(receipt["checkpoint"])
                if seen.size <= head.size and journal.tree.frontier(seen.size).root() == seen.root:
                    return receipt["index"] in places
        return False


def check_place(settings: Settings, attested: Mapping[str, Any], receipt: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What the installation's own journal contradicts in a receipt that is sound by itself: a head that is older than
    the receipt, another history, another call at its index. An entry that retention removed contradicts nothing."""
    from palyra.cli.journal_home import reading
    from palyra.errors import StateError, TrustError
    from palyra.journal.entry import parse_entry
    from palyra.journal.tree import signed_body

    index, size = receipt["index"], receipt["tree_size"]
    with reading(settings) as journal:
        entry = None
        head = journal.head() if journal.lookup.checkpoint() is not None else None
        if head is None or head.size < size:
            return [("SHORTER", _shorter(0 if head is None else head.size, size))]
        try:
            if journal.tree.frontier(size).root() != journal.home.keys.open(receipt["checkpoint"]).root:
                return [("HISTORY", f"The first {size} entries of the journal here are not those of the receipt.")]
            with contextlib.suppress(StateError):
                entry = journal.lookup.entry(index)
            if entry is None:
                return []
            journal.tree.inclusion(index, head)
            said = parse_entry(signed_body(entry)).predicate
        except (StateError, TrustError, ValueError):
            return [("JOURNAL", f"Entry {index} of the journal here cannot be checked. Run: palyra journal verify")]
    if (said.get("call_id"), said.get("execution_sha256")) == (attested["call_id"], attested["execution_sha256"]):
        return []
    return [("INDEX", f"Entry {index} of the journal, which the receipt names, is not this call's result.")]


def _shorter(here: int, size: int) -> str:
    return (
        f"The journal here has {here} entries, and the receipt was given for {size}: entries were removed, or this is "
        "an older copy. Run: palyra journal verify --known FILE"
    )


def find_keys(settings: Settings, vkey: str | None) -> Trust:
    """The key given, else this installation's own; and how to name it to the reader."""
    from palyra.journal.keys import Keys
    from palyra.signing import parse_vkey

    if vkey is not None:
        verifier = parse_vkey(vkey)
        return Trust(Keys(verifier), f"the key given ({verifier.key.key_id})")
    from palyra.config.load import find_home
    from palyra.state.db import read_home

    root = find_home(settings.home).root
    if not (root / "state").is_dir():
        raise click.UsageError(f"There is no installation in {root}; name the key that signed it with --key VKEY.")
    home = read_home(root)
    named = f"this installation's key ({home.verifier.key.key_id}) in {home.root}"
    return Trust(home.keys, named, settings)
