"""`palyra verify FILE`: an outcome, an attestation, a proof or an export, offline, with nothing but a public key.

Rules: what is in the file is told apart by its own first bytes and believed in nothing else; without `--key` the key
is this installation's, and the answer says which key it was. A file that no Palyra wrote (keys twice, nested deeper
than an outcome can be, too large) does not verify, and costs no more than its length to say so.

Not here: whose key counts (cli/verify_keys), the checks themselves (attest, journal/proof), files of many lines
(cli/verify_files).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
import orjson

from palyra.cli.options import Settings, with_settings
from palyra.cli.say import say_failure
from palyra.cli.verify_files import MAX_LINE_BYTES, Checked, Findings, check_envelopes, check_export, check_tiles
from palyra.cli.verify_json import MAX_FILE_BYTES, Malformed, parse_json
from palyra.cli.verify_keys import Trust, check_place, find_keys

if TYPE_CHECKING:
    from palyra.signing import NoteVerifier

"""Of one JSON value; an export is read line by line and may be larger."""

SIGNED_WHOLE = frozenset({"proof", "export", "selection", "bundle", "tiles"})
"""What hangs on one head, and so on the key that was the newest when it was made."""

NO_EVIDENCE = (
    "It takes an outcome, an attestation, a proof or an export. A checkpoint is held against its journal: "
    "palyra journal verify --known FILE, or against an export of it: palyra verify EXPORT --known FILE"
)
NOT_HELD = "--known holds a checkpoint against an export (palyra journal export) or tiles; this is neither."


@click.command(
    "verify",
    epilog="\b\nExamples:\n  palyra verify outcome.json\n  palyra run --json -- ls | palyra verify -\n"
    "  palyra verify journal.jsonl --key 'palyra.local/…' --known head.txt",
)
@click.argument("file")
@click.option("--key", "vkey", metavar="VKEY", help="The installation's verifier key (palyra doctor prints it).")
@click.option(
    "--known", multiple=True, metavar="FILE", help="A checkpoint or outcome saved earlier: an export must contain it."
)
@with_settings
def command(settings: Settings, file: str, vkey: str | None, known: tuple[str, ...]) -> int:
    """Verify an outcome, attestation, proof or export. Exit 1 if anything is not valid."""
    from palyra.errors import StateError, TrustError

    notes = _known(known)
    try:
        trust = find_keys(settings, vkey)
    except TrustError as error:
        raise click.UsageError(f"--key: {error} palyra doctor prints it as NAME+HASH+KEY, in one line.") from error
    except StateError as error:
        say_failure("JOURNAL_DOWN", error.detail, error.hint or "Name the key with --key VKEY.")
        return 1
    try:
        kind, findings, told = _check_place(file, trust, notes)
    except Malformed as error:
        kind, findings, told = "file", [("SHAPE", str(error))], {}
    ok = not findings
    hint = None if ok else NO_EVIDENCE if kind == "file" else trust.earlier() if kind in SIGNED_WHOLE else None
    if settings.json:
        listed = [{"code": code, "detail": detail} for code, detail in findings]
        click.echo(orjson.dumps({"ok": ok, "kind": kind, "key": trust.named, **told, "findings": listed, "hint": hint}))
    else:
        from palyra.cli.render import visible_line

        for code, detail in findings:
            click.echo(visible_line(f"{code}: {detail}"))
        said = f"{'verified' if ok else 'NOT verified'}: {kind}{_extent(kind, told)}, by {trust.named}"
        click.echo(visible_line(said))
    if hint is not None:
        click.echo(f"hint: {hint}", err=True)
    return 0 if ok else 1


def _known(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    from palyra.cli.journal_verify import checkpoint_of

    return [checkpoint_of(Path(name)) for name in names]


def _extent(kind: str, told: Mapping[str, Any]) -> str:
    """What of the journal it shows. Who handed it on may have left out the rest, which no signature tells."""
    if "call_id" in told:
        end = f"ended as {told['status']}" if "status" in told else "began; no result is shown"
        return f" that call {told['call_id']} {end}"
    counted = f" of {told['entries']} entries" if "entries" in told else ""
    if "tree_size" not in told:
        return counted
    first, size = told["first"], told["tree_size"]
    if kind == "selection":
        return f"{counted} of a journal of {size}; nothing is said about the others"
    anchored = f"; the first {told['anchored']} were known" if told.get("anchored") else ""
    if first == 0:
        return f"{counted}, the journal from its first one on{anchored}"
    return f"{counted} from entry {first} on; those before are not shown{anchored}"


# ── what it is ───────────────────────────────────────────────────────────────


def _check_place(file: str, trust: Trust, known: Sequence[str]) -> Checked:
    if file == "-":
        return _check_stream(sys.stdin.buffer, trust, known)
    path = Path(file)
    try:
        if path.is_dir():
            return check_tiles(path, trust.keys.newest, known)
        with path.open("rb") as stream:
            return _check_stream(stream, trust, known)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error


def _check_stream(stream: IO[bytes], trust: Trust, known: Sequence[str]) -> Checked:
    from palyra.journal.export import is_header

    first = stream.readline(MAX_LINE_BYTES + 1)
    if len(first) <= MAX_LINE_BYTES and first.startswith(b"{") and first.endswith(b"}\n"):
        value = parse_json(first)
        if is_header(value):
            return check_export(value, stream, trust.keys.newest, known)
        if known:
            raise click.UsageError(NOT_HELD)
        if isinstance(value, dict) and "payloadType" in value:
            return check_envelopes(value, stream, trust.keys.newest)
    if known:
        raise click.UsageError(NOT_HELD)
    data = first + stream.read(MAX_FILE_BYTES + 1 - len(first))
    if len(data) > MAX_FILE_BYTES:
        raise Malformed(f"It is larger than {MAX_FILE_BYTES} bytes and not an export.")
    return _check_value(parse_json(data), trust)


def _check_value(value: object, trust: Trust) -> Checked:
    from palyra.attest import verify_attestation
    from palyra.errors import TrustError
    from palyra.journal.proof import PROOF_TYPE, check_proof

    if isinstance(value, dict) and value.get("type") == PROOF_TYPE:
        found = check_proof(value, trust.keys.newest)
        told = {} if found else _shown(value)
        return "proof", [(finding.code, finding.detail) for finding in found], told
    if isinstance(value, dict) and "envelope" in value:
        signer = trust.choose(value.get("key_id"))
        try:
            attested = verify_attestation(value, signer.key)
        except TrustError as error:
            return "attestation", [("ATTESTATION", str(error))], {}
        return "attestation", _check_retired(trust, signer, attested, None), {}
    return "outcome", _check_outcome(value, trust), {}


def _shown(proof: Mapping[str, Any]) -> dict[str, Any]:
    """What a proof that holds shows of its call: an intent alone proves that it began, and no more."""
    from palyra.journal.entry import parse_entry

    last = parse_entry(proof["entries"][-1]["body"].encode()).predicate
    return {"call_id": proof["call_id"]} | ({"status": last["status"]} if "status" in last else {})


def _check_outcome(value: object, trust: Trust) -> Findings:
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
    told = [(finding.code, finding.detail) for finding in found]
    receipt = value.get("receipt") if isinstance(value, dict) else None
    if not told and trust.settings is not None and isinstance(receipt, dict) and signer == trust.keys.newest:
        return check_place(trust.settings, named, receipt)
    return told or _check_retired(trust, signer, named, value["receipt"] if isinstance(value, dict) else None)


def _check_retired(
    trust: Trust, signer: NoteVerifier, attested: Mapping[str, Any], receipt: Mapping[str, Any] | None
) -> Findings:
    if signer == trust.keys.newest or trust.holds(attested, receipt):
        return []
    return [("KEY", f"Key {signer.key.key_id} was retired, and the journal does not contain what it signed here.")]
