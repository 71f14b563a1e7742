"""Operators' answers are of the documented shape, the same as the command line's, and say who did what."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter

from palyra.daemon.operators.table import ROUTES
from palyra.journal.proof import check_proof
from palyra.wiring.checkup import backends_json
from tests.consoles import packed, world
from tests.daemons import OPERATOR

BY_NAME = {route.name: route for route in ROUTES}
NO_ULID = "00000000000000000000000000"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    with world(tmp_path_factory.mktemp("operators")) as made:
        made.operator = made.daemon.token(OPERATOR, operator=True)
        yield made


def ask(own, route_name: str, /, *, status: int = 200, query: str = "", json=None, **path: str):
    """By the route's name; what comes is held against its model."""
    route = BY_NAME[route_name]
    place = route.path.format(**path) if path else route.path
    options = {"json": json} if json is not None else {}
    answer = own.daemon.ask(route.method, place + query, token=own.operator, **options)
    assert answer.status_code == status, answer.text
    if status == 200 and route.answers[200].model is not None:
        TypeAdapter(route.answers[200].model).validate_json(answer.content)
    return answer.json()


def test_a_backend_that_guarantees_nothing_says_what_prevents_it_here_and_on_the_command_line(own):
    """The page's column was empty where `palyra sandbox list` said "only on macOS"."""
    items = ask(own, "list_backends")["items"]
    assert items == backends_json(own.daemon.state.installation.host)
    assert {one["backend"] for one in items if not one["guarantees"]} >= {"seatbelt", "jobobject"}
    assert [one["backend"] for one in items if not one["guarantees"] and not one["blockers"]] == []


def test_lists_are_of_their_shape(own):
    names = ["overview", "list_backends", "doctor", "list_approvals", "list_grants", "list_runs", "list_calls",
             "list_entries", "show_head", "list_bundles", "list_processes", "list_secrets", "list_tokens",
             "list_skills", "list_trust"]  # fmt: skip
    for name in names:
        ask(own, name)


def test_every_kind_of_thing_is_shown(own):
    call = own.calls["hostile"]
    record = ask(own, "show_call_record", id=call.call_id)
    assert record["outcome"]["output"]["stdout"] == call.output["stdout"]
    assert ask(own, "show_run_budget", id=call.run_id)["principal"] == "agent:demo"
    assert ask(own, "show_entry", index="0")["index"] == 0
    approval = own.calls["asks"].approval["approval_id"]
    assert ask(own, "show_approval", id=approval)["call"]["argv"][0] == "git"
    for version in ("current", "locked", "standard", "developer"):
        assert ask(own, "show_bundle", version=version)["policies"]


def test_what_is_not_there_is_404(own):
    for name, path in (("show_call_record", {"id": NO_ULID}), ("show_call_record", {"id": "x"}),
                       ("show_run_budget", {"id": "x"}), ("show_entry", {"index": "-1"}),
                       ("show_entry", {"index": "9" * 15}), ("show_approval", {"id": "x"}),
                       ("show_bundle", {"version": "deadbeef"}), ("show_process", {"id": "x"}),
                       ("read_log", {"id": NO_ULID}), ("download_proof", {"call_id": "x"}),
                       ("stop_process", {"id": "x"}), ("revoke_token", {"id": "x"}),
                       ("revoke_grant", {"id": "x"}), ("cancel_any_call", {"id": "x"}),
                       ("delete_secret", {"name": "x"})):  # fmt: skip
        ask(own, name, status=404, **path)


def test_pages_of_a_list_go_on_where_the_last_ended(own):
    whole = [item["index"] for item in ask(own, "list_entries", query="?count=200")["items"]]
    seen, before = [], ""
    while True:
        page = ask(own, "list_entries", query=f"?count=3{before}")
        seen += [item["index"] for item in page["items"]]
        if page["next"] is None:
            break
        before = f"&before={page['next']}"
    assert seen == whole == sorted(whole, reverse=True)


def test_calls_are_found_by_what_they_were(own):
    refused = ask(own, "list_calls", query="?status=refused")["items"]
    assert {item["reason"] for item in refused} == {"INTERPRETER_DENIED", "UNKNOWN_TOOL"}
    assert ask(own, "list_calls", query="?status=open")["items"] == []
    assert ask(own, "list_calls", query="?principal=agent:nobody")["items"] == []
    one = ask(own, "list_calls", query=f"?run_id={own.calls['unknown'].run_id}")["items"]
    assert [item["call_id"] for item in one] == [own.calls["unknown"].call_id]


def test_a_proof_holds_without_us(own):
    call_id = own.calls["hostile"].call_id
    proof = ask(own, "download_proof", call_id=call_id)
    verifier = own.daemon.state.installation.writer.home.verifier
    assert proof["call_id"] == call_id
    assert check_proof(proof, verifier) == ()


def test_the_audit_is_sound_and_every_decision_comes_out_the_same(own):
    report = ask(own, "verify_journal", json={"every_signature": True, "replay": True})
    assert (report["ok"], report["findings"], report["misfits"]) == (True, [], [])
    assert report["decisions"] > 0


def test_explanations_name_policies_and_changes(own):
    told = ask(own, "explain_call", query=f"?call_id={own.calls['refused'].call_id}")
    assert (told["effect"], told["reason"]) == ("deny", "INTERPRETER_DENIED")
    assert told["changes"]
    imagined = {"tool": "palyra.process.run", "input": {"command": "ls"}, "principal": "agent:x",
                "workspace": str(own.workspace)}  # fmt: skip
    assert ask(own, "explain_imagined", json=imagined)["effect"] == "allow"
    assert ask(own, "explain_imagined", json=imagined | {"input": '{"command": "ls"}'})["effect"] == "allow"
    ask(own, "explain_imagined", status=422, json=imagined | {"principal": "nobody"})
    before = own.daemon.state.installation.journal.checkpoint().size
    assert own.daemon.state.installation.journal.checkpoint().size == before, "nothing runs, nothing is written"


def test_other_policies_are_compared(own):
    replayed = ask(own, "replay_policies", json={"posture": "locked"})
    assert replayed["flips"] == len(replayed["items"]) > 0
    assert ask(own, "diff_policies", json={"posture": "locked"})["same"] is False
    ask(own, "diff_policies", status=422, json={})
    ask(own, "diff_policies", status=422, json={"posture": "locked", "text": "x"})
    ask(own, "diff_policies", status=422, json={"version": "deadbeef"})
    ask(own, "explain_call", status=422, query="?call_id=x")
    ask(own, "use_policies", status=422, json={"text": "permit ("})
    ask(own, "use_policies", status=422, json={"posture": "locked"})
    ask(own, "roll_back_policies", status=409)


def test_policies_by_their_files(own):
    files = {"local.cedar": (own.workspace.parent / "home" / "policies" / "local.cedar").read_text()}
    used = ask(own, "use_policies", json={"files": files})
    assert used["changed"]
    assert not ask(own, "use_policies", json={"files": files})["changed"]
    assert ask(own, "show_bundle", version=used["version"][:12])["policy_sha256"] == used["policy_sha256"]
    assert ask(own, "use_policies", json={"version": used["version"]})["changed"] is False
    assert ask(own, "roll_back_policies")["version"] is None


def test_approvals_are_decided_with_their_scope(own):
    approval = own.run_program("git", "fetch", principal="agent:scoped").approval["approval_id"]
    ask(own, "approve", status=422, id=approval, json={"scope": "run", "for_s": 60})
    ask(own, "approve", status=422, id=approval, json={"pattern": "[1]"})
    decided = ask(own, "approve", id=approval, json={"for_s": 60, "pattern": "git fetch **"})
    assert (decided["scope"], decided["decided_by"]) == ("until", OPERATOR)
    assert [item["approval_id"] for item in ask(own, "list_grants")["items"]] == [approval]
    assert ask(own, "revoke_grant", id=approval)["state"] == "revoked"
    denied = own.run_program("git", "gc", principal="agent:denied").approval["approval_id"]
    assert ask(own, "deny", id=denied, json={"reason": "no"})["state"] == "denied"
    assert ask(own, "revoke_grant", id=denied)["state"] == "revoked"
    assert own.run_program("git", "gc", principal="agent:denied").approval["approval_id"] != denied


def test_tokens_and_secrets_through_the_api(own):
    made = ask(own, "create_token", json={"principal": "agent:api", "expires_s": 60})
    assert ask(own, "revoke_token", id=made["id"])["revoked_at_unix_ms"]
    ask(own, "create_token", status=403, json={"principal": "agent:api", "operator": True})
    secret = {"name": "API_KEY", "value": "v" * 20, "principals": "agent:ci-* agent:x", "tools": ""}
    assert ask(own, "set_secret", json=secret)["scope"]["principals"] == ["agent:ci-*", "agent:x"]
    ask(own, "set_secret", status=422, json=secret | {"name": "bad name"})
    assert ask(own, "delete_secret", name="API_KEY") == {"name": "API_KEY", "deleted": True}


def test_skills_through_the_api(own):
    from tests.making_skills import EVIL, tool

    def send(name: str, data: bytes, query: str = ""):
        route = BY_NAME[name]
        headers = {"Content-Type": "application/octet-stream"}
        return own.daemon.ask("POST", route.path + query, token=own.operator, content=data, headers=headers)

    whole = ask(own, "show_skill", id="acme.echo")
    assert [one["version"] for one in whole["versions"]] == ["0.1.0", "0.2.0"]
    assert ask(own, "list_reports", id="acme.echo")["items"]
    good = packed("acme.third", "1.0.0", tools=(tool("acme.third"),))
    assert send("verify_package", good).json()["skill_id"] == "acme.third"
    installed = send("install_skill", good)
    TypeAdapter(BY_NAME["install_skill"].answers[200].model).validate_json(installed.content)
    assert installed.json()["status"] == "quarantined"
    for name in ("audit_skill", "verify_skill"):
        assert ask(own, name, id="acme.third", json={})["audit"]["verdict"] in ("pass", "warn")
    ask(own, "review_skill", id="acme.third", json={"notes": "looked at it"})
    assert ask(own, "enable_skill", id="acme.third", json={})["status"] == "active"
    assert ask(own, "disable_skill", id="acme.third", json={"reason": "enough"})["status"] == "disabled"
    assert ask(own, "quarantine_skill", id="acme.third", json={})["status"] == "quarantined"
    ask(own, "roll_back_skill", status=404, id="acme.third")
    assert ask(own, "remove_skill", id="acme.third")["status"] == "removed"
    evil = send("install_skill", packed("acme.evil", "1.0.0", key=EVIL, tools=(tool("acme.evil"),)))
    assert (evil.status_code, evil.json()["error"]["code"]) == (409, "trust.key_changed")
    broken = send("install_skill", good[:-10])
    assert broken.status_code == 422
    ask(own, "show_skill", status=404, id="acme.none")
    ask(own, "add_trust", status=409, json={"publisher": "x", "key": "y"})
    ask(own, "revoke_trust", status=409, publisher="nobody", json={})


def test_output_is_a_download_of_plain_text(own):
    call_id = own.calls["hostile"].call_id
    answer = own.daemon.ask("GET", f"/console/v1/calls/{call_id}/output", token=own.operator)
    assert answer.text == own.calls["hostile"].output["stdout"]
    assert answer.headers["content-disposition"] == f'attachment; filename="{call_id}-stdout.txt"'
    ask(own, "read_output", status=404, id=call_id, query="?stream=result")
    ask(own, "read_output", status=422, id=call_id, query="?stream=other")


def test_a_record_that_was_edited_is_not_shown(own):
    """Whoever edits the database must not put words into a tool's mouth through the console."""
    outcome = own.run_program("ls")
    writer = own.daemon.state.installation.writer
    own.daemon.run(_edit(writer, outcome.call_id))
    answer = own.daemon.ask("GET", f"/console/calls/{outcome.call_id}", session=own.session)
    assert answer.status_code == 503
    assert "stored record was changed" in answer.text
    report = ask(own, "verify_journal", json={})
    assert report["ok"] is False


async def _edit(writer, call_id: str) -> None:
    sql = "UPDATE calls SET status = 'completed', tool = 'palyra.echo' WHERE call_id = ?"
    await writer.commit(lambda tx: tx.execute(sql, (call_id,)))
