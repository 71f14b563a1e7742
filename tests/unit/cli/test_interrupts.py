"""Ctrl-C ends a command that still loads, at once and without a word, and is an interrupt everywhere else."""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.cli import interrupts

AT_IMPORT = """
import os, signal
class Deep:
    def __set_name__(self, owner, name):  # Python wraps what is raised here into an error of another kind
        os.kill(os.getpid(), signal.SIGINT)
class Owner:
    field = Deep()
"""
SAY = "except KeyboardInterrupt: print('interrupted')"


def start(text: str, folder: Path, **how: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", f"from palyra.cli.interrupts import *\n{text}"]
    (folder / "interrupting.py").write_text(AT_IMPORT)
    environ = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60, **how)  # type: ignore[call-overload,no-any-return]


def test_within_an_import_it_ends_the_process_at_once(tmp_path: Path) -> None:
    done = start(f"watch()\ntry: import interrupting\n{SAY}", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_everywhere_else_it_is_an_interrupt(tmp_path: Path) -> None:
    done = start(f"import os\nwatch()\ntry: os.kill(os.getpid(), 2)\n{SAY}", tmp_path)
    assert (done.returncode, done.stdout) == (0, "interrupted\n")


def test_who_ignores_it_goes_on_ignoring_it(tmp_path: Path) -> None:
    done = start(
        "import os\nwatch()\nos.kill(os.getpid(), 2)\nprint('went on')",
        tmp_path,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_a_loop_cancels_its_task_so_that_it_can_tidy_up(tmp_path: Path) -> None:
    text = """
import asyncio, os
async def work():
    os.kill(os.getpid(), 2)
    try:
        await asyncio.sleep(30)
    finally:
        print("tidied up")
watch()
try: run(work())
"""
    done = start(text + SAY, tmp_path)
    assert done.stdout == "tidied up\ninterrupted\n"


def test_a_prompt_below_a_loop_is_left_at_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def at_the_prompt(text: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass
        return "typed"

    async def work() -> str:
        return interrupts.ask("Value: ")

    monkeypatch.setattr(getpass, "getpass", at_the_prompt)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_before_anything_is_imported_it_just_ends_the_process() -> None:
    """Python's own answer, a traceback, is left only for what comes before us."""
    look = "import os, palyra.cli.entry\nos.kill(os.getpid(), 2)"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
    light = "import sys\nimport palyra\nprint('typing' in sys.modules or 'signal' in sys.modules)"
    done = subprocess.run([sys.executable, "-S", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{light}"],
                          capture_output=True, text=True, timeout=60)  # fmt: skip
    assert done.stdout == "False\n"


def test_who_ignores_it_before_anything_is_imported_goes_on_ignoring_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import os, palyra.cli.entry\nos.kill(os.getpid(), 2)\nprint('went on')"],
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (done.returncode, done.stdout) == (0, "went on\n")


@pytest.mark.parametrize("module", ["palyra", "palyra.cli.entry"])
def test_every_way_in_watches_for_it_first(module: str) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "palyra", "--version"]
    if module != "palyra":
        words = [sys.executable, "-X", "importtime", "-c", f"from {module} import main; main()", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    loaded = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert loaded.index("palyra.cli.interrupts") < loaded.index("click")
