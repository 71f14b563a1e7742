"""Handing the journal over to a new key: one entry that names both, under one checkpoint that both sign.

Order: 1 the new key's file, durable, beside the old one · 2 one commit: the entry, the database's name of the key, a
checkpoint signed by both · 3 the new file takes the old one's place, and the old private key is gone. A crash between 2
and 3 is mended at the next start (state/identity), one before 2 leaves a file that the next rotation replaces. All of
it alone: the file of a rotation that comes in between would take the place of the key that the journal has.

Whoever holds the old public key is led to the new one by that entry; a thief of the old private key can sign nothing
that comes after it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace

from palyra.errors import StateError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.journal.keys import MAX_HANDOVERS, Handover, Keys
from palyra.signing import NoteSigner, NoteVerifier, SigningKey
from palyra.state.identity import NEXT_KEY_FILE, alone_with_keys
from palyra.state.keyfile import KEY_FILE, create_key, sync_folder
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer


def rotate_key(writer: Writer, *, actor: str, at_unix_ms: int, passphrase: bytes | None = None) -> Handover:
    """`passphrase` locks the new key's file; None leaves it open to its owner."""
    with alone_with_keys(writer.home.state):
        return _rotate(writer, actor=actor, at_unix_ms=at_unix_ms, passphrase=passphrase)


def _rotate(writer: Writer, *, actor: str, at_unix_ms: int, passphrase: bytes | None) -> Handover:
    if not changes_left(writer.home.keys):
        raise StateError(
            f"This journal's key was changed {MAX_HANDOVERS} times; no proof or export can show another change.",
            "Begin another home (palyra --home DIR init); this one and its evidence go on verifying.",
        )
    state = writer.home.state
    following = state / NEXT_KEY_FILE
    _check_newest(writer)
    with contextlib.suppress(FileNotFoundError):
        following.unlink()
    try:
        key = create_key(following, passphrase=passphrase)  # 1
    except OSError as error:
        raise StateError(f"The new key could not be written: {error.strerror}.") from error
    handover, _ = writer.commit_now(_work(writer.home.keys, key, actor=actor, at_unix_ms=at_unix_ms))  # 2
    keys = Keys(handover.new, (*writer.home.keys.handovers, handover))
    writer.speak_as(replace(writer.home, key=key, keys=keys))
    with contextlib.suppress(FileNotFoundError):  # a start of an older version put it there
        os.replace(following, state / KEY_FILE)  # 3
    sync_folder(state)
    return handover


def changes_left(keys: Keys) -> int:
    """A proof and an export bring every change along, and whoever verifies one reads no more of them."""
    return max(MAX_HANDOVERS - len(keys.handovers), 0)


def _check_newest(writer: Writer) -> None:
    """Before the next key's file is replaced: where another process handed over and died before 3, that file is the
    only copy of the key that the journal has now, and nobody could write to this home any more."""
    rows = writer.rows("SELECT value FROM meta WHERE name = 'vkey'")
    if rows != [(writer.home.keys.newest.vkey,)]:
        raise StateError("Another process gave the journal a new key.", "Start again.")


def _work(keys: Keys, key: SigningKey, *, actor: str, at_unix_ms: int) -> Callable[[Transaction], Handover]:
    old, new = keys.newest, NoteVerifier(keys.newest.name, key.public)

    def work(tx: Transaction) -> Handover:
        index = tx.frontier.size
        act = Act(
            kind=ActKind.KEY_ROTATED,
            actor=actor,
            subject=f"key/{new.key.key_id}",
            details={"old_vkey": old.vkey, "new_vkey": new.vkey, "from_index": index + 1},
        )
        record_act(tx, act, at_unix_ms=at_unix_ms)
        tx.execute("INSERT INTO keys VALUES (?, ?)", (index, new.vkey))
        tx.execute("UPDATE meta SET value = ? WHERE name = 'vkey'", (new.vkey,))
        tx.successor = NoteSigner(new.name, key)
        return Handover(index, old, new)

    return work
