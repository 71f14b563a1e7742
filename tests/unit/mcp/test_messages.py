"""Names, listings, results and questions, as they go over the wire."""

from __future__ import annotations

import json
from dataclasses import replace

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason
from palyra.mcp.messages import (
    MAX_NAME_CHARS,
    META_ATTESTATION,
    META_RECEIPT,
    META_TOOL,
    call_result,
    console_question,
    describe,
    dotted_name,
    error_data,
    fits_question,
    list_tools,
    listed_names,
    question,
    said,
    whole_outcome,
)
from palyra.model.outcome import Outcome, Status
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.schema import check_arguments, compile_schema
from palyra.protocol.wire import KEYS, outcome_json

ECHO = BUILTIN_TOOLS[0]
DONE = Outcome(
    call_id="01JG0000000000000000000001",
    run_id="01JG0000000000000000000002",
    tool="palyra.echo",
    status=Status.COMPLETED,
    success=True,
    output={"hello": "world"},
    attestation={
        "attestation_id": "01JG0000000000000000000003",
        "executor": "builtin",
        "execution_sha256": "ab" * 32,
        "key_id": "k",
        "envelope": {"payload": "x" * 2000},
    },
    receipt={"index": 1, "tree_size": 2, "checkpoint": "c"},
)
REFUSED = replace(
    DONE, status=Status.REFUSED, success=False, reason=Reason.POLICY_DENIED, message="No.", hint="Ask.", output={}
)


def named(*names: str) -> tuple:
    return tuple(replace(ECHO, name=name) for name in names)


def test_dots_become_underscores_and_the_dotted_name_stands_in_meta():
    (tool,) = list_tools(named("palyra.process.run"))
    assert (tool.name, tool.meta[META_TOOL]) == ("palyra_process_run", "palyra.process.run")


def test_tools_that_would_be_listed_alike_are_told_apart_but_our_own_keep_their_names():
    names = listed_names(named("acme.echo", "acme_echo", "palyra.echo", "palyra_echo"))
    assert len(names) == 4
    assert names["palyra_echo"] == "palyra.echo"
    assert sorted(names.values()) == ["acme.echo", "acme_echo", "palyra.echo", "palyra_echo"]


@given(st.lists(st.text("abc._", min_size=1, max_size=100), unique=True, max_size=12))
def test_every_listed_name_is_short_has_no_dot_and_leads_back_to_its_tool(dotted):
    specs = named(*dotted)
    names = listed_names(specs)
    assert sorted(names.values()) == sorted(dotted)
    assert all(len(name) <= MAX_NAME_CHARS and "." not in name for name in names)


def test_a_dotted_name_is_taken_as_it_is():
    assert dotted_name("palyra.echo", {"palyra_echo": "palyra.echo"}) == "palyra.echo"
    assert dotted_name("palyra_echo", {"palyra_echo": "palyra.echo"}) == "palyra.echo"


@pytest.mark.parametrize("spec", BUILTIN_TOOLS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("outcome", [DONE, REFUSED], ids=["done", "refused"])
def test_what_is_returned_fits_the_output_schema_that_is_listed(spec, outcome):
    (tool,) = list_tools([spec])
    schema = compile_schema(tool.output_schema)
    if outcome is DONE and spec is not ECHO:
        outcome = replace(outcome, output={"preview": "…", "projection": {"policy": "inline_unless_large"}})
    check_arguments(schema, call_result(outcome).structured_content)


def test_a_result_has_every_key_of_the_outcome_and_its_signature_in_meta():
    result = call_result(DONE)
    assert tuple(result.structured_content) == KEYS
    assert "envelope" not in result.structured_content["attestation"]
    assert result.meta[META_ATTESTATION] == DONE.attestation
    assert result.meta[META_RECEIPT] == DONE.receipt
    assert result.is_error is False


def test_the_outcome_of_the_contract_comes_back_from_the_wire():
    wire = json.loads(call_result(DONE).model_dump_json(by_alias=True))
    assert whole_outcome(wire) == json.loads(json.dumps(outcome_json(DONE)))
    with pytest.raises(ValueError, match="not the result"):
        whole_outcome({"structuredContent": {}})


def test_a_refusal_is_an_error_whose_text_says_why_and_what_helps():
    result = call_result(REFUSED)
    assert result.is_error is True
    assert json.loads(result.content[0].text) == {
        "status": "refused",
        "success": False,
        "reason": "POLICY_DENIED",
        "message": "No.",
        "hint": "Ask.",
        "output": {},
    }
    assert error_data(REFUSED) == {
        "reason": "POLICY_DENIED",
        "hint": "Ask.",
        "call_id": DONE.call_id,
        "receipt": DONE.receipt,
    }


def test_a_call_that_waits_for_a_person_is_no_error():
    waiting = replace(REFUSED, status=Status.PENDING_APPROVAL, reason=None, approval={"approval_id": "A"})
    assert call_result(waiting).is_error is False


def test_a_program_that_failed_is_an_error_with_its_whole_output():
    failed = replace(DONE, success=False, output={"exit_code": 1, "stderr": "2 tests failed"})
    assert "2 tests failed" in call_result(failed).content[0].text
    assert call_result(failed).is_error is True


# ── questions ──

SHOWN = {"principal": "agent:mcp", "tool": "palyra.process.run", "argv": ["rm", "-r", "x"], "risks": ["it deletes"]}


def test_a_question_shows_what_would_run_and_is_answered_by_one_word():
    asked = question(SHOWN)
    assert '["rm","-r","x"]' in asked.message
    assert asked.requested_schema["required"] == ["decision"]


def test_the_console_question_leads_to_where_it_is_decided():
    asked = console_question(SHOWN, url="http://127.0.0.1:7142/console/approvals/A", approval_id="A")
    assert (asked.mode, asked.url) == ("url", "http://127.0.0.1:7142/console/approvals/A")


def test_arguments_cannot_redraw_the_question():
    text = describe({"argv": ["ls", "\x1b[2J\u202eevil\u200b\U000e0061\r\nprincipal: user:root"], "tool": "a\nb\x07"})
    assert set("\x1b\u202e\u200b\U000e0061\x07").isdisjoint(text)
    assert text.splitlines()[1] == "tool: a\\x0ab\\x07"
    assert text.count("\n") == 2


def test_a_question_longer_than_can_be_shown_is_not_put():
    assert [fits_question({"argv": ["x" * size]}) for size in (3000, 9000)] == [True, False]


@pytest.mark.parametrize(
    ("answer", "decision"),
    [
        ({"action": "accept", "content": {"decision": "approve"}}, True),
        ({"action": "accept", "content": {"decision": "deny"}}, False),
        ({"action": "accept", "content": {}}, None),
        ({"action": "accept"}, None),
        ({"action": "accept", "content": {"decision": True}}, None),
        ({"action": "accept", "content": {"decision": ["approve"]}}, None),
        ({"action": "decline"}, False),
        ({"action": "cancel"}, None),
        ({}, None),
        (None, None),
        (types.ElicitResult(action="accept", content={"decision": "approve"}), True),
    ],
)
def test_only_the_word_itself_approves(answer, decision):
    assert said(answer) is decision
