"""`palyra verify FILE`: an outcome or an attestation, offline, with nothing but a public key."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click
import orjson

from palyra.cli.options import Settings, with_settings

MAX_FILE_BYTES = 256 << 20
MAX_DEPTH = 64
"""An input has at most 32 levels, and an outcome puts it one or two deeper."""


@click.command(
    "verify", epilog="\b\nExamples:\n  palyra verify outcome.json\n  palyra run --json -- ls | palyra verify -"
)
@click.argument("file")
@click.option("--key", "vkey", metavar="VKEY", help="The installation's verifier key (palyra doctor prints it).")
@with_settings
def command(settings: Settings, file: str, vkey: str | None) -> int:
    """Verify an outcome or attestation: signature, digests, receipt. Exit 1 when something does not hold."""
    from palyra.errors import StateError, TrustError

    data = _read(file)
    try:
        origin, key, named = _verifier(settings, vkey)
    except TrustError as error:
        raise click.UsageError(f"--key: {error}") from error
    except StateError as error:
        click.echo(f"palyra: {error.detail}\nhint: {error.hint or 'Name the key with --key VKEY.'}", err=True)
        return 1
    try:
        kind, findings = _check(_parse(data), key, origin)
    except _Malformed as error:
        kind, findings = "file", [("SHAPE", str(error))]
    ok = not findings
    if settings.json:
        listed = [{"code": code, "detail": detail} for code, detail in findings]
        click.echo(orjson.dumps({"ok": ok, "kind": kind, "key": named, "findings": listed}))
    else:
        for code, detail in findings:
            click.echo(f"{code}: {detail}")
        click.echo(f"{'verified' if ok else 'NOT verified'}: {kind}, by {named}")
    return 0 if ok else 1


class _Malformed(Exception):
    """Something no Palyra wrote: two readers could see two different things in it."""


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if file == "-" else _bytes(Path(file))
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error


def _parse(data: bytes) -> object:
    """JSON in one reading: no key twice, nothing deeper than an outcome can be, no number or text JSON cannot carry."""
    try:
        if _depth(data) > MAX_DEPTH:
            raise _Malformed(f"It is nested deeper than {MAX_DEPTH} levels.")
        value = json.loads(data.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
        orjson.dumps(value)
    except (ValueError, RecursionError, TypeError) as error:
        raise _Malformed(f"It is not the JSON that Palyra writes: {error}.") from error
    return value


def _depth(data: bytes) -> int:
    deepest = depth = 0
    for bracket in re.findall(rb"[\[\]{}]", re.sub(rb'"[^"\\]*(?:\\.[^"\\]*)*"', b"", data, flags=re.DOTALL)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Malformed("A key stands twice in one object.")
    return found


def _refuse(name: str) -> object:
    raise _Malformed(f"{name} is not JSON.")


def _bytes(path: Path) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise click.UsageError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    return data


def _verifier(settings: Settings, vkey: str | None) -> tuple[str, object, str]:
    """The key given, else this installation's own; and how to name it to the reader."""
    from palyra.signing import parse_vkey

    if vkey is not None:
        verifier = parse_vkey(vkey)
        return verifier.name, verifier.key, f"the key given ({verifier.key.key_id})"
    from palyra.config.load import find_home
    from palyra.state.db import read_home

    root = find_home(settings.home).root
    if not (root / "state").is_dir():
        raise click.UsageError(f"There is no installation in {root}; name the key that signed it with --key VKEY.")
    home = read_home(root)
    key = home.verifier.key
    return home.verifier.name, key, f"this installation's key ({key.key_id}) in {home.root}"


def _check(value: object, key: object, origin: str) -> tuple[str, list[tuple[str, str]]]:
    from palyra.attest import check_outcome, verify_attestation
    from palyra.errors import TrustError
    from palyra.protocol.wire import parse_outcome
    from palyra.signing import PublicKey

    assert isinstance(key, PublicKey)
    if isinstance(value, dict) and "envelope" in value:
        try:
            verify_attestation(value, key)
        except TrustError as error:
            return "attestation", [("ATTESTATION", str(error))]
        return "attestation", []
    try:
        parse_outcome(value)
    except ValueError as error:
        return "outcome", [("SHAPE", f"{error}.")]
    found = check_outcome(value, key, origin=origin)
    return "outcome", [(finding.code, finding.detail) for finding in found]
