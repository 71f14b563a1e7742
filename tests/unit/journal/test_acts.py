"""Operator acts: typed, in the transaction of the change they tell of."""

from __future__ import annotations

from pathlib import Path

import pytest

from palyra.journal.acts import PALYRA, SHAPES, Act, ActKind, record_act
from palyra.journal.chain import ACT
from palyra.journal.entry import parse_entry
from palyra.state.transaction import Transaction
from tests.journaling import NOW, audit_home, open_store

SET = Act(kind=ActKind.SECRET_SET, actor="user:alice", subject="secret/DEPLOY_KEY", details={"generation": 1})


def test_every_kind_has_a_shape_and_its_noun() -> None:
    assert set(SHAPES) == set(ActKind)
    assert all(shape.noun.isidentifier() and shape.meaning.endswith(".") for shape in SHAPES.values())


def test_a_change_and_its_act_commit_together_or_not_at_all(home: Path) -> None:
    writer, store = open_store(home)

    def change(tx: Transaction) -> int:
        tx.execute("INSERT INTO meta VALUES ('colour', 'green')")
        return record_act(tx, SET, at_unix_ms=NOW)

    def fail(tx: Transaction) -> None:
        tx.execute("UPDATE meta SET value = 'red' WHERE name = 'colour'")
        record_act(tx, SET, at_unix_ms=NOW)
        raise KeyError("the work changed its mind")

    index, receipt = writer.commit_now(change)
    assert receipt is not None
    assert (index, receipt.index, receipt.tree_size) == (0, 0, 1)
    with pytest.raises(KeyError):
        writer.commit_now(fail)
    assert writer.rows("SELECT value FROM meta WHERE name = 'colour'") == [("green",)]
    entry = store.entry(0)
    assert entry is not None
    view = parse_entry(entry.body)
    assert (view.kind, view.subject, view.sequence, view.run_id) == (ACT, "secret/DEPLOY_KEY", None, None)
    assert {name: view.predicate[name] for name in ("act", "actor", "details")} == {
        "act": "secrets.set",
        "actor": "user:alice",
        "details": {"generation": 1},
    }
    assert store.tail(10) == (entry,)
    assert audit_home(writer.home).findings == ()
    writer.close()


@pytest.mark.parametrize(
    ("actor", "subject", "details", "sentence"),
    [
        ("", "secret/A", {}, "names who did it"),
        ("user:a\x1b[2J", "secret/A", {}, "names who did it"),
        ("user:alice", "token/A", {}, "is done to a secret"),
        ("user:alice", "secrets/A", {}, "is done to a secret"),
        ("user:alice", "secret/A", {"value": "hunter2"}, "does not tell value"),
    ],
)
def test_an_act_of_another_shape_is_a_mistake_of_ours(actor: str, subject: str, details: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Act(kind=ActKind.SECRET_SET, actor=actor, subject=subject, details=details)


def test_a_noun_alone_is_a_subject_where_there_is_but_one() -> None:
    act = Act(kind=ActKind.CONFIG_CHANGED, actor=PALYRA, subject="config", details={"after_sha256": "0" * 64})
    assert (act.draft().subject, act.draft().predicate["run_id"]) == ("config", None)
