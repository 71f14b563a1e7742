"""The attacks of tier C in a container: what others are attacked with in tests/conformance, by busybox alone."""

from __future__ import annotations

import os
import subprocess

import pytest

from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.outcome import Status, StreamName
from tests.conformance.test_swaps import swapping
from tests.podman.conftest import Place, containers
from tests.promises import promise

pytestmark = pytest.mark.slow


@promise("fs-isolated.container")
def test_nothing_outside_is_changed_through_links_of_any_kind(place: Place) -> None:
    outside, workspace = place.secret.parent, place.workspace
    (workspace / "link").symlink_to(place.secret)
    (workspace / "dangling").symlink_to(outside / "new")
    (workspace / "folder").symlink_to(outside)
    os.mkfifo(outside / "fifo", 0o666)
    (workspace / "pipe").symlink_to(outside / "fifo")
    script = """
        for f in link dangling folder/new pipe "/proc/self/root$1/new" "/proc/1/root$1/new" ./../outside/new
        do if ( echo mine > "$f" ) 2>/dev/null; then echo "wrote $f"; fi; done
        ln "$1/secret" hard 2>/dev/null && echo linked
        ln /bin/busybox hard 2>/dev/null && echo linked
        echo done
    """
    result = place.sh(script, str(outside), limits=Limits(wall_ms=60_000))
    assert Guarantee.FS_ISOLATED in result.plan.guarantees
    assert result.output.stdout == "done\n"
    assert place.secret.read_text() == "the secret"
    assert sorted(path.name for path in outside.iterdir()) == ["fifo", "secret"]


@promise("fs-isolated.container")
def test_a_link_swapped_while_the_program_runs_leads_nowhere(place: Place) -> None:
    moving = place.workspace / "moving"
    moving.mkdir()
    os.chown(moving, place.owner, place.owner)
    script = """
        n=0
        while [ $n -lt 300 ]
        do n=$((n + 1)); ( echo mine > moving/file ) 2>/dev/null; cat moving/secret 2>/dev/null
        done
        echo done
    """
    with swapping(moving, place.secret.parent):
        result = place.sh(script)
    assert result.output.stdout == "done\n"
    assert [path.name for path in place.secret.parent.iterdir()] == ["secret"]


@promise("syscall-filter.container")
def test_processes_outside_can_neither_be_seen_nor_signalled(place: Place) -> None:
    with subprocess.Popen(["/bin/sleep", "60"], user=None if os.getuid() else place.owner) as beside:
        try:
            script = 'kill -0 "$1" 2>/dev/null && echo found; kill -9 -1 2>/dev/null; echo done'
            result = place.sh(script, str(beside.pid))
            assert "found" not in result.output.stdout
            assert beside.poll() is None
        finally:
            beside.kill()


@promise("fs-isolated.container")
def test_the_engines_environment_and_the_clients_are_not_there(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALYRA_TEST_SECRET", "of-the-engine")
    said = place.sh("cat /proc/*/environ | tr '\\0' '\\n'; cat /proc/*/cmdline | tr '\\0' '\\n'").output.stdout
    assert "of-the-engine" not in said
    assert "--security-opt" not in said


@pytest.mark.parametrize(
    ("script", "limits", "status"),
    [
        ("yes >&2", Limits(output_bytes=1000, wall_ms=60_000), Status.QUOTA_EXCEEDED),
        ("while :; do echo .; sleep 0.1; done", Limits(wall_ms=2000), Status.TIMEOUT),
        ("exec >&- 2>&-; sleep 60", Limits(wall_ms=2000), Status.TIMEOUT),
    ],
    ids=["a flood on stderr alone", "a slow drip", "closed streams"],
)
def test_no_way_of_writing_outlives_its_limits(place: Place, script: str, limits: Limits, status: Status) -> None:
    result = place.sh(script, limits=limits)
    assert result.execution.status is status
    assert len(result.output.parts[StreamName.STDERR]) <= 1000
    assert containers() == []


def test_a_program_that_never_reads_its_input_holds_nobody_up(place: Place) -> None:
    result = place.sh("exit 3", stdin=b"x" * (1 << 20))
    assert (result.execution.status, result.execution.exit_code) == (Status.COMPLETED, 3)
