"""The names embedders get: by themselves, each documented, and no other name is believed."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from dataclasses import replace

import pytest

import palyra
from palyra import api, api_approvals

FACES = (api.Palyra, api.AsyncPalyra, api.SyncRun, api.AsyncRun, api_approvals.Approvals, api_approvals.AsyncApprovals)


def test_every_promised_name_is_there_and_a_wrong_one_is_not():
    assert all(getattr(palyra, name) is not None for name in palyra.__all__)
    assert set(palyra.__all__) <= set(dir(palyra))
    assert set(palyra.__all__) - {"__version__", "DaemonError", "Unreachable"} <= set(api.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Palira'"):
        palyra.Palira  # noqa: B018  # asking is what is tried


def test_importing_it_loads_nothing_of_the_engine():
    tell = "import palyra, sys; print([name for name in sys.modules if name.startswith('palyra.')])"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
    assert done.stdout == "['palyra.version']\n"


def test_what_a_client_may_meet_has_a_name_that_loads_no_engine():
    tell = "from palyra import DaemonError, Unreachable; import sys; print('palyra.engine.walk' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", tell], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_what_an_editor_shows_has_words(face):
    plain = {"run_id", "workspace", "start", "close", "installation"}
    names = [name for name in vars(face) if not name.startswith("_") and name not in plain]
    names = [name for name in names if not inspect.ismemberdescriptor(vars(face)[name])]
    assert [name for name in names if not inspect.getdoc(getattr(face, name))] == []
    assert inspect.getdoc(face)


def test_a_home_may_be_a_path(tmp_path):
    assert str(api.AsyncPalyra.open(tmp_path / "home")._home.root) == os.fspath(tmp_path / "home")


def test_an_outcome_shows_what_happened_and_not_its_signatures():
    plain = palyra.Outcome(call_id="c", run_id="r", tool="t", status=palyra.Status.COMPLETED, success=True)
    shown = repr(replace(plain, output={"stdout": "x"}, attestation={"envelope": "long"}, receipt={"head": "long"}))
    assert ("'stdout': 'x'" in shown, "long" in shown) == (True, False)


def test_a_run_shows_itself_in_a_line(tmp_path):
    with api.Palyra.open(tmp_path / "home") as opened:
        run = opened.run("agent:demo", tmp_path)
        assert repr(run) == f"<SyncRun {run.run_id} of agent:demo in '{tmp_path}'>"


@pytest.mark.parametrize("name", ["limits", "grant", "budget"])
def test_an_option_of_the_wrong_class_is_refused_with_how_to_make_one(tmp_path, name):
    with api.Palyra.open(tmp_path / "home") as opened, pytest.raises(palyra.Rejected) as refused:
        opened.run("agent:demo", tmp_path, **{name: {"wall_ms": 3}})
    maker = str(refused.value.hint).removeprefix("Make one with palyra.").split("(")[0]
    assert (refused.value.reason, callable(getattr(palyra, maker))) == (palyra.Reason.BAD_ARGUMENTS, True)


def test_what_palyras_own_thread_calls_cannot_wait_for_it_and_says_so(tmp_path):
    """A call within on_output waited for the very thread it was made on, for ever."""
    with api.Palyra.open(tmp_path / "home") as opened:
        run, told = opened.run("agent:demo", tmp_path), []

        async def on_its_thread() -> None:
            try:
                run.call("palyra.echo", {})
            except palyra.PalyraError as error:
                told.append((str(error), error.hint))

        assert opened._thread is not None
        opened._thread.submit(on_its_thread()).result(60)
        assert told == [
            (
                "A callback on Palyra's own thread (on_output) cannot wait for a call.",
                "Start the call with run.submit, or pass the output to a thread of your own.",
            )
        ]
        assert run.call("palyra.echo", {}).success
