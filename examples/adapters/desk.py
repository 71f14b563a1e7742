"""What the examples beside this file share: a home with a policy that asks before anything is deleted, a project to
work in, and an operator who says yes. A real operator sits at the console, or types `palyra approvals approve ID`."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from palyra import Palyra

POLICY = """
@id("desk.ask-before-deleting")
@reason("Deleting is for people to decide.")
forbid (principal, action == Action::"tool::execute", resource)
when { context.program == "rm" }
unless { context.approved };
"""


@contextmanager
def open_desk(*, ask: str = POLICY) -> Iterator[tuple[Palyra, Path]]:
    """(an embedded Palyra, a project's folder with `notes.txt` and `old.txt`)"""
    with tempfile.TemporaryDirectory(prefix="palyra-example-") as name:
        place = Path(name).resolve()
        place.chmod(0o755)
        home, project = place / "home", place / "project"
        (home / "policies").mkdir(parents=True, mode=0o700)
        home.chmod(0o700)
        (home / "policies" / "desk.cedar").write_text(ask)
        project.mkdir()
        project.chmod(0o777)
        (project / "notes.txt").write_text("buy milk\n")
        (project / "old.txt").write_text("yesterday\n")
        for file in project.iterdir():
            file.chmod(0o666)
        with Palyra.open(str(home)) as palyra:
            yield palyra, project


@contextmanager
def operator(palyra: Palyra) -> Iterator[list[str]]:
    """Approves whatever is asked while the block runs; the list fills with what it was."""
    said: list[str] = []
    done = threading.Event()

    def decide() -> None:
        while not done.is_set():
            for item in palyra.approvals.list():
                palyra.approvals.approve(str(item["approval_id"]), by="user:operator")
                said.append(str(item["program"]))
            time.sleep(0.05)

    working = threading.Thread(target=decide)
    working.start()
    try:
        yield said
    finally:
        done.set()
        working.join()
