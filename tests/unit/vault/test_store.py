"""The vault: what is put in comes out for its host alone, and nothing that was changed behind its back is used."""

from __future__ import annotations

import asyncio
import hashlib
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palyra.budget.store import BudgetStore
from palyra.config.credentials import CredentialConfig, VaultConfig
from palyra.errors import ConfigError, StateError
from palyra.journal.store import JournalStore
from palyra.model.credential import Binding, Credential, Scope
from palyra.state.writer import Writer
from palyra.vault.file import VaultFile
from palyra.vault.store import Vault
from tests.journaling import audit_home
from tests.promises import promise

NOW = 1_700_000_000_000
TOKEN = b"s3cr3t-t0ken"


@pytest.fixture
def writer(home: Path) -> Iterator[Writer]:
    home.mkdir(mode=0o700)
    opened = Writer.open(home)
    yield opened
    opened.close()


def vault_of(writer: Writer, *credentials: CredentialConfig, **config: Any) -> Vault:
    ask = config.pop("ask", None)
    return Vault(writer, config=VaultConfig(**config), credentials=credentials, now_unix_ms=lambda: NOW, ask=ask)


def put(vault: Vault, name: str = "TOKEN", value: bytes = TOKEN, **given: Any) -> Any:
    async def work() -> Any:
        return await vault.set(name, value, actor="uid:1", **given)

    return asyncio.run(work())


def take(vault: Vault, name: str) -> bool:
    async def work() -> bool:
        return await vault.delete(name, actor="uid:1")

    return asyncio.run(work())


def headers(vault: Vault, host: str, port: int = 443, *, encrypted: bool = True, **who: str) -> Any:
    who = {"principal": "agent:a", "tool": "palyra.http.fetch"} | who
    return [(c.header, c.value) for c in vault.credentials(host, port, encrypted=encrypted, **who)]


@promise("secrets.vault-file")
def test_a_secret_is_known_to_redaction_and_its_value_is_nowhere_on_disk(writer: Writer, home: Path):
    put(vault_of(writer))
    assert vault_of(writer).known_values("run") == (("TOKEN", TOKEN),)
    writer.close()
    for path in home.rglob("*"):
        assert not path.is_file() or TOKEN not in path.read_bytes(), path


def test_files_of_the_vault_are_the_owners_alone(writer: Writer, home: Path):
    put(vault_of(writer))
    modes = {path.name: path.stat().st_mode & 0o777 for path in (home / "vault", *(home / "vault").iterdir())}
    assert modes == {"vault": 0o700, "master.key": 0o600, "secrets.json": 0o600}


def test_acts_are_journaled_by_name_without_the_value(writer: Writer):
    vault = vault_of(writer)
    put(vault, binding=Binding(host="api.test", header="Authorization", prefix="Bearer "))
    put(vault, value=TOKEN + b"2")
    take(vault, "TOKEN")
    entries = JournalStore(writer, BudgetStore()).tail(10)
    predicates = [json.loads(entry.body)["predicate"] for entry in reversed(entries)]
    shown = [(p["act"], p["actor"], p["details"]["name"], p["details"]["version"]) for p in predicates]
    assert sorted(shown) == [
        ("secrets.deleted", "uid:1", "TOKEN", 2),
        ("secrets.set", "uid:1", "TOKEN", 1),
        ("secrets.set", "uid:1", "TOKEN", 2),
    ]
    assert not any(TOKEN in entry.body for entry in entries)


def test_a_new_version_keeps_scope_and_host(writer: Writer):
    """Otherwise rotating a token would hand it to everyone."""
    vault = vault_of(writer)
    scope, binding = Scope(principals=("agent:ci",)), Binding(host="api.test", header="X-Key")
    put(vault, scope=scope, binding=binding)
    rotated = put(vault, value=TOKEN + b"2")
    assert (rotated.version, rotated.scope, rotated.binding) == (2, scope, binding)


def test_a_credential_goes_to_its_host_and_port_alone(writer: Writer):
    vault = vault_of(writer)
    put(vault, binding=Binding(host="API.test", header="Authorization", prefix="Bearer "))
    put(vault, "PORT", b"port-value", binding=Binding(host="api.test:8080", header="X-Key"))
    assert headers(vault, "api.test") == [("Authorization", b"Bearer " + TOKEN)]
    assert headers(vault, "API.test.") == [("Authorization", b"Bearer " + TOKEN)]
    assert headers(vault, "api.test", 8080, encrypted=False) == [("X-Key", b"port-value")]
    for host in ("evil.test", "api.test.evil.test", "xapi.test", "sub.api.test", "127.0.0.1"):
        assert headers(vault, host) == []
    assert headers(vault, "api.test", 8443) == []
    assert {one.host for one in vault.bound(principal="agent:a", tool="x")} == {"API.test", "api.test:8080"}


@promise("egress.fetch-credentials")
def test_a_credential_without_a_port_never_goes_out_in_the_clear(writer: Writer):
    vault = vault_of(writer)
    put(vault, binding=Binding(host="api.test", header="Authorization"))
    assert headers(vault, "api.test", 80, encrypted=False) == []
    assert headers(vault, "api.test", 443, encrypted=False) == []
    assert headers(vault, "api.test", 80, encrypted=True) == []


def test_scopes_say_who_may_use_it_with_which_tool(writer: Writer):
    vault = vault_of(writer)
    scope = Scope(principals=("agent:ci-*",), tools=("palyra.http.*",))
    put(vault, scope=scope, binding=Binding(host="api.test", header="X-Key"))
    assert headers(vault, "api.test", principal="agent:ci-1")
    assert headers(vault, "api.test", principal="agent:other") == []
    assert headers(vault, "api.test", principal="agent:ci-1", tool="palyra.process.run") == []


def test_the_configuration_binds_too_but_not_past_the_scope(writer: Writer):
    bound = CredentialConfig(host="api.test", secret="TOKEN", prefix="token ")
    vault = vault_of(writer, bound)
    with pytest.raises(StateError, match="no secret TOKEN"):
        headers(vault, "api.test")
    assert headers(vault, "other.test") == []
    put(vault, scope=Scope(principals=("agent:ci",)))
    assert headers(vault, "api.test", principal="agent:ci") == [("Authorization", b"token " + TOKEN)]
    assert headers(vault, "api.test", principal="agent:a") == []


@pytest.mark.parametrize(
    ("name", "value", "binding"),
    [
        ("a b", TOKEN, None), ("../x", TOKEN, None), ("", TOKEN, None), (".x", TOKEN, None), ("x" * 129, TOKEN, None),
        ("A", b"short", None), ("A", b"x" * 65537, None),
        ("A", b"two\nlines", Binding(host="a.test", header="X-Key")),
        ("A", b"caf\xc3\xa9-caf\xc3\xa9", Binding(host="a.test", header="X-Key")),
        ("A", TOKEN, Binding(host="*.a.test", header="X-Key")),
        ("A", TOKEN, Binding(host="10.0.0.0/8", header="X-Key")),
        ("A", TOKEN, Binding(host="0x7f.1", header="X-Key")),
        ("A", TOKEN, Binding(host="a.test", header="Host")),
        ("A", TOKEN, Binding(host="a.test", header="Transfer-Encoding")),
        ("A", TOKEN, Binding(host="a.test", header="X Key")),
        ("A", TOKEN, Binding(host="a.test", header="X-Key", prefix="a\r\nb: ")),
    ],
)  # fmt: skip
def test_what_cannot_be_a_secret_or_its_place_is_refused(
    writer: Writer, name: str, value: bytes, binding: Binding | None
):
    vault = vault_of(writer)
    with pytest.raises(ConfigError):
        put(vault, name, value, binding=binding)
    assert vault.list() == ()


def test_a_credential_does_not_show_its_value():
    assert "s3cr3t" not in repr(Credential(secret="A", host="a.test", header="X", value=TOKEN))


# ── behind its back ──────────────────────────────────────────────────────────


@promise("secrets.vault-file")
def test_an_older_copy_put_back_is_refused(writer: Writer, home: Path):
    vault = vault_of(writer)
    put(vault)
    old = (home / "vault/secrets.json").read_bytes()
    put(vault, value=b"rotated-token")
    (home / "vault/secrets.json").write_bytes(old)
    with pytest.raises(StateError, match="not the one this home last wrote"):
        vault_of(writer).load()


@promise("secrets.vault-file")
def test_a_changed_missing_or_swapped_file_is_refused(writer: Writer, home: Path):
    put(vault_of(writer))
    file = home / "vault/secrets.json"
    whole = file.read_bytes()
    value = json.loads(whole)
    value["secrets"] = {}
    for bad in (json.dumps(value).encode(), whole + b" ", b"", b"{}"):
        file.write_bytes(bad)
        with pytest.raises(StateError):
            vault_of(writer).load()
    file.unlink()
    with pytest.raises(StateError):
        vault_of(writer).load()
    shutil.rmtree(home / "vault")
    with pytest.raises(StateError):
        vault_of(writer).load()


@promise("secrets.vault-file")
@pytest.mark.parametrize("part", ["scope", "version", "rename", "key", "value", "generation", "drop"])
def test_without_the_master_key_nothing_can_be_rebound_even_by_who_writes_the_database(
    writer: Writer, home: Path, part: str
):
    import hashlib

    vault = vault_of(writer)
    put(vault, binding=Binding(host="api.test", header="X-Key"), scope=Scope(principals=("agent:ci",)))
    put(vault, "OTHER", b"other-value")
    file = home / "vault/secrets.json"
    value = json.loads(file.read_bytes())
    entry = value["secrets"]["TOKEN"]
    match part:
        case "scope":
            entry["facts"]["scope"]["principals"] = []
        case "version":
            entry["facts"]["version"] = 9
        case "rename":
            value["secrets"]["OTHER"] = entry
        case "key" | "value":
            entry["sealed"][part] = value["secrets"]["OTHER"]["sealed"][part]
        case "generation":
            value["generation"] += 1
        case "drop":
            del value["secrets"]["OTHER"]
    data = json.dumps(value).encode()
    file.write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    writer.commit_now(lambda tx: tx.execute("UPDATE meta SET value = ? WHERE name = 'vault_sha256'", (digest,)))
    with pytest.raises(StateError):
        vault_of(writer).load()


@promise("secrets.vault-file")
def test_an_old_vault_put_back_with_its_row_is_found_by_verify(writer: Writer, home: Path):
    """A secret that was deleted was used again, and the journal, which says that it is gone, verified."""
    vault, file = vault_of(writer), home / "vault/secrets.json"
    put(vault)
    old = file.read_bytes()
    assert take(vault, "TOKEN")
    assert audit_home(writer.home).findings == ()
    file.write_bytes(old)
    digest = hashlib.sha256(old).hexdigest()
    writer.commit_now(lambda tx: tx.execute("UPDATE meta SET value = ? WHERE name = 'vault_sha256'", (digest,)))
    assert [one.code for one in audit_home(writer.home).findings] == ["KEPT"]
    writer.commit_now(lambda tx: tx.execute("DELETE FROM meta WHERE name = 'vault_sha256'"))
    assert [one.code for one in audit_home(writer.home).findings] == ["KEPT"]


def test_what_was_known_stays_redacted_when_the_vault_breaks(writer: Writer, home: Path):
    vault = vault_of(writer)
    put(vault, binding=Binding(host="api.test", header="X-Key"))
    (home / "vault/secrets.json").write_bytes(b"garbage")
    assert vault.known_values("run") == (("TOKEN", TOKEN),)
    with pytest.raises(StateError):
        headers(vault, "api.test")


def test_a_key_that_others_could_have_read_is_refused(writer: Writer, home: Path):
    put(vault_of(writer))
    (home / "vault/master.key").chmod(0o644)
    with pytest.raises(StateError, match="accessible to other users"):
        vault_of(writer).load()


@promise("secrets.vault-file")
def test_another_key_does_not_open_it(writer: Writer, home: Path):
    put(vault_of(writer))
    (home / "vault/master.key").write_text("00" * 32 + "\n")
    with pytest.raises(StateError):
        vault_of(writer).load()


# ── crashes and others ───────────────────────────────────────────────────────


def test_a_crash_before_the_commit_leaves_the_old_and_after_it_the_new(writer: Writer, home: Path, monkeypatch: Any):
    vault = vault_of(writer)
    put(vault)
    monkeypatch.setattr(Writer, "commit", lambda *_: (_ for _ in ()).throw(StateError("killed")))
    with pytest.raises(StateError, match="killed"):
        put(vault, value=b"never-committed")
    monkeypatch.undo()
    assert vault_of(writer).known_values("") == (("TOKEN", TOKEN),)
    monkeypatch.setattr(VaultFile, "put_in_place", lambda *_: (_ for _ in ()).throw(StateError("killed")))
    with pytest.raises(StateError, match="killed"):
        put(vault, value=b"committed-value")
    monkeypatch.undo()
    assert vault_of(writer).known_values("") == (("TOKEN", b"committed-value"),)
    assert sorted(os.listdir(home / "vault")) == ["master.key", "secrets.json"]


def _fill(home: str, number: int) -> None:
    writer = Writer.open(Path(home))
    put(vault_of(writer), f"S{number}", b"value-%d-value" % number)
    writer.close()


def test_many_processes_at_once_lose_nothing(writer: Writer, home: Path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_fill, args=(str(home), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [facts.name for facts in vault_of(writer).list()] == ["S0", "S1", "S2", "S3"]


def test_changes_at_once_in_one_process_wait_for_each_other_and_calls_for_none(writer: Writer):
    """A lock that is waited for on the loop would wait for itself."""

    async def story() -> None:
        vault = vault_of(writer)
        setting = [vault.set(f"S{n}", b"value-%d-value" % n, actor="uid:1") for n in range(6)]
        work = asyncio.gather(*setting)
        while not work.done():
            vault.known_values("")
            await asyncio.sleep(0)
        assert [facts.name for facts in vault.list()] == [f"S{n}" for n in range(6)]
        assert {name for name, _ in vault.known_values("")} == {f"S{n}" for n in range(6)}

    asyncio.run(story())


def test_a_change_of_another_process_is_seen(writer: Writer):
    mine, theirs = vault_of(writer), vault_of(writer)
    put(mine)
    put(theirs, "B", b"second-value")
    assert {name for name, _ in mine.known_values("")} == {"TOKEN", "B"}
    assert take(theirs, "TOKEN")
    assert not take(theirs, "TOKEN")
    assert [facts.name for facts in mine.list()] == ["B"]
    assert ("TOKEN", TOKEN) in mine.known_values(""), "what this process has known it goes on hiding"


# ── keys ─────────────────────────────────────────────────────────────────────


def test_a_passphrase_opens_it_and_another_does_not(writer: Writer, home: Path, tmp_path: Path):
    file = tmp_path / "passphrase"
    file.write_text("correct horse\nsecond line\n")
    file.chmod(0o600)
    put(vault_of(writer, key="passphrase", passphrase_file=str(file)))
    assert vault_of(writer, key="passphrase", ask=lambda: "correct horse").list()
    assert not (home / "vault/master.key").exists()
    with pytest.raises(StateError):
        vault_of(writer, key="passphrase", ask=lambda: "wrong horse!").load()
    with pytest.raises(StateError, match="locked"):
        vault_of(writer).load()
    file.chmod(0o644)
    with pytest.raises(StateError, match="accessible to other users"):
        vault_of(writer, passphrase_file=str(file)).load()


class FakeKeyring:
    kept: dict[tuple[str, str], str]

    def __init__(self) -> None:
        self.kept = {}

    def get_password(self, service: str, account: str) -> str | None:
        return self.kept.get((service, account))

    def set_password(self, service: str, account: str, value: str) -> None:
        self.kept[service, account] = value


def test_the_systems_keyring_keeps_the_key(writer: Writer, home: Path, monkeypatch: pytest.MonkeyPatch):
    import sys

    keyring = FakeKeyring()
    monkeypatch.setitem(sys.modules, "keyring", keyring)
    put(vault_of(writer, key="keyring"))
    assert vault_of(writer).list(), "the vault itself says where its key is"
    assert not (home / "vault/master.key").exists()
    keyring.kept.clear()
    with pytest.raises(StateError, match="not in the system's keyring"):
        vault_of(writer).load()
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(StateError, match=r"palyra\[keyring\]|not installed"):
        vault_of(writer).load()
