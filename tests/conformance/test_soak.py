"""Many calls at once leave nothing behind: no process, namespace, mount, file, descriptor, thread or cgroup.

The short version of `make soak`, in a process of its own, and the proof that the counting would see each of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.promises import promise
from tests.soak.load import KINDS
from tests.soak.traces import take_traces

ROOT = Path(__file__).parents[2]
SECONDS = 6
pytestmark = pytest.mark.slow


@promise("sandbox.leftovers")
def test_sixty_four_callers_at_once_leave_nothing_behind() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--seconds", str(SECONDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        timeout=240,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert (report["left"], report["odd"], report["findings"]) == ({}, [], [])
    assert {name.partition(" ")[0] for name in report["by_kind"]} == {kind.__name__ for kind in KINDS}
    assert report["calls"] >= 64


@pytest.fixture
def mark():
    with tempfile.TemporaryDirectory(prefix="palyra-soak-test-") as folder:
        yield Path(folder).resolve()


@promise("sandbox.leftovers")
def test_a_process_that_escaped_to_the_first_one_is_seen(mark: Path) -> None:
    before = take_traces(mark)
    orphan = "import os, subprocess\nprint(subprocess.Popen(['sleep', '60'], stdout=2, start_new_session=True).pid)"
    pid = int(subprocess.check_output([sys.executable, "-c", orphan], cwd=mark, stderr=subprocess.DEVNULL))
    try:
        assert take_traces(mark).beyond(before) == {"processes": [f"{pid} sleep 60 "]}
    finally:
        os.kill(pid, 9)


@promise("sandbox.leftovers")
def test_a_namespace_that_stayed_is_seen(mark: Path) -> None:
    before = take_traces(mark)
    held = subprocess.Popen(["unshare", "--user", "--net", "sleep", "60"], cwd=mark)
    try:
        while b"unshare" in Path(f"/proc/{held.pid}/cmdline").read_bytes() and held.poll() is None:
            pass
        if held.poll() is not None:
            pytest.skip("no user namespace can be made here")
        kinds = sorted(name.partition(":")[0] for name in take_traces(mark).beyond(before)["namespaces"])
        assert kinds == ["net", "user"]
    finally:
        held.kill()
        held.wait()


@promise("sandbox.leftovers")
def test_a_file_a_descriptor_and_a_thread_that_stayed_are_seen(mark: Path) -> None:
    before = take_traces(mark)
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left-over")
    thread.start()
    with (mark / "left").open("w") as file:
        left = take_traces(mark).beyond(before)
        assert left["files"] == ["left"]
        assert f"{file.fileno()} {mark}/left" in left["descriptors"]
        assert "left-over" in left["threads"]
    stop.set()
    thread.join()
