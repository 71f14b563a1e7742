"""Which key speaks for a journal at which size: a first one, and every handover to a next.

Rules: a handover is an entry that names both keys, alone in its commit, under a checkpoint that both of them signed;
from the next entry on the old key signs nothing. A checkpoint is therefore opened with the key of its size, and a
retired key that somebody stole signs neither a later head nor another end of its own time unnoticed.

`follow` leads from a key that somebody holds to the newest one, with nothing but what a file brings along; an older
head in the same file is opened by the keys before (`follow_both_ways`).
Not here: making keys (state/keyfile), rotating them (state/rotation).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from palyra.canon import Json
from palyra.errors import TrustError
from palyra.journal.acts import ActKind
from palyra.journal.chain import ACT
from palyra.journal.checkpoint import parse_checkpoint
from palyra.journal.entry import EntryView, parse_entry
from palyra.journal.merkle import leaf_hash, verify_inclusion
from palyra.model.record import Checkpoint
from palyra.signing import NoteVerifier, open_note, parse_vkey
from palyra.values import dataclass

MAX_HANDOVERS = 1000
MAX_PROOF_HASHES = 64


@dataclass(frozen=True, slots=True)
class Handover:
    index: int
    """Of the entry that tells of it."""
    old: NoteVerifier
    new: NoteVerifier


@dataclass(frozen=True, slots=True)
class Keys:
    newest: NoteVerifier
    handovers: tuple[Handover, ...] = ()

    def __post_init__(self) -> None:
        last, speaker = -1, self.handovers[0].old if self.handovers else self.newest
        for handover in self.handovers:
            if handover.index <= last or handover.old != speaker or handover.new.name != speaker.name:
                raise TrustError("The journal's keys do not form a chain.")
            last, speaker = handover.index, handover.new
        if speaker != self.newest:
            raise TrustError("The journal's keys do not lead to its current one.")

    def at(self, size: int) -> tuple[NoteVerifier, ...]:
        """Who must have signed a head of this size; two for the one that hands over."""
        for handover in self.handovers:
            if size <= handover.index:
                return (handover.old,)
            if size == handover.index + 1:
                return (handover.old, handover.new)
        return (self.newest,)

    def open(self, note: str) -> Checkpoint:
        """A head of this journal, signed by whoever spoke for it at that size."""
        checkpoint = parse_checkpoint(note)
        required = self.at(checkpoint.size)
        _, signed = open_note(note, required)
        if len(signed) != len(required):
            raise TrustError("The checkpoint of a key change is not signed by both keys.")
        if checkpoint.origin != self.newest.name:
            raise TrustError(f"The checkpoint belongs to another log, {checkpoint.origin[:80]!r}.")
        return checkpoint

    def of_entry(self, index: int) -> NoteVerifier:
        """Whose attestations belong to an entry at this place."""
        return next((handover.old for handover in self.handovers if index <= handover.index), self.newest)


def handover_of(view: EntryView) -> Handover | None:
    """The handover an entry tells of; `TrustError` when it tells of one that cannot be."""
    said = view.predicate
    if view.kind != ACT or said.get("act") != ActKind.KEY_ROTATED.value:
        return None
    details = said.get("details")
    if not isinstance(details, Mapping) or details.get("from_index") != view.index + 1:
        raise TrustError(f"Entry {view.index} records a key change at another index.")
    old, new = (parse_vkey(str(details.get(name))) for name in ("old_vkey", "new_vkey"))
    if old == new or old.name != new.name:
        raise TrustError(f"Entry {view.index} does not hand the journal over to a new key of the same name.")
    return Handover(view.index, old, new)


def follow(held: NoteVerifier, links: object) -> Keys:
    """From the key that is held through the handovers that a file brings along, each proven, to the newest."""
    return _follow(held, _read_links(links))


def follow_both_ways(held: NoteVerifier, links: object) -> tuple[Keys, Keys]:
    """The same; and with those that led to the key that is held, for heads that are older than it. The first of these
    keys may have been stolen since: what they signed is to be believed only with a consistency proof to a head that the
    key that is held, or a later one, signed."""
    handovers = _read_links(links)
    keys, led, speaker = _follow(held, handovers), [], held
    for handover in reversed(handovers):
        if handover.new == speaker:
            led.append(handover)
            speaker = handover.old
    return keys, Keys(keys.newest, (*reversed(led), *keys.handovers))


def _read_links(links: object) -> list[Handover]:
    if not isinstance(links, Sequence) or isinstance(links, str) or len(links) > MAX_HANDOVERS:
        raise TrustError("The list of handovers is malformed.")
    return [_read_link(link) for link in links]


def _follow(held: NoteVerifier, handovers: Sequence[Handover]) -> Keys:
    newest, following = held, []
    for handover in handovers:
        if handover.old == newest:
            newest = handover.new
            following.append(handover)
        elif following:
            raise TrustError("The journal's keys do not form a chain.")
    return Keys(newest, tuple(following))


def write_link(body: bytes, proof: Sequence[bytes], note: str) -> dict[str, Json]:
    return {"entry": body.decode(), "proof": write_hashes(proof), "checkpoint": note}


def _read_link(link: object) -> Handover:
    if not isinstance(link, Mapping) or set(link) != {"entry", "proof", "checkpoint"}:
        raise TrustError("A handover does not have exactly entry, proof and checkpoint.")
    body, note = link["entry"], link["checkpoint"]
    if not isinstance(body, str) or not isinstance(note, str):
        raise TrustError("A handover's fields have the wrong types.")
    try:
        data = body.encode()
        handover = handover_of(parse_entry(data))
    except ValueError as error:
        raise TrustError(f"A handover's entry cannot be read: {error}.") from error
    if handover is None:
        raise TrustError("A handover's entry records something else.")
    head = parse_checkpoint(note)
    _, signed = open_note(note, (handover.old, handover.new))
    if len(signed) != 2 or head.origin != handover.new.name or head.size != handover.index + 1:
        raise TrustError("A handover is not under a checkpoint that both keys signed.")
    if not verify_inclusion(leaf_hash(data), handover.index, head.size, read_hashes(link["proof"]), head.root):
        raise TrustError("A handover's entry is not in the tree that both keys signed.")
    return handover


def write_hashes(hashes: Sequence[bytes]) -> list[str]:
    return [base64.b64encode(one).decode("ascii") for one in hashes]


def read_hashes(value: Any) -> tuple[bytes, ...]:
    """Hashes of a proof, in the one spelling there is."""
    if not isinstance(value, list) or len(value) > MAX_PROOF_HASHES:
        raise TrustError("A proof is a list of at most 64 hashes.")
    found = []
    for text in value:
        try:
            one = base64.b64decode(text, validate=True) if isinstance(text, str) and text.isascii() else b""
        except (binascii.Error, ValueError) as error:
            raise TrustError("A proof's hash is not base64.") from error
        if len(one) != 32 or base64.b64encode(one).decode("ascii") != text:
            raise TrustError("A proof's hash is not 32 bytes in canonical base64.")
        found.append(one)
    return tuple(found)
