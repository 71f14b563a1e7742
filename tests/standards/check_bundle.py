# mypy: ignore-errors
"""A bundle of DSSE envelopes, checked by securesystemslib and in-toto-attestation alone: no code of Palyra's.

check_bundle.py FILE VKEY — exit 0 and "N statements" when every envelope holds.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

from google.protobuf.json_format import ParseDict
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey


def main(file: str, vkey: str) -> int:
    raw = base64.b64decode(vkey.split("+", 2)[2])[1:]
    count = 0
    for line in Path(file).read_text(encoding="utf-8").splitlines():
        envelope = Envelope.from_dict(json.loads(line))
        (key_id,) = envelope.signatures
        key = SSlibKey(key_id, "ed25519", "ed25519", {"public": raw.hex()})
        envelope.verify([key], 1)
        assert envelope.payload_type == "application/vnd.in-toto+json"
        value = ParseDict(json.loads(envelope.payload), statement_pb2.Statement())
        Statement.copy_from_pb(value).validate()
        count += 1
    sys.stdout.write(f"{count} statements\n")
    return 0 if count else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
