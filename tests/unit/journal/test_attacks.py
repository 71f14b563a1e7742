"""The list of attacks a journal must find or refuse, each with the test that plays it: one that is gone is noticed."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]

ATTACKS = {
    "bit flip with repaired lengths": "unit/journal/test_chain.py::test_a_flipped_bit_is_another_entry_or_none",
    "edit with the hash repaired": "unit/journal/test_audit.py::test_an_edited_entry_with_its_hash_repaired_is_named",
    "delete": "unit/journal/test_audit.py::test_a_deleted_entry_is_named",
    "insert": "unit/journal/test_audit.py::test_an_inserted_entry_is_named",
    "reorder": "unit/journal/test_audit.py::test_two_entries_that_changed_places_are_named",
    "duplicate": "unit/journal/test_audit.py::test_an_entry_that_comes_twice_is_named",
    "tail truncation against a receipt": "unit/journal/test_audit.py::"
    "test_a_tail_cut_with_its_checkpoints_is_found_by_a_receipt",
    "restore of an old backup": "unit/state/test_witness.py::"
    "test_an_old_backup_put_back_does_not_start_and_is_refused_by_the_witness",
    "full rewrite by the key holder against a witness": "unit/state/test_witness.py::"
    "test_a_full_rewrite_by_the_key_holder_is_found_against_a_witness",
    "other key under the same origin": "unit/journal/test_checkpoint.py::"
    "test_another_key_under_the_same_origin_is_refused",
    "stolen retired key": "unit/state/test_rotation.py::test_a_stolen_retired_key_signs_no_later_head",
    "result without intent": "unit/journal/test_audit.py::test_a_result_without_an_intent_is_named",
    "replayed call id": "unit/journal/test_audit.py::test_a_replayed_call_id_is_named",
    "two writers": "escape/test_journal_processes.py::"
    "test_twenty_processes_that_start_at_once_in_no_home_share_one_journal",
    "a writer with the old key": "unit/state/test_rotation.py::"
    "test_another_process_that_still_holds_the_old_key_is_stopped",
    "duplicate keys, floats, large integers, surrogates, nesting": "unit/journal/test_chain.py::"
    "test_bytes_that_we_would_not_have_written_are_refused",
    "checkpoint text tricks": "unit/journal/test_checkpoint.py::test_tricks_with_the_text_are_refused_though_signed",
    "carriage returns": "unit/journal/test_checkpoint.py::test_carriage_returns_are_refused",
    "torn write and power cuts": "escape/test_power_cuts.py::test_no_power_cut_loses_what_was_acknowledged",
    "negative control": "escape/test_power_cuts.py::test_the_same_cuts_lose_entries_with_synchronous_normal",
    "kill -9 loop": "escape/test_journal_processes.py::"
    "test_nothing_acknowledged_is_lost_to_thirty_sigkills_under_sixty_four_callers",
    "EIO": "escape/test_power_cuts.py::test_a_disk_that_refuses_a_write_or_a_sync_stops_the_journal_for_good",
    "ENOSPC": "escape/test_power_cuts.py::test_a_full_disk_refuses_calls_and_lets_what_ran_be_closed",
    "oversize entry": "unit/journal/test_chain.py::test_a_draft_that_is_too_long_is_cut_and_says_so",
    "guessing commitments": "unit/journal/test_commitments.py::test_a_commitment_cannot_be_guessed_without_its_salt",
    "export edits": "unit/journal/test_export.py::test_an_export_that_was_edited_does_not_verify",
    "tile and checkpoint edits": "e2e/test_evidence.py::test_tiles_and_checkpoints_that_were_edited_are_found",
    "DSSE type": "e2e/test_evidence.py::test_an_envelope_of_another_type_or_signer_is_found",
    "verifier bombs": "e2e/test_evidence.py::test_a_verifier_bomb_is_refused_quickly",
    "ANSI and bidi in human views": "unit/cli/test_journal.py::test_control_and_bidi_characters_are_spelled_out",
    "clock going back": "unit/journal/test_audit.py::test_clocks_that_go_back_are_no_finding",
    "weak keys": "unit/test_signing.py::test_points_of_small_order_are_refused",
    "records removed without a word": "unit/state/test_retention.py::test_records_that_went_without_a_word_are_found",
}


@cache
def functions(path: Path) -> frozenset[str]:
    return frozenset(node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("attack", "test"), ATTACKS.items())
def test_every_attack_of_the_list_has_its_test(attack: str, test: str) -> None:
    file, _, name = test.partition("::")
    assert name in functions(TESTS / file), attack
