#!/usr/bin/env python3
"""Checks an outcome, a proof or an export of Palyra's: independent_verifier.py FILE VKEY

Written from docs/spec/attestation.md and docs/spec/journal.md; it shares no code with Palyra and needs the standard
library and an Ed25519 signature check. What does not hold is an exception, and exit 1.
"""

import base64
import hashlib
import json
import sys

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

SAME = "call_id run_id tool status reason success usage".split()


def sha256(data):
    return hashlib.sha256(data).digest()


def b64(text):
    data = base64.b64decode(text, validate=True)
    assert base64.b64encode(data).decode() == text, "base64 is canonical"
    return data


def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_key(vkey):
    name, hint, encoded = vkey.split("+", 2)
    kind_and_key = b64(encoded)
    assert kind_and_key[0] == 1 and sha256(name.encode() + b"\n" + kind_and_key)[:4].hex() == hint, "the key holds"
    return name, bytes.fromhex(hint), Ed25519PublicKey.from_public_bytes(kind_and_key[1:])


def open_head(note, *vkeys):
    """(size, root) of a checkpoint that every one of these keys signed."""
    text, _, lines = note.rpartition("\n\n")
    origin, size, root = text.split("\n")
    signed = {(name, b64(data)[:4]): b64(data)[4:] for _, name, data in (x.split(" ") for x in lines[:-1].split("\n"))}
    for name, hint, key in map(parse_key, vkeys):
        assert (origin, size) == (name, str(int(size))), "the checkpoint is this log's"
        key.verify(signed[name, hint], (text + "\n").encode())
    return int(size), b64(root)


def node(left, right):
    return sha256(b"\x01" + left + right)


def check_entry(body, index):
    said = json.loads(body)
    assert canonical(said) == body and len(body) <= 65536, f"entry {index} is in its only form"
    assert said["predicate"]["place"]["index"] == index, f"entry {index} says so itself"
    return said["predicate"]


def check_included(body, index, proof, size, root):
    """RFC 9162, section 2.1.3.2."""
    fn, sn, r = index, size - 1, sha256(b"\x00" + body)
    for p in map(b64, proof):
        assert sn, "the proof is no longer than the path"
        r = node(p, r) if fn & 1 or fn == sn else node(r, p)
        while fn == sn and fn and not fn & 1:
            fn, sn = fn >> 1, sn >> 1
        fn, sn = fn >> 1, sn >> 1
    assert 0 <= index < size and (sn, r) == (0, root), f"entry {index} is in the tree"
    return check_entry(body, index)


def newest_key(vkey, links):
    """From the key that is held through every handover, signed by both keys, to the one that speaks now."""
    for link in links:
        details = json.loads(link["entry"])["predicate"]["details"]
        if details["old_vkey"] == vkey:
            size, root = open_head(link["checkpoint"], vkey, details["new_vkey"])
            assert size == details["from_index"], "a handover is alone in its commit"
            check_included(link["entry"].encode(), size - 1, link["proof"], size, root)
            vkey = details["new_vkey"]
    return vkey


def check_export(header, bodies, vkey):
    size, root = open_head(header["checkpoint"], newest_key(vkey, header["keys"]))
    first, count, end = header["first"], header["count"], json.loads(bodies.pop())
    assert (end, len(bodies)) == ({"end": True, "count": count}, count), "no line is missing"
    if "proofs" in header:
        for index, body, proof in zip(header["indices"], bodies, header["proofs"], strict=True):
            check_included(body, index, proof, size, root)
        return f"{count} entries, each in the journal of {size}"
    heights = [bit for bit in reversed(range(first.bit_length())) if first >> bit & 1]
    tree = list(zip(heights, map(b64, header["frontier"]), strict=True))
    for index, body in enumerate(bodies, start=first):
        check_entry(body, index)
        tree.append((0, sha256(b"\x00" + body)))
        while len(tree) > 1 and tree[-1][0] == tree[-2][0]:  # two subtrees of one height become one
            (height, right), (_, left) = tree.pop(), tree.pop()
            tree.append((height + 1, node(left, right)))
    computed = tree.pop()[1]
    while tree:
        computed = node(tree.pop()[1], computed)
    assert (first + count, computed) == (size, root), "the entries are those of the signed tree"
    return f"{count} entries, the whole journal from entry {first} on"


def check_proof(proof, vkey):
    size, root = open_head(proof["checkpoint"], newest_key(vkey, proof["keys"]))
    for entry in proof["entries"]:
        said = check_included(entry["body"].encode(), entry["index"], entry["proof"], size, root)
        assert said["call_id"] == proof["call_id"], "the entries are of one call"
    return f"call {proof['call_id']} is in the journal of {size}"


def check_outcome(outcome, vkey):
    attested = dict(outcome["attestation"])
    envelope, key = attested.pop("envelope"), parse_key(vkey)[2]
    kind, payload = envelope["payloadType"], b64(envelope["payload"])
    (signature,) = envelope["signatures"]
    key.verify(b64(signature["sig"]), b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload))
    digest, named = attested["execution_sha256"], {"_type": "https://in-toto.io/Statement/v1"}
    subject = {"name": f"call/{attested['call_id']}", "digest": {"sha256": digest}}
    named |= {"subject": [subject], "predicateType": "urn:palyra:attestation:v1", "predicate": attested}
    assert (kind, canonical(named)) == ("application/vnd.in-toto+json", payload), "the fields are the signed ones"
    rest = {name: value for name, value in attested.items() if name != "execution_sha256"}
    assert sha256(canonical(rest)).hex() == digest, "execution_sha256 is the digest of the fields"
    assert all(outcome[name] == attested[name] for name in SAME), "the outcome is the attested one"
    wanted = attested["projected_output_sha256"] or attested["output_sha256"]
    assert sha256(canonical(outcome["output"])).hex() == wanted, "the output is the attested one"
    assert outcome["receipt"] is None or open_head(outcome["receipt"]["checkpoint"], vkey), "the receipt holds"
    return f"the outcome of call {attested['call_id']} is attested"


def main(file, vkey):
    with open(file, "rb") as stream:
        lines = stream.read().splitlines()
    value = json.loads(lines[0])
    if value.get("type") in ("urn:palyra:export:v1", "urn:palyra:selection:v1"):
        return check_export(value, lines[1:], vkey)
    return (check_proof if value.get("type") == "urn:palyra:proof:v1" else check_outcome)(value, vkey)


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
