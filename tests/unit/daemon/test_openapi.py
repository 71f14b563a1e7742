"""The document is made from the table: every route with every answer, and its own schemas resolve."""

from __future__ import annotations

import json
import re

from palyra.daemon.openapi import answers_of, make_openapi
from palyra.daemon.table import ROUTES


def test_every_route_and_every_answer_is_described(served):
    document = served.ask("GET", "/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    shown = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert shown == {(route.method, route.path) for route in ROUTES if not route.page}
    for route in ROUTES:
        if not route.page:
            described = document["paths"][route.path][route.method.lower()]["responses"]
            assert set(described) == {str(status) for status in answers_of(route)}


def test_every_reference_leads_somewhere():
    document = make_openapi(ROUTES)
    text = json.dumps(document)
    defined = set(document["components"]["schemas"])
    assert {name.rsplit("/", 1)[1] for name in re.findall(r'"\$ref": "([^"]+)"', text)} <= defined


def test_nothing_but_health_is_open():
    document = make_openapi(ROUTES)
    unprotected = [
        path for path, methods in document["paths"].items() if any(one["security"] == [] for one in methods.values())
    ]
    assert set(unprotected) <= {"/healthz", "/openapi.json"}
