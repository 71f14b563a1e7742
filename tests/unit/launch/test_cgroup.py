"""Groups as files in a folder: what is written where, in either version. Kernels are asked in tests/conformance."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from palyra.launch import cgroup
from palyra.launch.cgroup import Group, GroupSpec, make_group
from palyra.launch.executor import LaunchFailed


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder made below another has the files of a group, as the kernel would put them there."""
    mkdir = os.mkdir

    def make(path: str, mode: int = 0o777) -> None:
        mkdir(path, mode)
        names = {
            "v2": ("cgroup.procs", "cgroup.kill", "memory.max", "memory.swap.max", "pids.max"),
            "memory": ("cgroup.procs", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            "pids": ("cgroup.procs", "pids.max"),
        }
        for name in names.get(Path(path).parent.name, ()):
            (Path(path) / name).touch()

    monkeypatch.setattr(cgroup.os, "mkdir", make)


def below(tmp_path: Path, *names: str) -> tuple[str, ...]:
    for name in names:
        (tmp_path / name).mkdir()
    return tuple(str(tmp_path / name) for name in names)


def test_version_two_has_one_group_for_everything(tmp_path: Path, kernel: None) -> None:
    (parent,) = below(tmp_path, "v2")
    spec = GroupSpec(kill=parent, memory=parent, pids=parent, memory_bytes=4096, processes=7)
    group = make_group(spec, "x")
    path = Path(parent) / "palyra-x"
    assert group == Group(paths=(str(path),), kill_path=str(path), memory_path=str(path))
    group.add(4711)
    assert group.kill()
    texts = {name: (path / name).read_text() for name in os.listdir(path)}
    assert texts == {
        "cgroup.procs": "4711",
        "cgroup.kill": "1",
        "memory.max": "4096",
        "memory.swap.max": "0",
        "pids.max": "7",
    }


def test_version_one_has_one_in_each_hierarchy_and_cannot_kill(tmp_path: Path, kernel: None) -> None:
    memory, pids = below(tmp_path, "memory", "pids")
    group = make_group(GroupSpec(memory=memory, pids=pids, memory_bytes=4096, processes=7), "x")
    group.add(4711)
    assert not group.kill()
    assert (Path(memory) / "palyra-x" / "memory.limit_in_bytes").read_text() == "4096"
    assert (Path(memory) / "palyra-x" / "memory.memsw.limit_in_bytes").read_text() == "4096"
    assert (Path(pids) / "palyra-x" / "pids.max").read_text() == "7"
    assert [Path(path, "cgroup.procs").read_text() for path in group.paths] == ["4711", "4711"]


def test_what_fails_half_way_leaves_no_group(tmp_path: Path) -> None:
    (memory,) = below(tmp_path, "memory")
    with pytest.raises(LaunchFailed, match="cgroup"):
        make_group(GroupSpec(memory=memory, pids=str(tmp_path / "missing"), memory_bytes=1, processes=1), "x")
    assert os.listdir(memory) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("memory.events", "low 0\noom 1\noom_kill 2\n", True),
        ("memory.events", "low 0\noom_kill 0\n", False),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", True),
        ("other", "", False),
    ],
)
def test_an_end_for_want_of_memory_is_read_in_either_version(
    tmp_path: Path, name: str, text: str, expected: bool
) -> None:
    (tmp_path / name).write_text(text)
    assert Group(paths=(str(tmp_path),), memory_path=str(tmp_path)).ran_out_of_memory() is expected
    assert not Group(paths=(str(tmp_path),)).ran_out_of_memory()


def test_a_group_that_does_not_go_is_said(tmp_path: Path) -> None:
    (tmp_path / "member").touch()
    assert not asyncio.run(Group(paths=(str(tmp_path),)).remove(0.005))
    (tmp_path / "member").unlink()
    assert asyncio.run(Group(paths=(str(tmp_path), str(tmp_path / "never"))).remove(1))
