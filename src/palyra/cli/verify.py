"""`palyra verify FILE`: an outcome or an attestation, offline, with nothing but a public key."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import orjson

from palyra.cli.options import Settings, with_settings

MAX_FILE_BYTES = 256 << 20


@click.command(
    "verify", epilog="\b\nExamples:\n  palyra verify outcome.json\n  palyra run --json -- ls | palyra verify -"
)
@click.argument("file")
@click.option("--key", "vkey", metavar="VKEY", help="The installation's verifier key (palyra doctor prints it).")
@with_settings
def command(settings: Settings, file: str, vkey: str | None) -> int:
    """Verify an outcome or attestation: signature, digests, receipt. Exit 1 when something does not hold."""
    from palyra.errors import TrustError

    value = _read(file)
    try:
        origin, key, named = _verifier(settings, vkey)
    except TrustError as error:
        raise click.UsageError(f"--key: {error}") from error
    kind, findings = _check(value, key, origin)
    ok = not findings
    if settings.json:
        listed = [{"code": code, "detail": detail} for code, detail in findings]
        click.echo(orjson.dumps({"ok": ok, "kind": kind, "key": named, "findings": listed}))
    else:
        for code, detail in findings:
            click.echo(f"{code}: {detail}")
        click.echo(f"{'verified' if ok else 'NOT verified'}: {kind}, by {named}")
    return 0 if ok else 1


def _read(file: str) -> object:
    try:
        data = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if file == "-" else _bytes(Path(file))
        return orjson.loads(data)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise click.UsageError(f"{file}: not JSON: {error}") from error


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
    from palyra.state.db import open_home

    root = find_home(settings.home).root
    if not (root / "state").is_dir():
        raise click.UsageError(f"There is no installation in {root}; name the key that signed it with --key VKEY.")
    home, connection = open_home(root)
    connection.close()
    return home.origin, home.key.public, f"this installation's key ({home.key.key_id}) in {home.root}"


def _check(value: object, key: object, origin: str) -> tuple[str, list[tuple[str, str]]]:
    from palyra.attest import check_outcome, verify_attestation
    from palyra.errors import TrustError
    from palyra.signing import PublicKey

    assert isinstance(key, PublicKey)
    if isinstance(value, dict) and "envelope" in value:
        try:
            verify_attestation(value, key)
        except TrustError as error:
            return "attestation", [("ATTESTATION", str(error))]
        return "attestation", []
    found = check_outcome(value, key, origin=origin)
    return "outcome", [(finding.code, finding.detail) for finding in found]
