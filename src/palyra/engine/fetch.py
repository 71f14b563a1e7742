"""palyra.http.fetch: before, an order and the job that will read the answer; after, what came of both.

Two halves: the request goes out from here, through a port that judges every hop; its answer is unpacked and read by a
program of ours in tier C without any network. Rules: the host must be granted (a fact that policy decides over); no
header outside two short lists goes out or comes back; credentials are asked for per request and never stored.

Not here: connecting (egress/fetch), reading the answer (inside/page).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson

from palyra.canon import Json
from palyra.egress.fetch_url import parse_url
from palyra.egress.preflight import denied
from palyra.engine.inside import PYTHON, SYSTEM_PATH, Said, clean, execute, make_job, read_answer, unanswered
from palyra.engine.network import granted_network
from palyra.engine.ports import Ports
from palyra.engine.trip import Ending, Trip
from palyra.errors import Reason, Rejected, StateError
from palyra.guard.files import guard_inside
from palyra.model.credential import Credential
from palyra.model.fetch import Fetched, FetchFailed, FetchOrder, FetchUrl, Hop
from palyra.model.net import EgressMode, NamedHost, NetGrant
from palyra.model.outcome import Connection, Execution, Status, StreamName, Usage
from palyra.model.plan import FetchPlan
from palyra.model.sights import LookRequest
from palyra.protocol.fetch_catalog import (
    ANSWER_HEADERS,
    DEFAULT_BYTES,
    DEFAULT_REDIRECTS,
    DEFAULT_TIMEOUT_MS,
    FETCH_TOOL,
)
from palyra.redact.stream import Redactor

MAX_HEADER_CHARS = 4096
HTTP_FETCH = FETCH_TOOL.name
_HINTS = {
    "EGRESS_DENIED": "Grant it with allowed_egress_hosts, a private address by its range as well.",
    "TIMEOUT": "Ask for more with timeout_ms, or for less of it.",
    "TLS_FAILED": "The host's certificate must be signed by an authority this machine trusts, for that name.",
    "TOO_MANY_REDIRECTS": "Fetch the last location itself, or raise max_redirects.",
}
_REASONS = {"EGRESS_DENIED": Reason.EGRESS_DENIED, "TIMEOUT": Reason.TIMEOUT}


def prepare_fetch(trip: Trip, ports: Ports) -> None:
    """2 look, 3 guard — where the request would go, and the job that reads its answer."""
    assert trip.call is not None
    runner = ports.config.tool_call.process_runner
    net = granted_network(trip.run, runner)
    trip.fetch = order = _order(trip.call.input, net, trip.run.limits.wall_ms)
    named = (NamedHost(order.url.host, order.url.port, "url"),)
    refused = () if net.mode is EgressMode.NONE else denied(net, named)
    trip.sights = ports.look.look(
        LookRequest(workspace=trip.call.workspace, cwd="", command=PYTHON, search_path=SYSTEM_PATH)
    )
    facts = guard_inside(trip.sights, hosts_denied=refused)
    trip.facts = replace(
        facts,
        egress=net.mode.value,
        hosts_named=1,
        hosts_denied=len(refused),
        egress_raw=any(host.raw for host in net.hosts),
        granted_egress=trip.run.grant.egress is not None or bool(trip.run.grant.hosts),
    )
    trip.job = make_job(trip, ports, entry="page", stdin=None, writable=False)


def _order(given: Mapping[str, Json], net: NetGrant, wall_ms: int) -> FetchOrder:
    return FetchOrder(
        method=given.get("method", "GET"),
        url=parse_url(given["url"]),
        headers=tuple(sorted(given.get("headers", {}).items())),
        body=_body(given),
        net=net,
        max_bytes=given.get("max_bytes", DEFAULT_BYTES),
        timeout_ms=min(given.get("timeout_ms", DEFAULT_TIMEOUT_MS), wall_ms),
        max_redirects=given.get("max_redirects", DEFAULT_REDIRECTS),
    )


def _body(given: Mapping[str, Json]) -> bytes:
    if "body_base64" not in given:
        return str(given.get("body", "")).encode("utf-8")
    try:
        return base64.b64decode(given["body_base64"], validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(Reason.BAD_ARGUMENTS, "body_base64 is not base64.", "Send text as `body`.") from None


async def run_fetch(trip: Trip, plan: FetchPlan, ports: Ports) -> Ending:
    """9, 10 — out, back, and through the sandbox."""

    def credentials(url: FetchUrl) -> Sequence[Credential]:
        who = {"principal": str(trip.run.context.principal), "tool": HTTP_FETCH}
        try:
            return ports.secrets.credentials(url.host, url.port, encrypted=url.encrypted, **who)
        except StateError as error:
            raise Rejected(Reason.CAPABILITY_DENIED, error.detail, error.hint) from None

    try:
        fetched = await ports.fetcher.fetch(plan.order, credentials)
    except FetchFailed as failure:
        return _failed(trip, plan, ports, failure)
    return await _read(trip, plan, ports, fetched)


def _failed(trip: Trip, plan: FetchPlan, ports: Ports, failure: FetchFailed) -> Ending:
    """Nothing came back that could be read, so no sandbox was used."""
    status = Status.TIMEOUT if failure.code == "TIMEOUT" else Status.COMPLETED
    usage = Usage(wall_us=ports.clock.monotonic_us() - trip.started_us)
    output = {"error": {"code": failure.code, "message": failure.detail}}
    output |= _ways(plan, failure.redirects, failure.connections)
    return Ending(
        status=status,
        reason=_REASONS.get(failure.code),
        message=failure.detail,
        hint=_HINTS.get(failure.code),
        execution=Execution(status=status, usage=usage, connections=failure.connections),
        by_engine=True,
        output=clean(trip, ports, output),
    )


async def _read(trip: Trip, plan: FetchPlan, ports: Ports, fetched: Fetched) -> Ending:
    headers = dict(fetched.headers)
    head = {
        "content_type": headers.get("content-type", "")[:1024],
        "content_encoding": headers.get("content-encoding", "")[:256],
        "max_bytes": plan.order.max_bytes,
        "format": trip.call.input.get("format", "text") if trip.call is not None else "text",
    }
    execution, kept = await execute(trip, plan.parser, ports, Said(orjson.dumps(head) + b"\n" + fetched.body))
    execution = replace(execution, connections=fetched.connections)
    answer = read_answer(execution, bytes(kept.parts[StreamName.STDOUT]))
    ways = _ways(plan, fetched.redirects, fetched.connections)
    if answer is None:
        ending = unanswered(trip, execution, bytes(kept.parts[StreamName.STDERR]))
        error = {"code": str(ending.reason), "message": ending.message or ""}
        output = clean(trip, ports, {"error": error} | ways)
        # The request went out, whether its answer could be read or not.
        return replace(ending, by_engine=ending.reason is Reason.SPAWN_FAILED, output=output)
    if "error" in answer:
        output = clean(trip, ports, {"error": dict(answer["error"])} | ways)
        message = str(answer["error"].get("message"))
        return Ending(status=Status.COMPLETED, message=message, execution=execution, output=output)
    tail = Redactor(ports.secrets.known_values(trip.run.run_id)).most_held_bytes
    result = {"status": fetched.status, "url": fetched.url, "headers": _told(headers, tail), **answer["result"], **ways}
    result["truncated"] = bool(result.get("truncated")) or fetched.truncated
    if result["truncated"] and tail:
        result |= _short_of(result, tail)
    return Ending(status=Status.COMPLETED, success=True, execution=execution, output=clean(trip, ports, result))


def _short_of(result: Mapping[str, Json], tail: int) -> dict[str, Json]:
    """Where we cut, all but the last letter of a secret could stand, which redaction does not know any more: a piece
    as long as any of them goes, whatever it is, so that nobody learns from what is missing."""
    short: dict[str, Json] = {}
    if isinstance(text := result.get("text"), str):
        short["text"] = text[: max(0, len(text) - tail)]
    if isinstance(body := result.get("body_base64"), str):
        data = base64.b64decode(body)
        short["body_base64"] = base64.b64encode(data[: max(0, len(data) - tail)]).decode("ascii")
    return short


def _told(headers: Mapping[str, str], tail: int) -> dict[str, Json]:
    told = {name: value for name, value in sorted(headers.items()) if name in ANSWER_HEADERS}
    most = max(0, MAX_HEADER_CHARS - tail)
    return {name: value if len(value) <= MAX_HEADER_CHARS else value[:most] for name, value in told.items()}


def _ways(plan: FetchPlan, redirects: Sequence[Hop], connections: Sequence[Connection]) -> dict[str, Json]:
    return {
        "redirects": [{"url": hop.url, "status": hop.status} for hop in redirects],
        "egress": plan.net.as_json()
        | {
            "connections": [
                {
                    "host": c.host,
                    "port": c.port,
                    "verdict": c.verdict,
                    "bytes_up": c.bytes_up,
                    "bytes_down": c.bytes_down,
                }
                for c in connections
            ]
        },
    }
