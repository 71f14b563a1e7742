"""`palyra journal show` in words: who, what, why and how it ended; hostile output spelled out and cut."""

from __future__ import annotations

import pytest

from palyra.cli.call_text import MAX_OUTPUT_LINES, call_lines, called

ENTRY = {
    "index": 3,
    "leaf_hash": "cd" * 32,
    "entry": {
        "predicateType": "urn:palyra:result:v1",
        "predicate": {
            "call_id": "01HF7YAT00000000000000CA11",
            "tool": "palyra.process.run",
            "status": "completed",
            "reason": None,
            "principal": "agent:demo",
            "place": {"at_unix_ms": 1_700_000_000_000},
        },
    },
}
CALL = {
    "call_id": "01HF7YAT00000000000000CA11",
    "run_id": "01HF7YAT000000000000000RVN",
    "principal": "agent:demo",
    "status": "completed",
    "entries": [ENTRY],
    "outcome": {
        "tool": "palyra.process.run",
        "reason": None,
        "message": None,
        "hint": None,
        "output": {"exit_code": 0, "stdout": "one\x1b[31m\ntwo\n", "stderr": ""},
        "usage": {"wall_us": 2500},
        "attestation": {"executor": "sandbox_tier_c_linux_bubblewrap", "key_id": "30fc2e855dd7b4d1"},
    },
    "details": {
        "door": "cli",
        "input": {"command": "ls"},
        "decision": {"effect": "allow", "policies": ["permit.process"]},
        "policy_sha256": "ef" * 32,
    },
}


def test_a_call_is_told_from_who_to_where_it_stands():
    assert call_lines(CALL) == [
        "call        01HF7YAT00000000000000CA11",
        "who         agent:demo through cli",
        "tool        palyra.process.run",
        'input       {"command":"ls"}',
        "run         01HF7YAT000000000000000RVN",
        "ended       completed, exit code 0, after 2.5 ms",
        "decided     allow by permit.process, bundle efefefefefefefef",
        "stdout      one\\x1b[31m",
        "            two",
        "executor    sandbox_tier_c_linux_bubblewrap, signed by key 30fc2e855dd7b4d1",
        "entry       3  2023-11-14 22:13:20 UTC  result  palyra.process.run completed agent:demo "
        "01HF7YAT00000000000000CA11",
        f"            leaf {'cd' * 32}",
    ]


def test_a_refusal_has_its_sentence_and_its_hint():
    refused = CALL["outcome"] | {"reason": "POLICY_DENIED", "message": "No.", "hint": "Ask.", "output": {}}
    said = call_lines(CALL | {"status": "refused", "outcome": refused})
    assert said[5:8] == ["ended       refused, POLICY_DENIED, after 2.5 ms", "            No.", "hint        Ask."]


def test_what_is_long_is_cut_and_that_is_said():
    output = {"exit_code": 0, "stdout": "x" * 1000 + "\n" + "y\n" * 50, "stderr": ""}
    said = call_lines(CALL | {"outcome": CALL["outcome"] | {"output": output}})
    assert any(line.endswith("… (1000 characters; see --json)") for line in said)
    assert f"            … {51 - MAX_OUTPUT_LINES} lines more: --json" in said


def test_a_call_whose_record_was_removed_says_so():
    said = call_lines({**CALL, "outcome": None, "details": None})
    assert "            Its outcome and details are no longer kept; its journal entries are." in said


@pytest.mark.parametrize(
    ("shadow", "told"),
    [
        ({"effect": "deny", "policies": ["local.no-rm"]}, "deny by local.no-rm"),
        ({"effect": "deny", "policies": []}, "deny by no policy"),
        ({"error": "There is no such folder."}, "could not be used: There is no such folder."),
    ],
)
def test_what_a_candidate_would_have_decided_is_shown(shadow, told):
    said = call_lines(CALL | {"details": CALL["details"] | {"shadow": shadow}})
    assert f"candidate   {told}" in said
    assert not [line for line in call_lines(CALL) if line.startswith("candidate")]


def test_a_call_that_runs_is_not_said_to_have_lost_its_record():
    said = call_lines({**CALL, "status": "open", "outcome": None})
    assert "ended       not yet" in said
    assert [line for line in said if "no outcome yet" in line]
    assert not [line for line in said if "no longer kept" in line]


def test_a_call_that_waits_for_a_person_says_where_the_request_is():
    said = call_lines({"call_id": CALL["call_id"], "entries": CALL["entries"]})
    assert said[1:3] == [
        "ended       not yet",
        "            It waits for a person, or did: palyra approvals list --state all names the request.",
    ]


def test_an_act_shows_what_was_done():
    act = {"act": "policy.used", "actor": "user:alice", "details": {"version": "ab"}, "place": {"at_unix_ms": 0}}
    entry = {"index": 4, "leaf_hash": "00", "entry": {"predicateType": "urn:palyra:act:v1", "predicate": act}}
    assert call_lines({"entries": [entry]}) == [
        "entry       4  1970-01-01 00:00:00 UTC  act  policy.used",
        '            {"actor":"user:alice","details":{"version":"ab"}}',
        "            leaf 00",
    ]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": "bash", "args": ["-c", "ls | wc -l"]}, "bash -c 'ls | wc -l'"),
        ({"command": "ls"}, "ls"),
        ({"url": "https://example.org/a", "method": "GET"}, "https://example.org/a"),
        ({"path": "src/main.py", "text": "x"}, "src/main.py"),
        ({"say": "hello"}, '{"say":"hello"}'),
        ({"command": 7, "args": 7}, '{"command":7,"args":7}'),
        ({"command": "x" * 60}, "x" * 47 + "…"),
        ("removed", ""),
        ({}, ""),
    ],
)
def test_a_call_is_named_by_its_command_line_url_or_path(given: object, words: str) -> None:
    assert called({"input": given}) == words
