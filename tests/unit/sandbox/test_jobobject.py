from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Rejected, Unenforceable
from palyra.model.call import Tier
from palyra.model.host import Guarantee, HostFacts, Platform
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK, EgressMode, NetGrant
from palyra.model.plan import JobObjectLimits
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.jobobject import JobObjectBackend, command_line, environment_block, job_limits
from palyra.sandbox.planner import plan_job
from tests.unit.sandbox.jobs import make_host, make_job

BACKEND = JobObjectBackend()
OPEN = NetGrant(EgressMode.NONE)
WINDOWS = make_host(
    platform=Platform.WINDOWS, machine="AMD64", bubblewrap=None, shell="", job_objects=True, system_root="C:\\Windows"
)
WS = WorkspaceSight(path="C:\\project", owner_uid=1000, owner_gid=1000)


def read_back(line: str) -> list[str]:
    """How the C runtime of a Windows program takes a command line apart (the program's name aside)."""
    assert line.startswith('"')
    name, rest = line[1:].split('"', 1)
    words, word, quoted, started = [name], "", False, False
    at = 0
    while at < len(rest):
        char = rest[at]
        if char == "\\":
            run = len(rest[at:]) - len(rest[at:].lstrip("\\"))
            at += run
            if rest[at : at + 1] == '"':
                word, started = word + "\\" * (run // 2), True
                if run % 2:
                    word += '"'
                    at += 1
            else:
                word, started = word + "\\" * run, True
            continue
        at += 1
        if char == '"':
            quoted, started = not quoted, True
        elif char in " \t" and not quoted:
            if started:
                words.append(word)
            word, started = "", False
        else:
            word, started = word + char, True
    return [*words, word] if started else words


@given(
    st.lists(st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=12), max_size=6)
)
def test_every_argument_is_read_back_as_it_was(arguments: list[str]) -> None:
    assert read_back(command_line(["C:\\a b\\git.exe", *arguments])) == ["C:\\a b\\git.exe", *arguments]


@given(st.lists(st.text('\\" \ta', max_size=8), max_size=4))
def test_quotes_and_backslashes_are_read_back_too(arguments: list[str]) -> None:
    assert read_back(command_line(["x", *arguments])) == ["x", *arguments]


@pytest.mark.parametrize("argv", [[], ['a"b'], ["a", "b\0c"]])
def test_what_no_command_line_can_carry_is_refused(argv: list[str]) -> None:
    with pytest.raises(ValueError, match=r"command line|name"):
        command_line(argv)


def test_the_environment_is_one_sorted_block() -> None:
    assert environment_block([("b", "2"), ("A", "1"), ("C", "x=y")]) == "A=1\0b=2\0C=x=y\0\0"
    assert environment_block([]) == "\0\0"


@pytest.mark.parametrize("env", [[("", "x")], [("a=b", "x")], [("a", "x\0y")], [("Path", "1"), ("PATH", "2")]])
def test_variables_that_would_become_others_are_refused(env: list[tuple[str, str]]) -> None:
    with pytest.raises(ValueError, match=r"variable|twice"):
        environment_block(env)


def test_limits_are_in_the_units_windows_takes() -> None:
    limits = Limits(cpu_ms=1500, memory_bytes=64 << 20, processes=7)
    assert job_limits(limits) == JobObjectLimits(
        flags=0x270A, process_time=15_000_000, active_processes=7, process_memory=64 << 20, job_memory=64 << 20,
        ui_restrictions=0xFF,
    )  # fmt: skip


def test_a_call_is_bounded_and_ended_but_not_isolated() -> None:
    job = make_job(tier=Tier.B, net=OPEN, workspace=WS, program="C:\\Program Files\\Git\\git.exe")
    plan = plan_job(job, WINDOWS)
    assert (plan.backend, plan.executor, plan.road) == ("jobobject", "sandbox_tier_b_windows_job_object", "job")
    assert plan.guarantees == {
        Guarantee.CPU_LIMIT, Guarantee.MEMORY_LIMIT, Guarantee.MEMORY_LIMIT_TREE, Guarantee.PROCESS_LIMIT,
        Guarantee.TREE_KILL,
    }  # fmt: skip
    assert [note.partition(":")[0] for note in plan.degraded] == [
        "FS_ISOLATED", "SYSCALL_FILTER", "cpu_user_time", "network_shared",
    ]  # fmt: skip
    assert plan.env[-1] == ("SystemRoot", "C:\\Windows")


def test_strict_egress_is_refused_with_the_way_out() -> None:
    with pytest.raises(Unenforceable) as refusal:
        plan_job(make_job(tier=Tier.B, net=NO_NETWORK, workspace=WS), WINDOWS)
    assert refusal.value.missing == ("NET_ISOLATED",)


def test_tier_c_needs_a_container() -> None:
    with pytest.raises(Unenforceable) as refusal:
        plan_job(make_job(workspace=WS), WINDOWS)
    assert "container_image" in (refusal.value.hint or "")


@pytest.mark.parametrize("name", ["build.bat", "BUILD.CMD", "x.Bat"])
def test_batch_files_are_refused(name: str) -> None:
    job = make_job(tier=Tier.B, net=OPEN, workspace=WS, program=f"C:\\project\\{name}")
    with pytest.raises(Rejected, match="batch"):
        BACKEND.plan(job, WINDOWS)


@pytest.mark.parametrize("host", [make_host(job_objects=True), make_host(platform=Platform.WINDOWS)])
def test_no_other_system_claims_it(host: HostFacts) -> None:
    assert BACKEND.guarantees(host) == frozenset()
