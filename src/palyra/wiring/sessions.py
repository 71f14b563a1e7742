"""The console's sessions among the home's rows: by the digest of their id, which alone is kept.

Rules: bounded in number, the longest unused go first; what is past its time is removed when another is opened. A login
and a logout commit with the entry that tells of them, so that a row nobody logged in for is found.

Not here: what a session is worth (daemon/sessions), the tokens they may hang on (tokens/).
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.journal.acts import Act, ActKind, record_act
from palyra.journal.session_standing import session_name
from palyra.state.transaction import Transaction
from palyra.state.writer import Writer
from palyra.values import dataclass

MAX_SESSIONS = 256
_COLUMNS = "digest, principal, credential_id, created_unix_ms, expires_unix_ms, used_unix_ms"
_FIND = f"SELECT {_COLUMNS} FROM sessions WHERE digest = ?"  # noqa: S608  # column names of our own
_TOO_MANY = (
    "DELETE FROM sessions WHERE digest IN (SELECT digest FROM sessions ORDER BY used_unix_ms DESC LIMIT ? OFFSET ?)"
)
_USED = "UPDATE sessions SET used_unix_ms = ? WHERE digest = ? AND used_unix_ms < ?"
_ALL = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSession:
    digest: bytes
    principal: str
    credential_id: str
    created_unix_ms: int
    expires_unix_ms: int
    used_unix_ms: int


def _opened(session: KeptSession) -> Act:
    return Act(
        kind=ActKind.SESSION_OPENED,
        actor=session.principal,
        subject=f"session/{session_name(session.digest)}",
        details={
            "principal": session.principal,
            "credential_id": session.credential_id,
            "expires_at_unix_ms": session.expires_unix_ms,
        },
    )


class SessionRows:
    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def find(self, digest: bytes) -> KeptSession | None:
        for row in self._writer.rows(_FIND, (digest,)):
            return KeptSession(
                digest=bytes(row[0]),
                principal=row[1],
                credential_id=row[2],
                created_unix_ms=row[3],
                expires_unix_ms=row[4],
                used_unix_ms=row[5],
            )
        return None

    async def add(self, session: KeptSession) -> None:
        values = (
            session.digest,
            session.principal,
            session.credential_id,
            session.created_unix_ms,
            session.expires_unix_ms,
            session.used_unix_ms,
        )

        def work(tx: Transaction) -> None:
            tx.execute("DELETE FROM sessions WHERE expires_unix_ms <= ?", (session.created_unix_ms,))
            tx.execute(_TOO_MANY, (_ALL, MAX_SESSIONS - 1))
            tx.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", values)
            record_act(tx, _opened(session), at_unix_ms=session.created_unix_ms)

        await self._writer.commit(work)

    async def drop(self, digest: bytes, *, at_unix_ms: int) -> None:
        def work(tx: Transaction) -> None:
            for (principal,) in tx.rows("SELECT principal FROM sessions WHERE digest = ?", (digest,)):
                tx.execute("DELETE FROM sessions WHERE digest = ?", (digest,))
                subject = f"session/{session_name(digest)}"
                act = Act(
                    kind=ActKind.SESSION_ENDED, actor=principal, subject=subject, details={"principal": principal}
                )
                record_act(tx, act, at_unix_ms=at_unix_ms)

        await self._writer.commit(work)

    async def used(self, at_unix_ms: Mapping[bytes, int]) -> None:
        def work(tx: Transaction) -> None:
            for digest, at in at_unix_ms.items():
                tx.execute(_USED, (at, digest, at))

        await self._writer.commit_closing(work)
