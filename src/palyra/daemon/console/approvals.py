"""`/console/approvals`: the queue, live and by keyboard; one request whole, exactly as it would run; the grants."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.responses import Response

from palyra.canon import Json
from palyra.daemon.console.making import form, page, then, to, to_the
from palyra.daemon.console.rendering import render
from palyra.daemon.console.words import argv
from palyra.daemon.operators import approvals as acts
from palyra.daemon.operators.answering import installed
from palyra.daemon.operators.events import journal_size
from palyra.daemon.routes import Asked
from palyra.model.approval import Approval
from palyra.model.visible import visible
from palyra.values import dataclass

MAX_QUEUE = 50
MAX_CHARS = 1500
"""Of what would run, for a decision from the queue: all of it must be in sight without scrolling, or an argument past a
page of spaces would be approved unseen."""
MAX_LINES = 24
MAX_HOSTS = 6


class QueuePage(acts.WhichApprovals):
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A request in the queue: what a person needs to see before one key decides."""

    approval: Approval
    shown: dict[str, Json]

    @property
    def argv(self) -> list[str]:
        found = self.shown.get("argv")
        return [str(word) for word in found] if isinstance(found, list) else []

    @property
    def input(self) -> str:
        return orjson.dumps(self.shown.get("input"), option=orjson.OPT_INDENT_2).decode()

    @property
    def text(self) -> str:
        """What would run, as one text that is safe to read: every word quoted, what hides spelled out."""
        return visible(argv(self.argv) if self.argv else self.input)

    @property
    def beginning(self) -> str:
        return self.text[:MAX_CHARS]

    @property
    def stdin_bytes(self) -> int:
        stdin = self.shown.get("stdin")
        found = stdin.get("bytes", 0) if isinstance(stdin, dict) else 0
        return found if isinstance(found, int) else 0

    @property
    def fits(self) -> bool:
        """It can be seen whole in the queue. What is given on stdin cannot: for an interpreter it is the program."""
        return (
            not self.stdin_bytes
            and len(self.text) <= MAX_CHARS
            and self.text.count("\n") < MAX_LINES
            and len(self.hosts) <= MAX_HOSTS
        )

    @property
    def is_plain(self) -> bool:
        """False when letters of other alphabets, or marks, could make a name look like another."""
        return "".join((*self.argv, self.input, self.approval.program)).isascii()

    @property
    def hosts(self) -> list[str]:
        network = self.shown.get("network")
        return [str(host) for host in network.get("allowed_hosts", ())] if isinstance(network, dict) else []

    @property
    def is_whole(self) -> bool:
        """False when what was kept is no longer what was asked: then nothing is to be decided from here."""
        return bool(self.shown)


def waiting_of(asked: Asked, approval: Approval) -> Waiting:
    return Waiting(approval=approval, shown=dict(installed(asked).approvals.shown(approval)))


async def queue_page(asked: Asked) -> Response:
    query: QueuePage = asked.query
    store = installed(asked).approvals
    seen = journal_size(asked)  # before the list is read: what comes after it is an event
    listing: Any = await acts.list_approvals(asked)
    found = [store.find(item["approval_id"]) for item in listing["items"][:MAX_QUEUE]]
    queue = [waiting_of(asked, approval) for approval in found if approval is not None]
    return render(
        asked,
        "approvals.html",
        section="approvals",
        state=query.state,
        states=("pending", "approved", "denied", "expired", "revoked", "all"),
        queue=queue,
        seen=seen - 1,
        next=listing["next"],
        grants=store.grants() if query.state == "pending" else (),
        own=asked.caller.principal,
    )


async def request_page(asked: Asked) -> Response:
    whole: Any = await acts.show_approval(asked)
    return render(
        asked,
        "approval.html",
        section="approvals",
        it=whole,
        call=whole["call"],
        fatigue=whole["fatigue"],
        own=asked.caller.principal,
        events=[item for item in whole["changes"] if item["field"] not in ("call_id", "run_id")],
    )


ROUTES = (
    page("/approvals", queue_page, name="approvals", says="What waits for a person.", query=QueuePage),
    page("/approvals/{id}", request_page, name="approval", says="One request, exactly as it would run."),
    form("/approvals/{id}/approve", then(acts.approve, to("approvals", said="approved")), name="approve",
         says="Say yes.", body=acts.Approving),
    form("/approvals/{id}/deny", then(acts.deny, to("approvals", said="denied")), name="deny", says="Say no.",
         body=acts.Denying),
    form("/approvals/{id}/revoke", then(acts.revoke, to_the("approvals", "id", said="revoked")), name="revoke",
         says="Take a yes or a no back."),
)  # fmt: skip
