"""Every route with every kind of credential, made from the table: a route that is added is tested by being there.

Handlers are replaced by one that says it was reached, so what is tested is the door alone, and nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from starlette.responses import Response

from palyra.daemon.routes import JSON_TYPE, Asked, Route, Who
from palyra.daemon.sessions import Failures
from palyra.daemon.table import ROUTES
from tests.daemons import OPERATOR, OTHER, Daemon, daemon
from tests.promises import promise

REACHED = 299


async def reached(asked: Asked) -> Response:
    return Response(status_code=REACHED)


def _gate(route: Route) -> Route:
    return replace(route, handler=reached, body=None, query=None, accepts=JSON_TYPE)


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict]:
    with daemon(tmp_path_factory.mktemp("matrix") / "home", tuple(_gate(route) for route in ROUTES)) as served:
        revoked = served.token()
        token_id = revoked.split("_")[1]
        served.run(served.state.tokens.revoke(token_id, by=OPERATOR))
        yield {"served": served, **credentials(served), "revoked": {"token": revoked}}


def credentials(served: Daemon) -> dict:
    session = served.login()
    expired = served.token(lifetime_ms=1000)
    return {
        "none": {},
        "no bearer": {"headers": {"Authorization": "Basic cGFseXJh"}},
        "bad token": {"token": "palyra_" + "0" * 26 + "_" + "0" * 64},
        "garbage": {"token": "x" * 500},
        "expired": {"token": expired},
        "other agent": {"token": served.token(OTHER)},
        "agent": {"token": served.token()},
        "operator": {"token": served.token(OPERATOR, operator=True)},
        "session": {"session": session},
        "session, wrong csrf": {"session": session, "csrf": "0" * 64},
        "session and csrf": {"session": session, "csrf": session[1]},
        "made-up session": {"session": ("f" * 64, "")},
        "peer": {"peer_uid": served.owner_uid},
        "other peer": {"peer_uid": served.owner_uid + 1},
        "agent by the socket": {"token": served.token(), "peer_uid": served.owner_uid},
        "bad token by the socket": {"token": "x", "peer_uid": served.owner_uid},
    }


UNKNOWN = ("none", "made-up session", "other peer")
WRONG = ("no bearer", "bad token", "garbage", "expired", "revoked", "bad token by the socket")
AGENTS = ("other agent", "agent", "agent by the socket")
OPERATORS = ("operator", "session and csrf", "peer")
SESSIONS = ("session", "session, wrong csrf")


def expected(route: Route, kind: str) -> int:
    """What the rules of the door say, written once more and otherwise."""
    if route.who is Who.ANYBODY:
        return REACHED
    if kind in WRONG:
        return 401
    if kind in UNKNOWN:
        return 303 if route.page and not route.mutates else 401
    if kind in SESSIONS:
        return 403 if route.mutates else REACHED
    if kind in AGENTS:
        return 403 if route.who is Who.OPERATOR else REACHED
    assert kind in OPERATORS
    return REACHED


@promise("daemon.console-operators", "daemon.token-rights")
@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
def test_who_may_use_a_route(door, route):
    served: Daemon = door["served"]
    path = route.path.replace("{", "").replace("}", "")
    found, wanted = {}, {}
    for kind, credential in door.items():
        if kind == "served":
            continue
        served.state.failures = Failures(now_unix_ms=served.state.clock.now_unix_ms)
        options = dict(credential)
        if kind == "expired":
            served.state.tokens._now = lambda: 1 << 50
        try:
            found[kind] = served.ask(route.method, path, **options).status_code
        finally:
            served.state.tokens._now = served.state.clock.now_unix_ms
        wanted[kind] = expected(route, kind)
    assert found == wanted


@promise("daemon.token-rights")
def test_every_mutation_demands_a_credential():
    open_to_all = [route.name for route in ROUTES if route.mutates and route.who is Who.ANYBODY]
    assert open_to_all in ([], ["login"], ["log_in"]), "only logging in may be tried by anybody"


@promise("daemon.console-operators", "daemon.token-rights")
def test_what_only_operators_do_is_for_operators():
    for route in ROUTES:
        if route.path.startswith("/console/v1/"):
            assert route.who is Who.OPERATOR, route.name


def test_names_and_places_are_unique():
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert len({(route.method, route.path) for route in ROUTES}) == len(ROUTES)
