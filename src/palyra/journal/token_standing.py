"""The daemon's tokens, held against what the entries say of them.

Found: a token that nobody made, one that became another principal's or an operator's, one that was prolonged, was given
another secret or workspace, or that counts again after it was revoked, and one whose row is gone. Rows are unsigned,
and the acts `token.created` and `token.revoked` say what they hold; those of older versions say nothing of secret and
workspace, which are not compared then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from palyra.canon import sha256_hex
from palyra.journal.acts import ActKind
from palyra.journal.entry import EntryView
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    token_id: str
    said: Mapping[str, object]
    """As the act that made it names its details."""
    is_revoked: bool


def token_row_sha256(digest: bytes, workspace: str) -> str:
    """Of what the row alone says: the digest of 32 random bytes, beside which nobody guesses the workspace."""
    return sha256_hex(b"palyra token\0" + digest + workspace.encode("utf-8", "surrogatepass"))


class TokenStanding:
    def __init__(self) -> None:
        self._made: dict[str, Mapping[str, object]] = {}
        self._revoked: set[str] = set()

    def read(self, view: EntryView) -> None:
        act, token_id = view.act, view.subject.removeprefix("token/")
        if act == ActKind.TOKEN_CREATED:
            details = view.predicate.get("details")
            self._made[token_id] = details if isinstance(details, Mapping) else {}
        elif act == ActKind.TOKEN_REVOKED:
            self._revoked.add(token_id)

    def check(self, rows: Iterable[TokenRow]) -> Iterator[str]:
        for row in rows:
            made = self._made.pop(row.token_id, None)
            same = made is not None and all(made.get(name, value) == value for name, value in row.said.items())
            if not same or row.is_revoked is not (row.token_id in self._revoked):
                yield f"The row of token {row.token_id[:40]} is not what its entries say."
        for token_id in self._made:
            yield f"The row of token {token_id[:40]} is missing."
