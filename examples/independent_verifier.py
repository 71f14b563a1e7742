#!/usr/bin/env python3
"""Checks an outcome, a proof or an export of Palyra's: independent_verifier.py FILE VKEY

Written from docs/spec/attestation.md and journal.md; shares no code with Palyra. What does not hold is an exception,
and exit 1. Left out: fractions in an output, weak keys, a proof's receipt, whether entries contradict each other.
"""

import base64
import json
import sys
from functools import reduce
from hashlib import sha256 as sha

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

# fmt: off
SAME = "call_id run_id tool status reason success usage".split()  # in an outcome as attested
OUTCOME = f"{' '.join(SAME)} output attestation receipt message hint budget approval artifacts"  # the last five are not
KINDS = "intent result act export selection proof".split()
INTENT, RESULT, ACT, EXPORT, SELECTION, PROOF = (f"urn:palyra:{kind}:v1" for kind in KINDS)
FIELDS = {EXPORT: "first count frontier", SELECTION: "first count indices proofs", PROOF: "call_id entries receipt"}

def need(holds, what):  # an `assert` is left out by python -O
    if not holds:
        raise ValueError(f"it does not hold that {what}")
def unique(pairs):
    need(type(pairs) is list and len(dict(pairs)) == len(pairs), "no key stands twice, and numbers are whole")
    return dict(pairs)
def load(data):
    return json.loads(data, object_pairs_hook=unique, parse_float=unique, parse_constant=unique)
def exact(value, names):  # these fields, and no others that a reader might take for them
    need(sorted(value) == sorted(names.split()), f"its fields are {names}")
    return value
def canonical(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
def b64(text):
    data = base64.b64decode(text, validate=True)
    need(base64.b64encode(data).decode() == text, "base64 is canonical")
    return data
def parse_key(vkey):
    name, hint, encoded = vkey.split("+", 2)
    kind, *key = b64(encoded)
    need(kind == 1 and sha(f"{name}\n\1".encode() + bytes(key)).hexdigest()[:8] == hint, "the key is Ed25519's")
    return name, bytes.fromhex(hint), bytes(key)

def open_head(note, *vkeys):  # (size, root) of a checkpoint that every one of these keys signed
    text, _, lines = note.rpartition("\n\n")
    (origin, size, root), split = text.split("\n"), [line.split(" ") for line in lines[:-1].split("\n")]
    need({*note.replace("\n", " ").encode()}.isdisjoint([*range(32), 127]), "a note is text in lines")
    need({dash for dash, *_ in split} == {"—"} and len(split) <= 32 and len(note) <= 65536, "its lines are signatures")
    for name, hint, key in map(parse_key, vkeys):
        need((origin, size, lines[-1:]) == (name, str(int(size)), "\n"), "the checkpoint is this log's")
        (signature,) = (b64(data)[4:] for _, whose, data in split if (whose, b64(data)[:4]) == (name, hint))
        Ed25519PublicKey.from_public_bytes(key).verify(signature, f"{text}\n".encode())
    return int(size), b64(root)
def node(left, right):  # RFC 6962
    return sha(b"\x01" + left + right).digest()

def check_entry(body, index):
    said = load(body)
    need(canonical(said) == body and len(body) <= 65536, f"entry {index} is in its only form")
    need(canonical(said["predicate"]["place"]["index"]) == canonical(index), f"entry {index} says so itself")
    return said["predicateType"], said["predicate"]
def check_included(body, index, proof, size, root):  # RFC 9162, section 2.1.3.2
    fn, sn, r = index, size - 1, sha(b"\x00" + body).digest()
    for p in map(b64, proof):
        need(sn, "the proof is no longer than the path")
        r = node(p, r) if fn & 1 or fn == sn else node(r, p)
        while fn == sn and fn and not fn & 1:
            fn, sn = fn >> 1, sn >> 1
        fn, sn = fn >> 1, sn >> 1
    need(0 <= index < size and (sn, r) == (0, root), f"entry {index} is in the tree")
    return check_entry(body, index)
def newest_key(vkey, links):  # from the key that is held, through handovers signed by both, to the one that speaks now
    for link in links:
        details = load(exact(link, "entry proof checkpoint")["entry"])["predicate"]["details"]
        if details["old_vkey"] == vkey:
            size, root = open_head(link["checkpoint"], vkey, details["new_vkey"])
            kind, said = check_included(link["entry"].encode(), size - 1, link["proof"], size, root)
            need((kind, said["act"], details["from_index"]) == (ACT, "key.rotated", size), "it is a handover")
            vkey = details["new_vkey"]
    return vkey

def check_export(header, lines, vkey):
    size, root = open_head(header["checkpoint"], newest_key(vkey, header["keys"]))
    first, count, (*bodies, end, rest) = header["first"], header["count"], lines
    told, end_line = (type(first), type(count), count, end, rest), b'{"end":true,"count":%d}' % len(bodies)
    need(told == (int, int, len(bodies), end_line, b""), "no line is missing, and none is too many")
    if header["type"] == SELECTION:
        shown = header["indices"]
        need((sorted({*shown}), first) == (shown, (shown or [0])[0]), "no entry stands twice, and the first is named")
        for index, body, proof in zip(shown, bodies, header["proofs"], strict=True):
            check_included(body, index, proof, size, root)
        return f"{count} entries, each in the journal of {size}"
    heights = [bit for bit in reversed(range(first.bit_length())) if first >> bit & 1]
    tree = list(zip(heights, map(b64, header["frontier"]), strict=True))
    for index, body in enumerate(bodies, start=first):
        check_entry(body, index)
        tree.append((0, sha(b"\x00" + body).digest()))
        while len(tree) > 1 and tree[-1][0] == tree[-2][0]:  # two subtrees of one height become one
            (height, right), (_, left) = tree.pop(), tree.pop()
            tree.append((height + 1, node(left, right)))
    computed = reduce(lambda right, left: node(left[1], right), tree[-2::-1], tree[-1][1])
    need((first + count, computed) == (size, root), "the entries are those of the signed tree")
    return f"{count} entries, the whole journal from entry {first} on"
def check_proof(proof, vkey):
    size, root = open_head(proof["checkpoint"], newest_key(vkey, proof["keys"]))
    exact(proof["receipt"], "checkpoint consistency")
    entries = (exact(entry, "index body proof") for entry in proof["entries"])
    found = (check_included(e["body"].encode(), e["index"], e["proof"], size, root) for e in entries)
    shown = [(kind, said["call_id"], kind == RESULT and said["opened"]) for kind, said in found]
    intent, result, refusal = ((k, proof["call_id"], o) for k, o in ((INTENT, False), (RESULT, True), (RESULT, False)))
    need(shown in ([intent, result], [intent], [refusal]), "the entries are the call's intent and its result")
    return f"call {proof['call_id']} is in the journal of {size}{': it began' if shown == [intent] else ''}"

def check_outcome(outcome, vkey):
    attested, (_, _, key), output = dict(outcome["attestation"]), parse_key(vkey), outcome["output"]
    envelope, digest, receipt = attested.pop("envelope"), attested["execution_sha256"], outcome["receipt"]
    exact(envelope, "payloadType payload signatures")
    kind, payload, (signature,) = envelope["payloadType"], b64(envelope["payload"]), envelope["signatures"]
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind.encode(), len(payload), payload)
    Ed25519PublicKey.from_public_bytes(key).verify(b64(exact(signature, "keyid sig")["sig"]), signed)
    named = {"subject": [{"name": f"call/{attested['call_id']}", "digest": {"sha256": digest}}], "predicate": attested}
    named |= {"_type": "https://in-toto.io/Statement/v1", "predicateType": "urn:palyra:attestation:v1"}
    need((kind, canonical(named)) == ("application/vnd.in-toto+json", payload), "the fields are the signed ones")
    need(signature["keyid"] == attested["key_id"] == sha(key).hexdigest()[:16], "the key is the one that is named")
    rest = {name: value for name, value in attested.items() if name != "execution_sha256"}
    need(sha(canonical(rest)).hexdigest() == digest, "execution_sha256 is the digest of the fields")
    shown = {name: outcome[name] for name in SAME} | {"exit_code": output.get("exit_code", attested["exit_code"])}
    need(canonical(shown) == canonical({name: attested[name] for name in shown}), "the outcome is the attested one")
    wanted = attested["projected_output_sha256"] or attested["output_sha256"]
    need(sha(canonical(output)).hexdigest() == wanted, "the output is the attested one")
    size = 1 if receipt is None else open_head(exact(receipt, "index tree_size checkpoint")["checkpoint"], vkey)[0]
    place = (0, 1) if receipt is None else (receipt["index"], receipt["tree_size"])
    need({*map(type, place)} == {int} and 0 <= place[0] < place[1] == size, "the receipt is its checkpoint's")
    return f"the outcome of call {attested['call_id']} is attested"

def main(file, vkey):
    with open(file, "rb") as stream:
        first, *lines = stream.read().split(b"\n")
    kind = (value := load(first)).get("type")
    exact(value, f"type {FIELDS[kind]} checkpoint keys" if kind in FIELDS else OUTCOME)
    if kind in (EXPORT, SELECTION):
        return check_export(value, lines, vkey)
    need(lines in ([], [b""]), "there is one line")
    return (check_proof if kind == PROOF else check_outcome)(value, vkey)

if __name__ == "__main__":
    print(main(*sys.argv[1:]))
