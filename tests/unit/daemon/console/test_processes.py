"""Background processes in the console: seen, read with what they wrote as text, and ended by an operator."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from palyra.daemon.operators.processes import ROUTES
from tests.consoles import HOSTILE, SCRIPT, World
from tests.daemons import OPERATOR, daemon
from tests.keeping import kept_home, wait_for
from tests.markup import Markup

BY_NAME = {route.name: route for route in ROUTES}


@pytest.fixture
def lived(tmp_path):
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "hostile.txt").write_text(HOSTILE)
    with kept_home(tmp_path / "home"), daemon(tmp_path / "home") as served:
        yield World(served, workspace)


def test_a_process_is_seen_read_and_ended(lived):
    more = {"background": True, "lifetime": "detached"}
    started = lived.run_program("tail", "-f", "hostile.txt", input=more)
    process_id = started.output["process_id"]
    page = wait_for(lambda: (p := lived.page(f"/console/processes/{process_id}").text) and "safe\\u202etxt" in p and p)
    assert Markup(page).problems == []
    assert SCRIPT not in page
    assert SCRIPT in Markup(page).text
    token = lived.daemon.token(OPERATOR, operator=True)
    log = lived.daemon.ask("GET", f"/console/v1/processes/{process_id}/log", token=token)
    TypeAdapter(BY_NAME["read_log"].answers[200].model).validate_json(log.content)
    assert "".join(piece["text"] for piece in log.json()["pieces"]) == HOSTILE
    listed = lived.daemon.ask("GET", "/console/v1/processes", token=token)
    TypeAdapter(BY_NAME["list_processes"].answers[200].model).validate_json(listed.content)
    assert [item["process_id"] for item in listed.json()["items"]] == [process_id]
    assert lived.send(f"/console/processes/{process_id}/stop").status_code == 303
    shown = lived.daemon.ask("GET", f"/console/v1/processes/{process_id}", token=token)
    TypeAdapter(BY_NAME["show_process"].answers[200].model).validate_json(shown.content)
    assert (shown.json()["status"], shown.json()["stopped_by"]) == ("stopped", OPERATOR)
    assert "ended" in lived.page("/console/processes").text
