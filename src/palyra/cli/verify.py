"""`palyra verify FILE`: an outcome, an attestation, a proof or an export, offline, with nothing but a public key.

Rules: what is in the file is told apart by its own first bytes and believed in nothing else; without `--key` the key
is this installation's, and the answer says which key it was. A file that no Palyra wrote (keys twice, nested deeper
than an outcome can be, too large) does not verify, and costs no more than its length to say so.

Not here: the checks themselves (attest, journal/proof, journal/export, journal/tiles).
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_failure
from palyra.late import late
from palyra.values import dataclass

if TYPE_CHECKING:
    from palyra.journal.keys import Keys
    from palyra.signing import NoteVerifier

MAX_FILE_BYTES = 256 << 20
"""Of one JSON value; an export is read line by line and may be larger."""
MAX_LINE_BYTES = 16 << 20
MAX_DEPTH = 64
"""An input has at most 32 levels, and an outcome puts it one or two deeper."""
MAX_VALUES = 1_000_000
_STRING = late(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
"""One that never ends is taken to the end: otherwise every quote in it would be tried as a beginning."""
_BRACKET = late(rb"[\[\]{}]")

Findings = list[tuple[str, str]]


@click.command(
    "verify",
    epilog="\b\nExamples:\n  palyra verify outcome.json\n  palyra run --json -- ls | palyra verify -\n"
    "  palyra verify journal.jsonl --key 'palyra.local/…'",
)
@click.argument("file")
@click.option("--key", "vkey", metavar="VKEY", help="The installation's verifier key (palyra doctor prints it).")
@with_settings
def command(settings: Settings, file: str, vkey: str | None) -> int:
    """Verify an outcome, attestation, proof or export. Exit 1 if anything is not valid."""
    from palyra.errors import StateError, TrustError

    try:
        trust = _find_keys(settings, vkey)
    except TrustError as error:
        raise click.UsageError(f"--key: {error}") from error
    except StateError as error:
        say_failure("JOURNAL_DOWN", error.detail, error.hint or "Name the key with --key VKEY.")
        return 1
    try:
        kind, findings, told = _check_place(file, trust)
    except _Malformed as error:
        kind, findings, told = "file", [("SHAPE", str(error))], {}
    ok = not findings
    if settings.json:
        listed = [{"code": code, "detail": detail} for code, detail in findings]
        click.echo(orjson.dumps({"ok": ok, "kind": kind, "key": trust.named, **told, "findings": listed}))
    else:
        from palyra.cli.render import visible_line

        for code, detail in findings:
            click.echo(visible_line(f"{code}: {detail}"))
        counted = f" of {told['entries']} entries" if "entries" in told else ""
        click.echo(f"{'verified' if ok else 'NOT verified'}: {kind}{counted}, by {trust.named}")
    return 0 if ok else 1


class _Malformed(Exception):
    """Something no Palyra wrote: two readers could see two different things in it."""


@dataclass(slots=True)
class _Trust:
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

    def holds(self, attested: Mapping[str, Any]) -> bool:
        """Whether the journal itself has this execution: a retired key may have been stolen since."""
        from palyra.cli.journal_home import reading
        from palyra.errors import StateError
        from palyra.journal.entry import parse_entry
        from palyra.journal.tree import signed_body

        assert self.settings is not None
        said: list[object] = []
        with reading(self.settings) as journal:
            head = journal.head()
            for entry in journal.lookup.by_call(str(attested.get("call_id"))):
                # Who stole the key may also have written the row: only what the newest key signed for counts.
                with contextlib.suppress(StateError):
                    journal.tree.inclusion(entry.index, head)
                    said.append(parse_entry(signed_body(entry)).predicate.get("execution_sha256"))
        return attested.get("execution_sha256") in said


def _find_keys(settings: Settings, vkey: str | None) -> _Trust:
    """The key given, else this installation's own; and how to name it to the reader."""
    from palyra.journal.keys import Keys
    from palyra.signing import parse_vkey

    if vkey is not None:
        verifier = parse_vkey(vkey)
        return _Trust(Keys(verifier), f"the key given ({verifier.key.key_id})")
    from palyra.config.load import find_home
    from palyra.state.db import read_home

    root = find_home(settings.home).root
    if not (root / "state").is_dir():
        raise click.UsageError(f"There is no installation in {root}; name the key that signed it with --key VKEY.")
    home = read_home(root)
    named = f"this installation's key ({home.verifier.key.key_id}) in {home.root}"
    return _Trust(home.keys, named, settings)


# ── what it is ───────────────────────────────────────────────────────────────


def _check_place(file: str, trust: _Trust) -> tuple[str, Findings, dict[str, Any]]:
    if file == "-":
        return _check_stream(sys.stdin.buffer, trust)
    path = Path(file)
    try:
        if path.is_dir():
            return _check_tiles(path, trust.keys.newest)
        with path.open("rb") as stream:
            return _check_stream(stream, trust)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error


def _check_stream(stream: IO[bytes], trust: _Trust) -> tuple[str, Findings, dict[str, Any]]:
    from palyra.journal.export import is_header

    first = stream.readline(MAX_LINE_BYTES + 1)
    if len(first) <= MAX_LINE_BYTES and first.startswith(b"{") and first.endswith(b"}\n"):
        value = _parse(first)
        if is_header(value):
            return _check_export(value, stream, trust.keys.newest)
        if isinstance(value, dict) and "payloadType" in value:
            return _check_envelopes(value, stream, trust.keys.newest)
    data = first + stream.read(MAX_FILE_BYTES + 1 - len(first))
    if len(data) > MAX_FILE_BYTES:
        raise _Malformed(f"It is larger than {MAX_FILE_BYTES} bytes and not an export.")
    return _check_value(_parse(data), trust)


def _check_value(value: object, trust: _Trust) -> tuple[str, Findings, dict[str, Any]]:
    from palyra.attest import verify_attestation
    from palyra.errors import TrustError
    from palyra.journal.proof import PROOF_TYPE, check_proof

    if isinstance(value, dict) and value.get("type") == PROOF_TYPE:
        found = check_proof(value, trust.keys.newest)
        return "proof", [(finding.code, finding.detail) for finding in found], {}
    if isinstance(value, dict) and "envelope" in value:
        signer = trust.choose(value.get("key_id"))
        try:
            attested = verify_attestation(value, signer.key)
        except TrustError as error:
            return "attestation", [("ATTESTATION", str(error))], {}
        return "attestation", _check_retired(trust, signer, attested), {}
    return "outcome", _check_outcome(value, trust), {}


def _check_outcome(value: object, trust: _Trust) -> Findings:
    from palyra.attest import check_outcome
    from palyra.protocol.wire import parse_outcome

    try:
        parse_outcome(value)
    except ValueError as error:
        return [("SHAPE", f"{error}.")]
    attestation = value.get("attestation") if isinstance(value, dict) else None
    named = attestation if isinstance(attestation, dict) else {}
    signer = trust.choose(named.get("key_id"))
    found = check_outcome(value, signer.key, origin=signer.name)
    return [(finding.code, finding.detail) for finding in found] or _check_retired(trust, signer, named)


def _check_retired(trust: _Trust, signer: NoteVerifier, attested: Mapping[str, Any]) -> Findings:
    if signer == trust.keys.newest or trust.holds(attested):
        return []
    return [("KEY", f"Key {signer.key.key_id} was retired, and the journal does not contain what it signed here.")]


# ── exports ──────────────────────────────────────────────────────────────────


def _check_export(header: Any, stream: IO[bytes], held: NoteVerifier) -> tuple[str, Findings, dict[str, Any]]:
    from palyra.cli.progress import watched
    from palyra.journal.export import SELECTION_TYPE, check_lines

    kind = "selection" if header["type"] == SELECTION_TYPE else "export"
    total = header["count"] if isinstance(header.get("count"), int) else None
    report = check_lines(header, watched(_lines(stream), total, "entries"), held)
    return kind, [(finding.code, finding.detail) for finding in report.findings], {"entries": report.entries}


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    while line := stream.readline(MAX_LINE_BYTES):
        yield line


def _check_envelopes(first: object, stream: IO[bytes], held: NoteVerifier) -> tuple[str, Findings, dict[str, Any]]:
    """A bundle shows that this installation signed each statement, and not that there are no others."""
    from palyra.attest import PAYLOAD_TYPE
    from palyra.errors import TrustError
    from palyra.journal.entry import parse_entry
    from palyra.signing import dsse_verify

    findings: Findings = []
    count = 0
    value: object = first
    while True:
        try:
            payload_type, payload = dsse_verify(value, held.key)
            if payload_type != PAYLOAD_TYPE:
                raise TrustError("The envelope does not hold an in-toto statement.")
            parse_entry(payload)
        except (TrustError, ValueError) as error:
            findings.append(("ENVELOPE", f"Line {count + 1}: {error}"))
        count += 1
        line = stream.readline(MAX_LINE_BYTES)
        if not line or len(findings) > 100:
            return "bundle", findings, {"entries": count}
        value = _parse(line)


def _check_tiles(folder: Path, held: NoteVerifier) -> tuple[str, Findings, dict[str, Any]]:
    from palyra.cli.progress import watched
    from palyra.errors import TrustError
    from palyra.journal.checkpoint import open_checkpoint
    from palyra.journal.merkle import leaf_hash, root_of
    from palyra.journal.tiles import MAX_BUNDLE_BYTES, check_hash_tiles, read_bodies

    def read(name: str) -> bytes:
        try:
            with (folder / name).open("rb") as file:
                return file.read(MAX_BUNDLE_BYTES)
        except OSError as error:
            raise TrustError(f"{name}: {error.strerror}.") from error

    try:
        head = open_checkpoint(read("checkpoint").decode("utf-8", "replace"), held)
        leaves = [leaf_hash(body) for body in watched(read_bodies(read, head.size), head.size, "entries")]
        if root_of(leaves) != head.root:
            return "tiles", [("TREE", "The entries are not those of the signed checkpoint.")], {"entries": head.size}
        wrong = [("TILE", f"{path} does not match the entries.") for path in check_hash_tiles(read, leaves)]
    except TrustError as error:
        return "tiles", [("TILES", str(error))], {}
    return "tiles", wrong, {"entries": head.size}


# ── reading ──────────────────────────────────────────────────────────────────


def _parse(data: bytes) -> object:
    """JSON in one reading: no key twice, nothing deeper than an outcome can be, no number or text JSON cannot carry."""
    try:
        _check_shape(data)
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
        orjson.dumps(value)
    except (ValueError, RecursionError, TypeError) as error:
        raise _Malformed(f"It is not the JSON that Palyra writes: {error}.") from error
    return value


def _check_shape(data: bytes) -> None:
    """Before any value is made: millions of empty lists are a small file and gigabytes of memory."""
    bare = _STRING.sub(b"", data)
    if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > MAX_VALUES:
        raise _Malformed(f"It holds more than {MAX_VALUES} values.")
    depth = 0
    for found in _BRACKET.finditer(bare):
        depth += 1 if found[0] in (b"[", b"{") else -1
        if depth > MAX_DEPTH:
            raise _Malformed(f"It is nested deeper than {MAX_DEPTH} levels.")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Malformed("A key appears twice in one object.")
    return found


def _refuse(name: str) -> object:
    raise _Malformed(f"{name} is not JSON.")
