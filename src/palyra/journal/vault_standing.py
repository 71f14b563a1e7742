"""The vault's file, held against what the entries say of it.

Found: an old copy of the vault put back together with the row that names its digest: a secret that was deleted or
replaced would be used again. The acts `secrets.set` and `secrets.deleted` name the digest of the file that they leave,
which is of encrypted bytes with fresh keys and tells nothing of a secret; the newest of them counts. Whether the file
is the one that the row names, the vault itself asks whenever it opens it (vault/store).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView

_ACTS = frozenset({ActKind.SECRET_SET.value, ActKind.SECRET_DELETED.value})


class VaultStanding:
    def __init__(self) -> None:
        self._newest: object = None

    def read(self, view: EntryView) -> None:
        """Acts of older versions do not say it."""
        if view.act in _ACTS:
            details = view.predicate.get("details")
            self._newest = details.get("vault_sha256") if isinstance(details, Mapping) else None

    def check(self, recorded: str) -> Iterator[str]:
        if self._newest is not None and self._newest != recorded:
            yield "The vault that the database names is not the one that the newest entry about it left."
