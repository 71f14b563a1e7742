"""Touches: the tokens' rows. A change and its act in the journal are one transaction.

Not here: what a token is and when it holds (tokens/rules), who may ask with it (daemon/auth).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from palyra.errors import Reason, Rejected
from palyra.journal.acts import Act, ActKind, record_act
from palyra.journal.token_standing import token_row_sha256
from palyra.state.remembered import Remembered
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.tokens.rules import SECRET_BYTES, Token, digest_of, id_of, is_same, new_token, spell

LAST = "\uffff"
MAX_KNOWN = 256
_COLUMNS = "token_id, principal, operator, workspace, created_unix_ms, expires_unix_ms, revoked_unix_ms"
_FIND = f"SELECT digest, {_COLUMNS} FROM tokens WHERE token_id = ?"  # noqa: S608  # column names of our own
_LIST = f"SELECT {_COLUMNS} FROM tokens WHERE token_id < ? ORDER BY token_id DESC LIMIT ?"  # noqa: S608


class TokenStore:
    def __init__(
        self,
        writer: Writer,
        *,
        new_id: Callable[[], str],
        random_bytes: Callable[[int], bytes],
        now_unix_ms: Callable[[], int],
    ) -> None:
        self._writer = writer
        self._new_id = new_id
        self._random = random_bytes
        self._now = now_unix_ms
        self._rows = Remembered(writer)
        self._known: dict[str, tuple[tuple[Any, ...], Token]] = {}

    async def create(
        self, *, principal: str, operator: bool, by: str, workspace: str = "", lifetime_ms: int | None = None
    ) -> tuple[Token, str]:
        """(what is kept, the token itself): it is shown this once."""
        token = new_token(
            token_id=self._new_id(),
            principal=principal,
            operator=operator,
            workspace=workspace,
            now_unix_ms=self._now(),
            lifetime_ms=lifetime_ms,
        )
        secret = spell(token.token_id, self._random(SECRET_BYTES))
        await self._writer.commit(lambda tx: _insert(tx, token, digest_of(secret), by=by))
        return token, secret

    async def revoke(self, token_id: str, *, by: str) -> Token:
        """From the next request on. One that was revoked before stays as it was."""

        def work(tx: Transaction) -> None:
            sql = "UPDATE tokens SET revoked_unix_ms = ? WHERE token_id = ? AND revoked_unix_ms IS NULL"
            now = self._now()
            if tx.execute(sql, (now, token_id)).rowcount:
                principal = tx.rows("SELECT principal FROM tokens WHERE token_id = ?", (token_id,))[0][0]
                subject = f"token/{token_id}"
                act = Act(kind=ActKind.TOKEN_REVOKED, actor=by, subject=subject, details={"principal": principal})
                record_act(tx, act, at_unix_ms=now)

        await self._writer.commit(work)
        found = self.by_id(token_id)
        if found is None:
            raise Rejected(Reason.BAD_ARGUMENTS, f"There is no token {token_id[:40]!r}.", "palyra token list")
        return found

    def find(self, secret: str) -> Token | None:
        """The token that this is, if it holds now; its row as of now, whoever changed it (state/remembered)."""
        token_id = id_of(secret)
        rows = [] if token_id is None else self._rows.rows(_FIND, (token_id,))
        if not rows or not is_same(rows[0][0], secret):
            return None
        token = self._read(rows[0])
        return token if token.holds(self._now()) else None

    def _read(self, row: tuple[Any, ...]) -> Token:
        """Of a row that was read now; one that says what it said is the token it was."""
        known = self._known.get(row[1])
        if known is not None and known[0] == row:
            return known[1]
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        token = _token(row[1:])
        self._known[token.token_id] = row, token
        return token

    def by_id(self, token_id: str) -> Token | None:
        rows = self._writer.rows(_FIND, (token_id,))
        return _token(rows[0][1:]) if rows else None

    def list(self, *, before: str = LAST, count: int = 50) -> tuple[Token, ...]:
        """The newest first, also those that ended."""
        return tuple(_token(row) for row in self._writer.rows(_LIST, (before, count)))


def _insert(tx: Transaction, token: Token, digest: bytes, *, by: str) -> None:
    values = (
        token.token_id,
        digest,
        token.principal,
        int(token.operator),
        token.workspace,
        token.created_unix_ms,
        token.expires_unix_ms,
    )
    tx.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", values)
    act = Act(
        kind=ActKind.TOKEN_CREATED,
        actor=by,
        subject=f"token/{token.token_id}",
        details={
            "principal": token.principal,
            "operator": token.operator,
            "expires_at_unix_ms": token.expires_unix_ms,
            "row_sha256": token_row_sha256(digest, token.workspace),
        },
    )
    record_act(tx, act, at_unix_ms=token.created_unix_ms)


def _token(row: tuple[Any, ...]) -> Token:
    token_id, principal, operator, workspace, created, expires, revoked = row
    return Token(
        token_id=token_id,
        principal=principal,
        operator=bool(operator),
        workspace=workspace,
        created_unix_ms=created,
        expires_unix_ms=expires,
        revoked_unix_ms=revoked,
    )
