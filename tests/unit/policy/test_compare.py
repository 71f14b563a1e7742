"""What a new bundle decides that an old one did not: counted by what changes for whoever calls."""

from __future__ import annotations

from palyra.policy.compare import TextChanges, compare_requests, compare_texts, counts_of
from palyra.policy.examples import ordinary_request
from palyra.policy.store import load_posture

OLD = load_posture("standard")
NO_RM = '@id("local.no-rm")\nforbid (principal, action, resource) when { context.effective_program == "rm" };\n'
NEW = load_posture("standard", {"a.cedar": NO_RM})


def test_texts_are_compared_by_id() -> None:
    assert compare_texts(OLD, NEW) == TextChanges(added=("local.no-rm",), removed=(), changed=())
    assert compare_texts(NEW, OLD) == TextChanges(added=(), removed=("local.no-rm",), changed=())
    other = load_posture("standard", {"a.cedar": NO_RM.replace('"rm"', '"mv"')})
    assert compare_texts(NEW, other) == TextChanges(added=(), removed=(), changed=("local.no-rm",))


def test_only_what_is_decided_otherwise_is_a_flip_and_alike_ones_are_counted() -> None:
    rm = ordinary_request(program="rm", effective_program="rm")
    ls = ordinary_request(program="ls", effective_program="ls")
    count, flips = compare_requests(OLD, NEW, [("first", rm), ("quiet", ls), ("again", rm), ("third", rm)])
    assert (count, [(flip.name, flip.count) for flip in flips]) == (4, [("first", 3)])
    assert flips[0].as_json() == {
        "name": "first",
        "count": 3,
        "principal": "agent:demo",
        "tool": "palyra.process.run",
        "program": "rm",
        "was": {"effect": "allow", "reason": None, "policies": list(flips[0].was.policies)},
        "now": {"effect": "deny", "reason": "POLICY_DENIED", "policies": ["local.no-rm"]},
    }
    assert counts_of(flips) == {"newly_allowed": 0, "newly_asked": 0, "newly_denied": 3}
    back = compare_requests(NEW, OLD, [("first", rm)])[1]
    assert counts_of(back) == {"newly_allowed": 1, "newly_asked": 0, "newly_denied": 0}


def test_a_call_that_a_person_must_now_see_is_newly_asked() -> None:
    open_network = ordinary_request(egress="none", network=True)
    strict = ordinary_request()
    assert compare_requests(OLD, OLD, [("a", open_network), ("b", strict)]) == (2, ())
    locked = load_posture("locked")
    counts = counts_of(compare_requests(locked, OLD, [("a", open_network), ("b", strict)])[1])
    assert counts["newly_allowed"] + counts["newly_asked"] == 2
    assert counts["newly_asked"] == 1


def test_an_error_is_a_denial_to_whoever_called() -> None:
    too_much = "context.calls_used + 9223372036854775807 > 0"
    failing = f'@id("local.err")\nforbid (principal, action, resource) when {{ {too_much} }};\n'
    new = load_posture("standard", {"a.cedar": failing})
    used = ordinary_request(calls_used=1)
    (flip,) = compare_requests(OLD, new, [("used", used)])[1]
    assert (flip.now.effect, flip.as_json()["now"]["effect"]) == ("error", "deny")
    assert counts_of((flip,)) == {"newly_allowed": 0, "newly_asked": 0, "newly_denied": 1}
    unknown = ordinary_request(program="nmap", effective_program="nmap", listed=False, calls_used=1)
    assert compare_requests(OLD, new, [("refused anyway", unknown)])[1] == ()
