"""The vault: secrets in one encrypted file of the home, handed out by name, host and scope; never logged.

A change is 1 staged beside the file, durable; 2 committed: its act in the journal and the file's digest and number in
the database, in one transaction; 3 renamed into place. Whoever opens it next finishes 3. So a file that was changed,
deleted or put back from an older copy does not fit the database and is refused, and no change is without its entry.

Values leave in three ways only: to redaction, as a header for a host they are bound to, and to a skill that was granted
to read that very one. What was read stays known until this process ends, so that output is redacted even if the vault
breaks meanwhile; then nothing is handed out.

Not here: the file (file), the envelope (box), the master key (keys), where a secret may go (bindings), and who asks
(wiring, egress).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import orjson

from palyra.canon import Json, canonical
from palyra.config.credentials import CredentialConfig, VaultConfig, check_name
from palyra.errors import ConfigError, StateError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.model.credential import Binding, Credential, Scope, SecretFacts
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass
from palyra.vault import box
from palyra.vault.bindings import check_value, checked, is_for, line_of, parse_facts, set_hint
from palyra.vault.box import VaultBroken
from palyra.vault.file import RESTORE, VaultFile, digest_of

if TYPE_CHECKING:
    from palyra.vault.keys import Ask

log = logging.getLogger("palyra.vault")

MAX_SECRETS = 1024


@dataclass(frozen=True, slots=True)
class _Open:
    """The vault as it was read."""

    vault_id: str = ""
    generation: int = 0
    source: Mapping[str, Json] = field(default_factory=dict)
    entries: Mapping[str, tuple[SecretFacts, bytes]] = field(default_factory=dict, repr=False)


class Vault:
    def __init__(
        self,
        writer: Writer,
        *,
        config: VaultConfig,
        credentials: Sequence[CredentialConfig] = (),
        now_unix_ms: Callable[[], int],
        ask: Ask | None = None,
    ) -> None:
        self._writer = writer
        self._file = VaultFile(writer.home.root / "vault")
        self._config = config
        self._bound = tuple((c.secret, checked(c.host, c.header, c.prefix)) for c in credentials)
        self._now_unix_ms = now_unix_ms
        self._ask = ask
        self._master = b""
        self._open = _Open()
        self._seen: tuple[int, ...] | None = None
        self._broken: StateError | None = None
        self._known: tuple[tuple[str, bytes], ...] = ()
        self._changing = asyncio.Lock()

    # ── reading ──

    def load(self) -> None:
        """Read it if it changed since. Raises StateError when it cannot be trusted or opened."""
        if self._changing.locked():
            return  # by this very process: committed and not yet in place would look like a vault put back
        self._load()

    def _load(self) -> None:
        seen = self._file.identity()
        if seen == self._seen and self._broken is None:
            return
        try:
            self._read(seen)
        except StateError as error:
            self._broken = error
            raise
        self._broken = None

    def known_values(self, run_id: str) -> Sequence[tuple[str, bytes]]:
        """For redaction: never fails, because a call under way must still be recorded."""
        try:
            if self._broken is not None or self._file.identity() != self._seen:
                self.load()
        except StateError as error:
            log.error("the vault can no longer be read: %s", error.detail)
        return self._known

    def value(self, name: str, *, principal: str, tool: str) -> bytes | None:
        """A secret's own bytes, for a guest that was granted to read them. StateError as below."""
        self.load()
        facts, value = self._open.entries.get(name, (None, b""))
        return value if facts is not None and facts.scope.covers(principal, tool) else None

    def bound(self, *, principal: str, tool: str) -> tuple[Credential, ...]:
        """Every header this principal's calls of this tool may carry, each for its host alone. StateError when the
        vault cannot be trusted."""
        self.load()
        entries = self._open.entries
        own = [(facts.name, facts.binding) for facts, _ in entries.values() if facts.binding is not None]
        found: dict[tuple[str, str], Credential] = {}
        for name, binding in (*self._bound, *own):
            if name in entries and entries[name][0].scope.covers(principal, tool):
                value = binding.prefix.encode("ascii") + line_of(name, entries[name][1])
                one = Credential(secret=name, host=binding.host, header=binding.header, value=value)
                found.setdefault((binding.host, binding.header.lower()), one)
        return tuple(found.values())

    def credentials(
        self, host: str, port: int, *, encrypted: bool, principal: str, tool: str
    ) -> tuple[Credential, ...]:
        """Of those, the ones for this host. StateError also when the configuration names a secret that is missing."""
        found = self.bound(principal=principal, tool=tool)
        for name, binding in self._bound:
            if name not in self._open.entries and is_for(binding.host, host, port, encrypted=encrypted):
                raise StateError(f"There is no secret {name} in the vault, which {host} needs.", set_hint(name))
        return tuple(one for one in found if is_for(one.host, host, port, encrypted=encrypted))

    def list(self) -> tuple[SecretFacts, ...]:
        self.load()
        return tuple(self._open.entries[name][0] for name in sorted(self._open.entries))

    def _read(self, seen: tuple[int, ...]) -> None:
        data = self._file.read()
        if digest_of(data) != self._recorded():
            with self._file.locked():  # a change of another process may be on its way
                self._file.finish_staged(self._recorded())
                data, seen = self._file.read(), self._file.identity()
                if digest_of(data) != self._recorded():
                    raise VaultBroken(
                        "The vault is not the one this home last wrote: it was changed, deleted, or replaced by an "
                        "old copy.",
                        RESTORE,
                    )
        self._open = self._parse(data) if data else _Open()
        now = ((name, value) for name, (_, value) in self._open.entries.items())
        self._known = tuple(dict.fromkeys((*self._known, *now)))
        self._seen = seen

    def _recorded(self) -> str:
        recorded = dict(self._writer.rows("SELECT name, value FROM meta WHERE name = 'vault_sha256'"))
        return str(recorded.get("vault_sha256", ""))

    def _parse(self, data: bytes) -> _Open:
        try:
            value = orjson.loads(data)
            signature = value.pop("mac")
            master = self._key(value["key"], create=False)
            if not box.same(box.mac(master, value), str(signature)):
                raise VaultBroken("The vault's key is not the right one, or its file was changed.", RESTORE)
            self._master = master
            entries = {name: self._unseal(value["vault_id"], name, one) for name, one in value["secrets"].items()}
            return _Open(value["vault_id"], value["generation"], value["key"], entries)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise VaultBroken(f"The vault {self._file.path} is damaged.", RESTORE) from None

    def _unseal(self, vault_id: str, name: str, one: Mapping[str, Any]) -> tuple[SecretFacts, bytes]:
        facts = parse_facts(name, one["facts"])
        return facts, box.unseal(self._master, one["sealed"], bound={"vault": vault_id} | facts.as_json())

    def _key(self, source: Mapping[str, Json], *, create: bool) -> bytes:
        if self._master and not create and source == self._open.source:
            return self._master
        from palyra.vault import keys

        match source["source"]:
            case "file":
                return keys.read_or_create_key_file(self._file.folder / "master.key", create=create)
            case "keyring":
                return keys.from_keyring(str(source["account"]), create=create)
            case _:
                passphrase = keys.passphrase_of(self._config.passphrase_file, self._ask)
                return keys.from_passphrase(passphrase, bytes.fromhex(str(source["salt"])))

    # ── changing ──

    async def set(
        self, name: str, value: bytes, *, scope: Scope | None = None, binding: Binding | None = None, actor: str
    ) -> SecretFacts:
        """A new secret, or a new version of one, which keeps scope and host unless others are given.

        ConfigError for what cannot be one.
        """
        check_name(name)
        check_value(name, value)
        if binding is not None:
            binding = checked(binding.host, binding.header, binding.prefix)
        now = self._now_unix_ms()

        def make(known: SecretFacts | None) -> SecretFacts:
            kept = known or SecretFacts(name=name, version=0, created_unix_ms=now)
            facts = replace(kept, version=kept.version + 1, created_unix_ms=now)
            facts = replace(facts, scope=scope or kept.scope, binding=binding or kept.binding)
            if facts.binding is not None:
                line_of(name, value)
            return facts

        return await self._change(ActKind.SECRET_SET, name, make, value, actor)

    async def delete(self, name: str, *, actor: str) -> bool:
        self.load()
        if name not in self._open.entries:
            return False

        def keep(known: SecretFacts | None) -> SecretFacts:
            return known or SecretFacts(name=name, version=0, created_unix_ms=0)

        await self._change(ActKind.SECRET_DELETED, name, keep, None, actor)
        return True

    async def _change(
        self,
        kind: ActKind,
        name: str,
        make: Callable[[SecretFacts | None], SecretFacts],
        value: bytes | None,
        actor: str,
    ) -> SecretFacts:
        async with self._changing:
            async with self._file.changing():
                self._file.finish_staged(self._recorded())
                self._load()
                facts = make(self._open.entries[name][0] if name in self._open.entries else None)
                await self._commit(kind, facts, value, actor)
            self._load()
        return facts

    async def _commit(self, kind: ActKind, facts: SecretFacts, value: bytes | None, actor: str) -> None:
        data, generation = self._compose(facts, value)
        self._file.stage(data)
        # Of what is encrypted under fresh keys. A row alone could be set back together with an old copy of the file.
        details = facts.as_json() | {"generation": generation, "vault_sha256": digest_of(data)}
        act = Act(kind=kind, actor=actor, subject=f"secret/{facts.name}", details=details)
        now = self._now_unix_ms()

        def record(tx: Transaction) -> None:
            tx.keep_meta("vault_sha256", digest_of(data))
            record_act(tx, act, at_unix_ms=now)

        await self._writer.commit(record)
        self._file.put_in_place()

    def _compose(self, facts: SecretFacts, value: bytes | None) -> tuple[bytes, int]:
        """The whole file anew: every value under a fresh key."""
        opened = self._open
        source = dict(opened.source) or self._new_source()
        vault_id = opened.vault_id or os.urandom(16).hex()
        master = self._key(source, create=not opened.generation)
        entries = {name: entry for name, entry in opened.entries.items() if name != facts.name}
        if value is not None:
            entries[facts.name] = (facts, value)
        if len(entries) > MAX_SECRETS:
            raise ConfigError(f"The vault holds at most {MAX_SECRETS} secrets.", "Delete some: palyra secrets list.")
        content: dict[str, Json] = {
            "format": 1,
            "vault_id": vault_id,
            "generation": opened.generation + 1,
            "key": source,
            "secrets": {name: _sealed(master, vault_id, *entry) for name, entry in sorted(entries.items())},
        }
        return canonical(content | {"mac": box.mac(master, content)}), opened.generation + 1

    def _new_source(self) -> dict[str, Json]:
        match self._config.key:
            case "keyring":
                return {"source": "keyring", "account": os.urandom(16).hex()}
            case "passphrase":
                return {"source": "passphrase", "kdf": "scrypt", "salt": os.urandom(16).hex()}
            case _:
                return {"source": "file"}


def _sealed(master: bytes, vault_id: str, facts: SecretFacts, value: bytes) -> dict[str, Json]:
    bound = {"vault": vault_id} | facts.as_json()
    return {"facts": facts.as_json(), "sealed": box.seal(master, value, bound=bound)}
