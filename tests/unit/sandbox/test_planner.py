from __future__ import annotations

from dataclasses import replace

import pytest

from palyra.errors import Reason, Unenforceable
from palyra.model.call import Tier, TierChoice
from palyra.model.host import Blocker, ContainerFacts, Guarantee, HostFacts
from palyra.model.net import NO_NETWORK, EgressMode, HostKind, HostPattern, NetGrant
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import (
    BACKENDS,
    CARRIES,
    Carried,
    check_own_programs,
    choose_tier,
    needs_for,
    plan_job,
)
from tests.unit.sandbox.jobs import make_host, make_job

OPEN = NetGrant(EgressMode.NONE)
HOSTS = NetGrant(EgressMode.STRICT, (HostPattern(HostKind.EXACT, "example.com"),))
BLOCKER = Blocker(
    "bubblewrap", "missing", "bubblewrap (bwrap) is not installed.", "Install bubblewrap: apt install bubblewrap"
)


def without_bubblewrap() -> HostFacts:
    return make_host(bubblewrap=None, blockers=(BLOCKER,))


def refusal(job: object, host: HostFacts) -> Unenforceable:
    with pytest.raises(Unenforceable) as caught:
        plan_job(job, host)
    assert caught.value.reason is Reason.UNENFORCEABLE
    return caught.value


def test_tier_c_takes_bubblewrap_and_tier_b_the_plain_child() -> None:
    assert plan_job(make_job(), make_host()).backend == "bubblewrap"
    assert plan_job(make_job(tier=Tier.B, net=OPEN), make_host()).backend == "rlimit"


def test_what_runs_always_guarantees_what_was_needed() -> None:
    for tier, net in ((Tier.C, NO_NETWORK), (Tier.C, OPEN), (Tier.B, OPEN)):
        job = make_job(tier=tier, net=net)
        assert job.needs <= plan_job(job, make_host()).guarantees


def test_without_a_backend_the_refusal_names_what_is_missing_and_the_fix() -> None:
    error = refusal(make_job(), without_bubblewrap())
    assert set(error.missing) == {g.value for g in needs_for(Tier.C, NO_NETWORK)[0]}
    assert error.detail == "bubblewrap (bwrap) is not installed. So this host has no tier C sandbox."
    assert error.hint == BLOCKER.fix


def test_strict_hosts_are_refused_while_nothing_enforces_them() -> None:
    error = refusal(make_job(net=HOSTS), make_host())
    assert error.missing == ("HOST_ALLOWLIST",)
    assert "--egress" in (error.hint or "")


def test_strict_egress_in_tier_b_is_refused() -> None:
    error = refusal(make_job(tier=Tier.B), make_host())
    assert error.missing == ("NET_ISOLATED",)
    assert "--tier c" in (error.hint or "")


def test_strict_egress_without_hosts_is_kept_in_tier_b_where_the_kernel_can() -> None:
    host = make_host(landlock_abi=7, bubblewrap=None)
    assert plan_job(make_job(tier=Tier.B), host).backend == "rlimit"
    assert choose_tier(TierChoice.AUTO, host, NO_NETWORK, fallback="b") is Tier.B
    assert refusal(make_job(tier=Tier.B, net=HOSTS), host).missing == ("HOST_ALLOWLIST",)


def test_a_promise_the_job_loses_is_refused_although_the_host_could_keep_it() -> None:
    roots = make_job(workspace=WorkspaceSight(path="/srv/project"))
    error = refusal(roots, make_host(uid=0, gid=0))
    assert error.missing == ("PROCESS_LIMIT",)
    assert "uid 0" in (error.hint or "")


def test_no_tier_is_ever_exchanged_for_a_weaker_one_by_planning() -> None:
    assert refusal(make_job(net=OPEN), without_bubblewrap()).missing
    assert refusal(replace(make_job(), tier=Tier.A), make_host()).missing


@pytest.mark.parametrize(
    ("choice", "fallback", "net", "works", "expected"),
    [
        (TierChoice.AUTO, "", OPEN, True, Tier.C),
        (TierChoice.AUTO, "", OPEN, False, Tier.C),
        (TierChoice.AUTO, "b", OPEN, True, Tier.C),
        (TierChoice.AUTO, "b", OPEN, False, Tier.B),
        (TierChoice.AUTO, "b", NO_NETWORK, False, Tier.C),
        (TierChoice.C, "b", OPEN, False, Tier.C),
        (TierChoice.B, "", NO_NETWORK, True, Tier.B),
    ],
)
def test_tier_b_is_taken_only_when_asked_for_or_as_a_configured_fallback(
    choice: TierChoice, fallback: str, net: NetGrant, works: bool, expected: Tier
) -> None:
    host = make_host() if works else without_bubblewrap()
    assert choose_tier(choice, host, net, fallback=fallback) is expected


def test_needs_grow_with_the_network_grant() -> None:
    base = needs_for(Tier.C, OPEN)[0]
    assert needs_for(Tier.C, NO_NETWORK)[0] == base | {Guarantee.NET_ISOLATED}
    assert needs_for(Tier.C, HOSTS)[0] == base | {Guarantee.NET_ISOLATED, Guarantee.HOST_ALLOWLIST}


def test_every_backend_has_a_name_and_a_label_of_its_own() -> None:
    """In order of preference; an attestation carries the label of the one that ran the program."""
    assert [(backend.name, backend.executor) for backend in BACKENDS] == [
        ("bubblewrap", "sandbox_tier_c_linux_bubblewrap"),
        ("seatbelt", "sandbox_tier_c_macos_sandbox_exec"),
        ("podman", "sandbox_tier_c_podman"),
        ("docker", "sandbox_tier_c_docker"),
        ("rlimit", "sandbox_tier_b"),
        ("jobobject", "sandbox_tier_b_windows_job_object"),
    ]


def container_alone(runtime: str) -> HostFacts:
    container = ContainerFacts(
        runtime=runtime,
        path=f"/usr/bin/{runtime}",
        version="5.0",
        image="sha256:" + "a" * 64,
        memory=True,
        pids=True,
        env=(),
    )
    return make_host(bubblewrap=None, container=container, blockers=(BLOCKER,))


WANTED = {
    Carried.OWN_PROGRAMS: (
        make_job(own_files=(("/etc/own.py", b""),), workspace_writable=False),
        make_job(own_program=True),
    ),
    Carried.BACKGROUND: (make_job(background=True),),
    Carried.LISTENERS: (make_job(net=HOSTS),),
}


@pytest.mark.parametrize("runtime", ["podman", "docker"])
@pytest.mark.parametrize("wanted", list(Carried))
def test_what_a_container_does_not_carry_is_refused_before_anything_starts(runtime: str, wanted: Carried) -> None:
    """Another backend would start without the program, with the image's own of that name, or lose it at the end."""
    for job in WANTED[wanted]:
        error = refusal(job, container_alone(runtime))
        assert f"Tier C is {runtime} here" in error.detail
        assert BLOCKER.fix in (error.hint or "")
        bubblewrap = make_host().bubblewrap
        assert bubblewrap is not None
        able = make_host(bubblewrap=replace(bubblewrap, listeners=True))
        assert plan_job(job, able).backend == "bubblewrap"
    assert plan_job(make_job(), container_alone(runtime)).backend == runtime


def test_one_table_says_what_each_backend_carries_and_names_them_all() -> None:
    assert set(CARRIES) == {backend.name for backend in BACKENDS}
    most = {"bubblewrap": make_host(), "podman": container_alone("podman"), "docker": container_alone("docker")}
    assert most["bubblewrap"].bubblewrap is not None
    most["bubblewrap"] = make_host(bubblewrap=replace(most["bubblewrap"].bubblewrap, listeners=True))
    for backend in BACKENDS:
        if backend.name in most:
            serves_hosts = Guarantee.HOST_ALLOWLIST in backend.guarantees(most[backend.name])
            assert serves_hosts is (Carried.LISTENERS in CARRIES[backend.name])


def test_guests_are_refused_where_no_sandbox_runs_their_worker() -> None:
    check_own_programs(make_host())
    for host, why in ((container_alone("podman"), "no guests"), (without_bubblewrap(), "is not installed")):
        with pytest.raises(Unenforceable, match=why):
            check_own_programs(host)


def test_a_plain_child_may_run_in_the_background() -> None:
    assert plan_job(make_job(tier=Tier.B, net=OPEN, background=True), make_host()).backend == "rlimit"


@pytest.mark.parametrize("tier", [Tier.C, Tier.B])
def test_that_a_program_can_rewrite_palyra_itself_is_said(tier: Tier) -> None:
    """Installed into the project's own environment, it runs what the agent left there, with its keys."""
    workspace = make_job().workspace.path
    host = make_host(own_code=(f"{workspace}/.venv", f"{workspace}/src/palyra"), landlock_abi=7)

    def said(**changes: object) -> list[str]:
        plan = plan_job(make_job(tier=tier, needs=frozenset(), **changes), host)
        return [note for note in plan.degraded if note.startswith("palyra_in_workspace")]

    assert said() == [f"palyra_in_workspace: Palyra itself runs from {workspace}/.venv, which the program can change"]
    assert said(workspace_writable=False) == said(workspace=WorkspaceSight(path="/srv/other", owner_uid=1001)) == []
