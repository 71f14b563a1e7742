"""What must hold for any bytes at the other doors: one function a parser, each raises only when a promise is broken.

A parser refuses with its own error and nothing else, and what it accepts means the same when it is written and read
again. Beside tests/fuzz/targets, which has the parsers of the network.
"""

from __future__ import annotations

import contextlib
import json
import tomllib
from collections.abc import Callable

from palyra.canon import canonical
from palyra.config.schema import as_json, parse_config
from palyra.engine.learn import MARK
from palyra.errors import ConfigError, PalyraError, Rejected, TrustError
from palyra.journal.chain import entry_bytes
from palyra.journal.checkpoint import open_checkpoint, parse_checkpoint, sign_checkpoint
from palyra.journal.entry import parse_entry
from palyra.journal.export import check_lines, is_header
from palyra.journal.proof import check_proof
from palyra.policy.bundle import with_local
from palyra.policy.examples import parse_examples
from palyra.policy.store import load_posture
from palyra.protocol.parse import parse_input
from palyra.signing import NoteSigner, SigningKey, dsse_sign, dsse_verify, open_note, parse_vkey
from palyra.skills.archive import read_zip, write_zip
from palyra.skills.manifest import parse_manifest
from palyra.tokens.rules import id_of
from tests.journaling import intent, ulid

KEY = SigningKey.from_seed(bytes(32))
SIGNER = NoteSigner(name="palyra.local/fuzz", key=KEY)
STANDARD = load_posture("standard")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def call_input(data: bytes) -> None:
    """Of a tool: strict JSON, or Rejected; what was taken is one value."""
    with contextlib.suppress(Rejected):
        value = parse_input(data, max_bytes=4096)
        assert parse_input(canonical(value), max_bytes=1 << 20) == value


def http_body(data: bytes) -> None:
    """A request's body: refused with 400 or 422 and the error shape, by nothing else."""
    from pydantic import TypeAdapter

    from palyra.daemon.call_models import CallBody, RunBody
    from palyra.daemon.reading import checked, parse_form, parse_json
    from palyra.daemon.routes import Refused

    for kind in (CallBody, RunBody):
        with contextlib.suppress(Refused):
            checked(TypeAdapter(kind), parse_json(data))
    with contextlib.suppress(Refused):
        parse_form(data)


def token(data: bytes) -> None:
    found = id_of(_text(data))
    assert found is None or _text(data).startswith(f"palyra_{found}_")


def config(data: bytes) -> None:
    try:
        mapping = tomllib.loads(_text(data))
    except (tomllib.TOMLDecodeError, RecursionError):
        return
    with contextlib.suppress(ConfigError, PalyraError):
        parsed = parse_config(mapping)
        assert parse_config(as_json(parsed)).digest == parsed.digest


def policy(data: bytes) -> None:
    """An operator's policy and its examples: loaded whole, or refused with a place. Walls stay."""
    with contextlib.suppress(PalyraError):
        bundle = with_local(STANDARD, {"local.cedar": _text(data)})
        walls = {name: info for name, info in STANDARD.index.items() if info.final}
        assert walls == {name: bundle.index[name] for name in walls}
    with contextlib.suppress(PalyraError):
        parse_examples("examples.toml", _text(data))


def entry(data: bytes) -> None:
    """Of the journal: exactly the bytes we make, or ValueError."""
    with contextlib.suppress(ValueError):
        parse_entry(data)


def note(data: bytes) -> None:
    with contextlib.suppress(TrustError):
        text, by = open_note(_text(data), [SIGNER.verifier])
        assert by == (SIGNER.verifier,)
        assert text.endswith("\n")
    with contextlib.suppress(TrustError):
        verifier = parse_vkey(_text(data))
        assert parse_vkey(verifier.vkey) == verifier
    with contextlib.suppress(TrustError):
        open_checkpoint(_text(data), SIGNER.verifier)
    with contextlib.suppress(TrustError, ValueError):
        parse_checkpoint(_text(data))


def dsse(data: bytes) -> None:
    """Nothing but our own signature opens an envelope; what it says is then exactly what was signed."""
    try:
        envelope = json.loads(data)
    except (ValueError, RecursionError):
        return
    with contextlib.suppress(TrustError):
        kind, payload = dsse_verify(envelope, KEY.public)
        assert dsse_verify(dsse_sign(KEY, kind, payload), KEY.public) == (kind, payload)


def evidence(data: bytes) -> None:
    """Proofs and exports from strangers: findings or TrustError."""
    try:
        value = json.loads(data.partition(b"\n")[0])
    except (ValueError, RecursionError):
        return
    if isinstance(value, dict):
        with contextlib.suppress(PalyraError):
            check_proof(value, SIGNER.verifier)
        if is_header(value):
            with contextlib.suppress(PalyraError, ValueError):
                check_lines(value, iter(data.splitlines()[1:]), SIGNER.verifier)


def manifest(data: bytes) -> None:
    with contextlib.suppress(PalyraError):
        parse_manifest(data)


def archive(data: bytes) -> None:
    """Of a skill: what is taken has only plain paths, and packs to itself."""
    with contextlib.suppress(PalyraError):
        files = read_zip(data)
        assert not any(path.startswith(("/", "../")) or "/../" in path or "\\" in path for path in files)
        assert read_zip(write_zip(files)) == files


TARGETS: dict[str, Callable[[bytes], None]] = {
    one.__name__: one
    for one in (call_input, http_body, token, config, policy, entry, note, dsse, evidence, manifest, archive)
}
_SIGNED = json.dumps(dsse_sign(KEY, "application/vnd.in-toto+json", b"{}")).encode()
SEEDS: dict[str, tuple[bytes, ...]] = {
    "call_input": (b'{"command": "ls", "args": ["-la"]}', b'{"a": 1e400}', b'{"a": "\\ud800"}', b"[" * 40, MARK),
    "http_body": (b'{"tool": "palyra.echo", "input": {}, "wait": false}', b"a=1&b=%zz&a=2", b'[{"tool": 1}]'),
    "token": (b"palyra_01J00000000000000000000000_" + b"0" * 64,),
    "config": (
        b'posture = "standard"\n[gc]\nkeep_logs_days = 1\n',
        b"[tool_call.process_runner]\nmax_processes = 1\n",
        b'[[credentials]]\nname = "x"\nhost = "a.test"\n',
    ),
    "policy": (
        b'@id("x.y")\nforbid (principal, action, resource) when { context.listed };',
        b'[[example]]\nname = "n"\nexpect = "deny"\nfacts = { program = "rm" }\n',
    ),
    "entry": (entry_bytes(intent(ulid(1), ulid(2)), index=0, sequence=0, at_unix_ms=1),),
    "note": (sign_checkpoint(SIGNER, 1, bytes(32)).note.encode(), SIGNER.vkey.encode()),
    "dsse": (_SIGNED, _SIGNED.replace(b"{", b"[", 1)),
    "evidence": (
        b'{"type": "urn:palyra:proof:v1", "entries": []}',
        b'{"type": "urn:palyra:export:v1", "count": 1}\n{}',
    ),
    "manifest": (b'[skill]\nid = "acme.echo"\nversion = "0.1.0"\npublisher = "acme"\n',),
    "archive": (write_zip({"skill.toml": b"x", "a/b.wasm": b"\0asm"}), b"PK\x05\x06" + bytes(18)),
}
