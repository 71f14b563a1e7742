"""The probe's answer is what was seen: each blocker here is provoked for real, in a namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from palyra.sandbox import probe_launcher
from palyra.sandbox.probe import probe
from tests.conformance.arena import host
from tests.promises import promise

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
ASK = """
import json, sys
sys.path.insert(0, sys.argv[1])
from palyra.sandbox.probe import probe
host = probe(home="/nonexistent", state_home="", search_path=())
print(json.dumps([host.bubblewrap is not None, [[b.code, b.fix] for b in host.blockers]]))
"""


def blockers_after(setup: str) -> list[str]:
    """In new user and mount namespaces, after a line of shell, the probe of a process that knows no better."""
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-Urm", "true"], capture_output=True).returncode:
        pytest.skip("no user namespace can be made to provoke it in")
    script = f'{setup} && exec "$0" -c "$1" "$2"'
    argv = [unshare, "-Urm", "/bin/sh", "-c", script, sys.executable, ASK, str(ROOT / "src")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    works, found = json.loads(done.stdout.splitlines()[-1])
    assert not works
    assert all(fix for _, fix in found)
    return [code for code, _ in found]


def test_user_namespaces_switched_off_are_named() -> None:
    assert blockers_after("echo 0 > /proc/sys/user/max_user_namespaces") == ["user_namespaces_off"]


def test_network_namespaces_switched_off_are_named() -> None:
    assert blockers_after("echo 0 > /proc/sys/user/max_net_namespaces") == ["net_namespaces_off"]


def test_pid_namespaces_switched_off_are_named() -> None:
    assert blockers_after("echo 0 > /proc/sys/user/max_pid_namespaces") == ["pid_namespaces_off"]


def test_a_missing_bubblewrap_is_named() -> None:
    places = [p for p in ("/usr/local/bin/bwrap", "/usr/bin/bwrap", "/bin/bwrap") if os.path.isfile(p)]
    hide = " && ".join(f"mount --bind /dev/null {place}" for place in places) or ":"
    assert blockers_after(hide) == ["missing"]


@promise("fs-isolated.probed-launcher")
def test_a_bubblewrap_that_does_not_isolate_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program of that name that just runs what it is given would pass `--version`; it does not pass a look."""
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\n[ "$1" = --version ] && { echo bubblewrap 9.9; exit; }\n'
                    'while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')  # fmt: skip
    fake.chmod(0o755)
    monkeypatch.setattr(probe_launcher, "TOOLS", (str(tmp_path), *probe_launcher.TOOLS))
    found = probe(home="/nonexistent", state_home="", search_path=())
    assert found.bubblewrap is None
    assert [blocker.code for blocker in found.blockers] == ["not_isolating"]


@promise("fs-isolated.probed-launcher")
def test_a_home_and_a_state_folder_that_exist_are_looked_for_inside(tmp_path: Path) -> None:
    if host().bubblewrap is None:
        pytest.skip("; ".join(blocker.detail for blocker in host().blockers))
    found = probe(home=str(tmp_path), state_home=str(tmp_path / "state"), search_path=(), fresh=True)
    assert (found.bubblewrap, found.blockers) == (host().bubblewrap, ())
