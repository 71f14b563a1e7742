"""Endings that nobody wished for: they say what can be done, tell nothing internal, and report nothing as done."""

from __future__ import annotations

import errno
import os

import pytest

from palyra.engine.endings import broken, refused, unrecorded
from palyra.engine.trip import Ending
from palyra.errors import Reason, Rejected, StateError
from palyra.model.outcome import Status

DOWN = StateError("the disk is full", "Make room.")


def test_an_error_of_our_own_tells_nothing_of_itself():
    ending = broken(KeyError("/home/alice/secret"))
    assert (ending.status, ending.reason, ending.success) == (Status.FAILED, Reason.INTERNAL, False)
    assert (ending.message, ending.hint) == ("Palyra failed while handling this call; its log says where.", None)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC])
def test_a_machine_that_ran_out_of_something_is_told_so_with_what_to_do(code):
    ending = broken(OSError(code, os.strerror(code)))
    assert ending.message == f"Palyra could not continue with this call: {os.strerror(code)}."
    assert ending.hint


def test_what_ran_and_could_not_be_recorded_is_not_reported_as_done_but_shown():
    ending = unrecorded(Ending(status=Status.COMPLETED, success=True, output={"stdout": "x"}), DOWN)
    assert (ending.status, ending.success, ending.reason) == (Status.FAILED, False, Reason.INTERNAL)
    assert (ending.output, ending.hint) == ({"stdout": "x"}, "Make room.")


def test_a_refusal_that_could_not_be_recorded_stays_one():
    ending = unrecorded(refused(Rejected(Reason.POLICY_DENIED, "No.", "Ask.")), DOWN)
    assert (ending.status, ending.success, ending.reason) == (Status.REFUSED, False, Reason.JOURNAL_DOWN)


def test_a_journal_that_says_itself_what_is_wrong_is_not_introduced_twice():
    told = StateError("The journal could not be written: attempt to write a readonly database.", "Mount it.")
    ending = unrecorded(refused(Rejected(Reason.POLICY_DENIED, "No.", "Ask.")), told)
    assert (ending.message, ending.hint) == (told.detail, "Mount it.")
