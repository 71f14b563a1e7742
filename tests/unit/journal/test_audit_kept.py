"""What deletions cover, asked of all of them at once and of each."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palyra.journal.audit_kept import Claim, Deletion, Removals
from palyra.journal.audit_pruned import ENTRIES_PRUNED, Pruned
from tests.promises import promise

SMALL = st.integers(0, 6)
WHOSE = st.sampled_from([None, "agent:a", "agent:b"])
DELETIONS = st.builds(
    Deletion,
    entry=SMALL,
    act=st.just("records.deleted"),
    call_id=st.sampled_from([None, None, "one", "two"]),
    principal=WHOSE,
    before_unix_ms=st.none() | SMALL,
)
CLAIMS = st.builds(
    Claim,
    after=st.just(0),
    call_id=st.sampled_from(["one", "two", "three"]),
    row=st.just(()),
    first=st.just(0),
    details=st.none(),
    last=SMALL,
    outcome=st.none(),
    ended=st.booleans(),
    at_unix_ms=SMALL,
    principal=WHOSE | st.just(["what somebody put there"]),
)


def covers(deletion: Deletion, claim: Claim) -> bool:
    if not claim.ended or claim.last > deletion.entry:
        return False
    if deletion.call_id is not None:
        return claim.call_id == deletion.call_id
    before = deletion.before_unix_ms
    return before is not None and claim.at_unix_ms < before and deletion.principal in (None, claim.principal)


@promise("journal.audit-time")
@given(deletions=st.lists(DELETIONS, max_size=6), claim=CLAIMS)
def test_a_claim_is_covered_exactly_where_one_of_the_deletions_covers_it(
    deletions: list[Deletion], claim: Claim
) -> None:
    """Of all at once: a year of nightly retention is not gone through for each call."""
    assert Removals(deletions).cover(claim) is any(covers(deletion, claim) for deletion in deletions)


@promise("journal.audit-time")
@given(starts=st.lists(st.integers(1, 4), max_size=5), asked=st.lists(st.integers(-1, 24), max_size=30))
def test_a_body_may_be_gone_exactly_where_a_removed_file_had_it(starts: list[int], asked: list[int]) -> None:
    """Of thousands of removed files each is found without looking at the others."""
    firsts = [sum(starts[:at]) + at for at in range(len(starts))]
    told = [
        Deletion(entry=99, act=ENTRIES_PRUNED, first=first, count=count)
        for first, count in zip(firsts, starts, strict=True)
    ]
    pruned = Pruned(told)
    within = {index for one in told for index in range(one.first, one.first + one.count)}
    assert [pruned.take(index) for index in sorted(asked) if index >= 0] == [
        index in within for index in sorted(asked) if index >= 0
    ]
