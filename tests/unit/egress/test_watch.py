"""Programs that go to the network by themselves are watched where nothing is granted."""

from __future__ import annotations

import time

import pytest

from palyra.egress.hosts import parse_pattern
from palyra.egress.watch import watching_face
from palyra.model.face import NetFace
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant


@pytest.mark.parametrize(
    "line",
    ["pip install x", "pip3.11 install x", "npm ci", "git clone url", "python3 -m pip install x", "curl --config file"],
)
def test_they_are_watched(line: str) -> None:
    program, *args = line.split()
    assert watching_face(NO_NETWORK, program, args) == NetFace()


@pytest.mark.parametrize("line", ["ls -la", "git status", "python3 -m pytest", "python3 -m", "sh -c true", "1.2.3"])
def test_programs_that_stay_at_home_are_not(line: str) -> None:
    program, *args = line.split()
    assert watching_face(NO_NETWORK, program, args) is None


@pytest.mark.parametrize(
    "code",
    [
        "pip install x", "v/bin/pip install x", "cd a && npm ci", "A=b npm ci | tee x", "(python3 -m pip install x)",
        "if true; then git clone u; fi", "time cargo fetch", "echo $(curl -sS u)", "true\nuv sync", "CI=1 A= npm ci",
    ],
)  # fmt: skip
@pytest.mark.parametrize("shell", [("bash", "-c"), ("sh", "-ec"), ("/bin/bash", "-lc")])
def test_a_shells_code_is_watched_for_the_programs_it_starts(code: str, shell: tuple[str, str]) -> None:
    assert watching_face(NO_NETWORK, shell[0], [shell[1], code]) == NetFace()


@pytest.mark.parametrize(
    "code", ["echo pip", "ls", "git status", "python3 -m pytest -q", "cat npm", "", "bash -c 'pip install x'", "make"]
)
def test_a_shells_code_that_starts_none_of_them_is_not(code: str) -> None:
    assert watching_face(NO_NETWORK, "bash", ["-c", code]) is None
    assert watching_face(NO_NETWORK, "bash", ["pip", code]) is None


@pytest.mark.parametrize("line", ["\n", "\n ", "\n\t\n", "time\n", "a=\n"])
def test_code_of_empty_lines_costs_no_more_than_other_code(line: str) -> None:
    """Each line was read to the end of the last one: 16 KiB took the engine 8 seconds."""

    def cost_s(code: str) -> float:
        began = time.process_time()
        assert watching_face(NO_NETWORK, "bash", ["-c", code]) is None
        return time.process_time() - began

    size = 1 << 14
    assert cost_s((line * size)[:size]) < 50 * max(cost_s("ls;" * (size // 3)), 0.002)


def test_only_an_empty_strict_grant_is_watched() -> None:
    assert watching_face(NetGrant(EgressMode.NONE), "pip", ()) is None
    assert watching_face(NetGrant(EgressMode.STRICT, (parse_pattern("a.test"),)), "pip", ()) is None


def test_a_program_is_known_by_its_name_wherever_it_lies() -> None:
    assert watching_face(NO_NETWORK, "/usr/bin/pip3", ["install", "x"]) == NetFace()


def test_a_program_whose_code_names_a_host_is_watched() -> None:
    assert watching_face(NO_NETWORK, "bash", ["-c", "curl https://a.test"], names=True) == NetFace()
    assert watching_face(NetGrant(EgressMode.NONE), "bash", ["-c", "x"], names=True) is None
