"""Cedar decisions on the default bundle, nothing remembered, beside cedarpy with text arguments and casbin.

`cedar_cached` measures decisions that were made before; `cedar_growth` the same with many more policies.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import cedarpy

from bench.harness import Aim, Contender, Row, timed
from bench.installation import Ground
from bench.peers import worker
from palyra.policy.bundle import PolicyBundle
from palyra.policy.cedar import _entity_list
from palyra.policy.examples import ordinary_request
from palyra.policy.request import Request
from palyra.policy.store import load_posture
from palyra.policy.verdict import judge

COUNT = 50
"""Decisions in one round, each about a request that differs from the others."""
TEXT = "cedarpy with text"


@contextmanager
def open_row(ground: Ground) -> Iterator[Row]:
    bundle = load_posture("standard")
    with casbin() as peer:
        yield Row(
            name="cedar",
            title=f"Cedar: {COUNT} decisions on the default bundle, nothing remembered",
            note="Ours finds allow, ask or deny and names policies and code. Each request differs, so no decision is "
            "remembered; policies and entities are parsed, and which policies are about this agent, tool and set of "
            "yes-or-no facts is known. The text peer gets policies, schema, entities and request as text each time, as "
            "its own examples do; casbin gets the same rules, written for it.",
            contenders=(decisions(bundle, "palyra, uncached"), as_text(bundle, COUNT), peer),
            aims=(Aim(peer=TEXT, at_most=1 / 30),),
        )


def requests(count: int = COUNT) -> list[Request]:
    return [ordinary_request(program=f"tool{at}", hosts_named=at % 3, calls_used=at) for at in range(count)]


def decisions(bundle: PolicyBundle, name: str) -> Contender:
    asked = requests()

    def work() -> list[str]:
        return [judge(bundle.cedar, bundle.index, one).effect for one in asked]

    return Contender(name=name, run=timed(work, check_all("allow")))


def check_all(expected: str) -> Callable[[list[str]], None]:
    def check(effects: list[str]) -> None:
        if effects != [expected] * len(effects):
            raise RuntimeError(f"decided {set(effects)}")

    return check


def as_text(bundle: PolicyBundle, count: int) -> Contender:
    policies = "\n".join(bundle.policies.values())
    entities = json.dumps(_entity_list(ordinary_request()))
    asked = [_as_text(request) for request in requests(count)]

    def work() -> list[str]:
        results = (cedarpy.is_authorized(one, policies, entities, bundle.schema) for one in asked)
        return ["allow" if result.allowed and not result.diagnostics.errors else "deny" for result in results]

    return Contender(name=TEXT, run=timed(work, check_all("allow")))


def _as_text(request: Request) -> dict[str, object]:
    uids = {slot: f"{uid['type']}::{json.dumps(uid['id'])}" for slot, uid in request.uids.items()}
    return {**uids, "context": request.cedar["context"]}


def casbin() -> AbstractContextManager[Contender]:
    return worker("casbin", "casbin_worker.py", str(COUNT))
