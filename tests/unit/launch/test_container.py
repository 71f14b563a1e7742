"""The container road with a client of our own making: every answer an engine can give, on any machine."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.errors import Reason
from palyra.launch import _os
from palyra.launch.container import ContainerRoad, Engine, sweep
from palyra.model.call import Tier
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK
from palyra.model.outcome import Execution, Status, StreamName
from palyra.model.plan import ProcessPlan
from palyra.sandbox.docker import FILTER, NAME, OWNER

CLIENT = r"""#!/bin/sh
# A container engine in a folder: a file for each container, holding "status pid owner started oom".
home=$(dirname "$0")/containers
echo "$*" >> "$home/../asked"
verb=$1; shift
last() { for last; do :; done; echo "$last"; }
case $verb in
run)
    while [ "$1" != IMAGE ]; do
        case $1 in
        --name) name=$2;;
        --label) owner=${2#palyra.owner=};;
        --security-opt) cat "${2#seccomp=}" > /dev/null || exit 1;;
        esac
        shift
    done
    shift
    pwd > "$home/../where"
    [ -e "$home/../slow" ] && sleep 0.3
    [ -e "$home/../early" ] && { echo "Error: no such image" >&2; exit 125; }
    echo "created - $owner 0001-01-01 false" > "$home/$name"
    command -v "$1" >/dev/null || { echo "Error: exec: $1: not found" >&2; exit 127; }
    exec 3<&0  # a shell gives what it starts beside itself no input, unless it is told
    "$@" <&3 3<&- &
    echo "running $! $owner 2026-01-01 $(cat "$home/../oom" 2>/dev/null || echo false)" > "$home/$name"
    wait $!
    code=$?
    [ -e "$home/$name" ] && sed -i s/running/exited/ "$home/$name"
    exit $code;;
inspect)
    while [ "$1" ]; do case $1 in --type) shift;; --format) format=$2; shift;; *) names="$names $1";; esac; shift; done
    for name in $names; do
        read -r status pid owner started oom < "$home/$name" || exit 1
        case $format in
        *StartedAt*) echo "$started|$oom";;
        *Labels*) echo "/$name|$owner";;
        *Status*) echo "$status";;
        esac
    done;;
ps) ls "$home";;
kill) read -r status pid rest < "$home/$(last "$@")" && kill -"$2" "$pid";;
rm)
    name=$(last "$@")
    [ -e "$home/$name" ] || exit 0
    [ -e "$home/../stuck" ] && exit 1
    read -r status pid rest < "$home/$name"
    [ "$pid" != - ] && kill -KILL "$pid" 2>/dev/null
    rm "$home/$name"
    echo "$name";;
esac
"""


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    client = tmp_path / "podman"
    client.write_text(CLIENT)
    client.chmod(0o755)
    (tmp_path / "containers").mkdir()
    return Engine(str(client), (("PATH", "/usr/bin:/bin"),), "podman")


class Kept:
    def __init__(self) -> None:
        self.parts = dict.fromkeys(StreamName, b"")

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        self.parts[stream] += chunk


def make_plan(engine: Engine, *argv: str, **limits: int) -> ProcessPlan:
    return ProcessPlan(
        backend="podman", executor="sandbox_tier_c_podman", tier=Tier.C, road="container", launcher_env=engine.env,
        launcher=(engine.client, "run", "--name", NAME, "--label", OWNER, "--security-opt", FILTER, "IMAGE"),
        data=(b"{}",), program=argv[0], program_sha256="", argv=argv, env=(), cwd="/", limits=Limits(**limits),
        net=NO_NETWORK, pid_namespace=True, guarantees=frozenset(), stdin=b"hello",
    )  # fmt: skip


def run(engine: Engine, *argv: str, **limits: int) -> tuple[Execution, Kept]:
    sink, before = Kept(), len(os.listdir("/proc/self/fd"))
    ended = asyncio.run(ContainerRoad().run(make_plan(engine, *argv, **limits), sink))
    assert len(os.listdir("/proc/self/fd")) == before
    return ended, sink


def containers(engine: Engine) -> list[str]:
    return os.listdir(Path(engine.client).parent / "containers")


def set_up(engine: Engine, name: str, text: str = "") -> None:
    (Path(engine.client).parent / name).write_text(text)


def test_a_program_runs_with_its_streams_and_is_removed(engine: Engine) -> None:
    ended, sink = run(engine, "sh", "-c", "cat; echo err >&2; exit 3")
    assert (ended.status, ended.exit_code, ended.degraded) == (Status.COMPLETED, 3, ())
    assert sink.parts == {StreamName.STDOUT: b"hello", StreamName.STDERR: b"err\n"}
    assert containers(engine) == []


@pytest.mark.parametrize("code", [125, 126, 127, 137])
def test_a_code_that_the_client_uses_too_is_the_programs_where_it_started(engine: Engine, code: int) -> None:
    ended, _ = run(engine, "sh", "-c", f"exit {code}")
    assert (ended.status, ended.exit_code, ended.reason) == (Status.COMPLETED, code, None)


def test_a_program_that_never_started_is_no_exit_code(engine: Engine) -> None:
    ended, _ = run(engine, "palyra-does-not-exist")
    assert (ended.status, ended.reason, ended.exit_code) == (Status.FAILED, Reason.SPAWN_FAILED, None)
    assert "not found" in (ended.message or "")


def test_a_container_that_was_never_made_is_a_failed_start(engine: Engine) -> None:
    set_up(engine, "early")
    ended, _ = run(engine, "true")
    assert (ended.status, ended.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "no such image" in (ended.message or "")


def test_a_missing_client_is_a_failed_start(engine: Engine) -> None:
    os.unlink(engine.client)
    ended, _ = run(engine, "true")
    assert (ended.status, ended.reason) == (Status.FAILED, Reason.SPAWN_FAILED)


def test_the_client_is_started_where_no_file_can_be_made(engine: Engine) -> None:
    run(engine, "true")
    assert (Path(engine.client).parent / "where").read_text() == "/proc\n"


def test_an_end_for_want_of_memory_is_named(engine: Engine) -> None:
    set_up(engine, "oom", "true")
    ended, _ = run(engine, "sh", "-c", "exit 137")
    assert (ended.exit_code, ended.reason) == (137, Reason.MEMORY_LIMIT)


def test_the_deadline_asks_first_and_then_removes(engine: Engine) -> None:
    tidy, sink = run(engine, "sh", "-c", 'trap "echo tidy; exit 0" TERM; sleep 30 & wait', wall_ms=400)
    assert (tidy.status, sink.parts[StreamName.STDOUT]) == (Status.TIMEOUT, b"tidy\n")
    stubborn, _ = run(engine, "sh", "-c", "trap : TERM; while :; do sleep 0.1; done", wall_ms=300)
    assert (stubborn.status, stubborn.exit_code, containers(engine)) == (Status.TIMEOUT, None, [])


def test_a_flood_is_ended_at_the_quota(engine: Engine) -> None:
    ended, sink = run(engine, "yes", output_bytes=1000)
    assert (ended.status, len(sink.parts[StreamName.STDOUT])) == (Status.QUOTA_EXCEEDED, 1000)
    assert containers(engine) == []


@pytest.mark.parametrize("after_s", [0, 0.1, 0.4])
def test_cancelling_waits_for_a_container_that_is_being_made_and_removes_it(engine: Engine, after_s: float) -> None:
    set_up(engine, "slow")

    async def go() -> None:
        task = asyncio.create_task(ContainerRoad().run(make_plan(engine, "sleep", "30"), Kept()))
        await asyncio.sleep(after_s)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(go())
    assert containers(engine) == []


def test_a_container_that_stays_is_said(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palyra.launch.container._REMOVE_TRIES", 2)
    set_up(engine, "stuck")
    ended, _ = run(engine, "true")
    assert (ended.status, ended.exit_code) == (Status.COMPLETED, 0)
    assert ended.degraded[0].startswith("tree_kill: the container palyra-")


def test_only_what_dead_engines_left_is_swept_and_only_once(engine: Engine) -> None:
    boot, namespace = _os.own_identity().split(".")[:2]
    folder = Path(engine.client).parent / "containers"
    owners = {
        "mine": _os.own_identity(), "dead": f"{boot}.{namespace}.4194300.1", "old": "other.1.1.1", "strange": "",
        "elsewhere": f"{boot}.1.4194300.1",
    }  # fmt: skip
    for name, owner in owners.items():
        (folder / name).write_text(f"running - {owner} 2026-01-01 false\n")
    assert sorted(asyncio.run(sweep(engine))) == ["dead", "old", "strange"]
    assert sorted(containers(engine)) == ["elsewhere", "mine"]


def test_the_client_gets_its_own_environment_and_nothing_else(engine: Engine) -> None:
    _, sink = run(engine, "env")
    keys = {line.partition(b"=")[0] for line in sink.parts[StreamName.STDOUT].splitlines()}
    assert keys <= {b"PATH", b"PWD", b"OLDPWD", b"_"}


def test_a_link_in_the_place_of_a_granted_folder_is_not_handed_to_the_engine(engine: Engine, tmp_path: Path) -> None:
    granted = tmp_path / "granted"
    granted.mkdir()
    plan = replace(make_plan(engine, "true"), granted=(str(granted),))
    assert asyncio.run(ContainerRoad().run(plan, Kept())).status is Status.COMPLETED
    granted.rmdir()
    granted.symlink_to("/")
    ended = asyncio.run(ContainerRoad().run(plan, Kept()))
    assert (ended.status, ended.reason) == (Status.FAILED, Reason.SPAWN_FAILED)
    assert "a link has taken the place of what was granted" in (ended.message or "")
