"""Joins approvals to a home: the store with the configuration's times, and the webhook that hears of new requests."""

from __future__ import annotations

from palyra.approvals.store.desk import ApprovalStore, Times
from palyra.config.schema import ApprovalsConfig
from palyra.engine.ports import Clock, Ids
from palyra.state.writer import Writer
from palyra.wiring.webhook import Webhook


def make_approvals(
    writer: Writer, config: ApprovalsConfig, *, clock: Clock, ids: Ids, webhook: Webhook
) -> ApprovalStore:
    times = Times(request_ms=config.request_ms, grant_ms=config.grant_ms, max_pending=config.max_pending)
    return ApprovalStore(writer, times=times, new_id=ids.ulid, now_unix_ms=clock.now_unix_ms, announce=webhook.announce)
