"""Proof of one call: its entries, their way to a signed head, and that head's way from the call's own receipt.

A proof is one JSON value that needs nothing but a public key: no database, no other entry, no network. It shows that
the entries are leaves of the tree this installation signed, and that the head of the call's receipt is a beginning of
that tree. It does not show what else the tree holds. Whoever also has the outcome finds its `execution_sha256` in the
result entry.

Not here: the rows (journal/tree), reading a file (cli/verify).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palyra.canon import Json
from palyra.errors import TrustError
from palyra.journal.audit import Finding
from palyra.journal.chain import INTENT, RESULT
from palyra.journal.entry import EntryView, parse_entry
from palyra.journal.keys import Keys, follow_both_ways, read_hashes, write_hashes
from palyra.journal.merkle import leaf_hash, verify_consistency, verify_inclusion
from palyra.journal.tree import Tree, signed_body
from palyra.model.record import Checkpoint, Entry
from palyra.signing import NoteVerifier

PROOF_TYPE = "urn:palyra:proof:v1"
FIELDS = frozenset({"type", "call_id", "entries", "checkpoint", "receipt", "keys"})


def make_proof(call_id: str, entries: Sequence[Entry], head: Checkpoint, *, tree: Tree, keys: Keys) -> dict[str, Json]:
    """`entries` are the call's, in order; `head` is the newest signed one."""
    receipt = keys.open(tree.note(entries[-1].index + 1))
    return {
        "type": PROOF_TYPE,
        "call_id": call_id,
        "entries": [
            {
                "index": entry.index,
                "body": signed_body(entry).decode(),
                "proof": write_hashes(tree.inclusion(entry.index, head)),
            }
            for entry in entries
        ],
        "checkpoint": head.note,
        "receipt": {"checkpoint": receipt.note, "consistency": write_hashes(tree.consistency(receipt, head))},
        "keys": tree.links(keys),
    }


def check_proof(proof: Mapping[str, Any], held: NoteVerifier) -> tuple[Finding, ...]:
    """Everything about a proof that does not hold; empty when it does."""
    try:
        if set(proof) != FIELDS or proof["type"] != PROOF_TYPE:
            raise TrustError("It does not have exactly the fields of a proof.")
        keys, all_keys = follow_both_ways(held, proof["keys"])
        head = keys.open(_text(proof["checkpoint"]))
        views = [_check_entry(item, head) for item in _list(proof["entries"])]
        _check_call(proof["call_id"], views)
        _check_receipt(proof["receipt"], views[-1].index, head, all_keys)
    except TrustError as error:
        return (Finding("PROOF", None, str(error)),)
    return ()


def _check_entry(item: object, head: Checkpoint) -> EntryView:
    if not isinstance(item, Mapping) or set(item) != {"index", "body", "proof"} or type(item["index"]) is not int:
        raise TrustError("An entry does not have exactly index, body and proof.")
    return check_included(_text(item["body"]).encode(), item["index"], read_hashes(item["proof"]), head)


def check_included(body: bytes, index: int, proof: Sequence[bytes], head: Checkpoint) -> EntryView:
    """The entry, read strictly, a leaf of the signed tree at the place it names itself."""
    if not verify_inclusion(leaf_hash(body), index, head.size, proof, head.root):
        raise TrustError(f"Entry {index} is not in the signed tree at that index.")
    try:
        view = parse_entry(body)
    except ValueError as error:
        raise TrustError(f"Entry {index} cannot be read: {error}.") from error
    if view.index != index:
        raise TrustError(f"Entry {index} says it is entry {view.index}.")
    return view


def _check_call(call_id: object, views: Sequence[EntryView]) -> None:
    kinds = [view.kind for view in views]
    if kinds not in ([INTENT], [RESULT], [INTENT, RESULT]) or any(view.call_id != call_id for view in views):
        raise TrustError("The entries are not the intent and the result of one call.")
    if (kinds[-1] == RESULT) and (views[-1].predicate.get("opened") is True) != (len(kinds) == 2):
        raise TrustError("The result is shown without its intent, or with one it never had.")
    if views[0].index > views[-1].index:
        raise TrustError("The result comes before its intent.")


def _check_receipt(receipt: object, last: int, head: Checkpoint, keys: Keys) -> None:
    if not isinstance(receipt, Mapping) or set(receipt) != {"checkpoint", "consistency"}:
        raise TrustError("The receipt does not have exactly checkpoint and consistency.")
    old = keys.open(_text(receipt["checkpoint"]))
    if not last < old.size <= head.size:
        raise TrustError("The receipt's checkpoint does not cover the call, or is newer than the head.")
    if not verify_consistency(old.size, head.size, old.root, head.root, proof=read_hashes(receipt["consistency"])):
        raise TrustError("The head does not begin with the tree of the call's receipt: the journal was forked.")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TrustError("A text field is not text.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TrustError("A field is not valid Unicode.") from error
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list) or not 0 < len(value) <= 2:
        raise TrustError("A proof shows one or two entries.")
    return value
