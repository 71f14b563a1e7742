"""One table of moves; enabling is a person's, and belongs to one payload."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from palyra.skills.findings import CheckStatus, Finding, SkillRefused
from palyra.skills.lifecycle import (
    MOVES,
    EnableTerms,
    Move,
    Standing,
    Status,
    check_enable,
    move,
    newest_first,
    parse_standing,
    rollback_target,
)

ONE = Standing(
    sha256="1" * 64,
    skill_id="acme.echo",
    version="1.0.0",
    publisher="acme",
    key_id="k",
    status=Status.QUARANTINED,
    installed_by="user:alice",
)
TERMS = EnableTerms(verdict=CheckStatus.PASS, review_required=False, four_eyes=False)
GOOD = {
    (None, Move.INGEST),
    (Status.REMOVED, Move.INGEST),
    (Status.INGESTED, Move.QUARANTINE),
    (Status.ACTIVE, Move.QUARANTINE),
    (Status.DISABLED, Move.QUARANTINE),
    (Status.FAILED, Move.QUARANTINE),
    (Status.QUARANTINED, Move.ENABLE),
    (Status.DISABLED, Move.ENABLE),
    (Status.FAILED, Move.ENABLE),
    (Status.ACTIVE, Move.DISABLE),
    (Status.ACTIVE, Move.FAIL),
    (Status.DISABLED, Move.ROLL_BACK),
    *((status, Move.REMOVE) for status in Status if status is not Status.REMOVED),
}


@pytest.mark.parametrize(("before", "kind"), list(product((None, *Status), Move)))
def test_only_the_moves_of_the_table_are_made(before, kind):
    if (before, kind) in GOOD:
        after = move(ONE, kind, by="user:bob", at_unix_ms=7, reason="why", before=before)
        assert (after.status, after.changed_by, after.changed_unix_ms, after.reason) == (
            MOVES[kind][1],
            "user:bob",
            7,
            "why",
        )
        return
    with pytest.raises(SkillRefused) as caught:
        move(ONE, kind, by="user:bob", at_unix_ms=7, before=before)
    assert caught.value.finding is Finding.LIFE_MOVE


def test_nothing_leads_past_quarantine():
    """What was just taken in cannot become active, whatever its manifest says."""
    for kind, (before, after) in MOVES.items():
        assert not (Status.INGESTED in before and after is Status.ACTIVE), kind


def test_installing_again_forgets_reviews_and_approvals():
    old = replace(ONE, reviewed_by="user:carol", reviewed_unix_ms=1, enabled_by="user:bob", override="because")
    again = move(old, Move.INGEST, by="user:dan", at_unix_ms=9, before=Status.REMOVED)
    assert (again.reviewed_by, again.enabled_by, again.override) == ("", "", "")


@pytest.mark.parametrize("verdict", [None, CheckStatus.FAIL])
def test_enabling_wants_an_audit_that_did_not_fail_or_a_reason(verdict):
    with pytest.raises(SkillRefused) as caught:
        check_enable(ONE, "user:bob", replace(TERMS, verdict=verdict))
    assert caught.value.finding is Finding.LIFE_AUDIT
    check_enable(ONE, "user:bob", replace(TERMS, verdict=verdict, override="known and harmless"))
    check_enable(ONE, "user:bob", replace(TERMS, verdict=CheckStatus.WARN))


def test_a_review_is_wanted_where_the_manifest_says_so():
    terms = replace(TERMS, review_required=True)
    with pytest.raises(SkillRefused) as caught:
        check_enable(ONE, "user:bob", terms)
    assert caught.value.finding is Finding.LIFE_REVIEW
    check_enable(replace(ONE, reviewed_by="user:carol"), "user:bob", terms)
    check_enable(ONE, "user:bob", replace(terms, override="reviewed: all of it"))


def test_four_eyes_are_two_people_and_no_override_is_a_person():
    terms = replace(TERMS, four_eyes=True, override="i promise")
    with pytest.raises(SkillRefused) as caught:
        check_enable(ONE, "user:alice", terms)
    assert caught.value.finding is Finding.LIFE_SECOND_PERSON
    check_enable(ONE, "user:bob", terms)


def test_rolling_back_leads_to_what_was_enabled_before():
    first = replace(ONE, status=Status.DISABLED, enabled_by="u", enabled_unix_ms=1)
    second = replace(
        ONE,
        sha256="2" * 64,
        version="2.0.0",
        status=Status.ACTIVE,
        enabled_by="u",
        enabled_unix_ms=2,
        previous=first.sha256,
    )
    never = replace(ONE, sha256="3" * 64, version="3.0.0", installed_unix_ms=3)
    assert rollback_target((first, second, never)) == (second, first)
    quarantined = replace(second, status=Status.QUARANTINED)
    assert rollback_target((first, quarantined, never)) == (None, first)
    for hopeless in (
        (second, never),
        (replace(first, status=Status.QUARANTINED), second),
        (replace(first, status=Status.REMOVED), second),
        (never,),
    ):
        with pytest.raises(SkillRefused):
            rollback_target(hopeless)


def test_a_loop_of_previous_payloads_ends():
    a = replace(ONE, status=Status.ACTIVE, enabled_by="u", previous="2" * 64)
    b = replace(ONE, sha256="2" * 64, status=Status.QUARANTINED, enabled_by="u", previous="1" * 64)
    with pytest.raises(SkillRefused):
        rollback_target((a, b))


def test_the_active_one_counts_before_whatever_came_later():
    later = replace(ONE, sha256="2" * 64, changed_unix_ms=9)
    active = replace(ONE, status=Status.ACTIVE, changed_unix_ms=1)
    assert newest_first((later, active))[0] is active


def test_a_standing_comes_back_from_its_row_and_no_other_does():
    assert parse_standing(ONE.as_row()) == ONE
    with pytest.raises(ValueError, match="running"):
        parse_standing(tuple("running" if value == "quarantined" else value for value in ONE.as_row()))
