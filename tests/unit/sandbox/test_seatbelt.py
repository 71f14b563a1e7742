"""Plans for a Mac, made on any machine: what the profile says, and that no path ever becomes part of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palyra.errors import Unenforceable
from palyra.model.host import Guarantee, HostFacts, Platform, SeatbeltFacts
from palyra.model.net import EgressMode, NetGrant
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox import seatbelt
from palyra.sandbox.planner import plan_job
from palyra.sandbox.seatbelt import SeatbeltBackend
from tests.unit.sandbox.jobs import make_host, make_job
from tests.unit.sandbox.sbpl import parameters, parse, problems

PROFILES = Path(seatbelt.__file__).parent / "profiles"
BASE, NETWORK = ((PROFILES / f"{name}.sbpl").read_text() for name in ("base", "network"))
BACKEND = SeatbeltBackend()
WS = "/Users/alice/project"
OPEN = NetGrant(EgressMode.NONE)


def mac(**changes: Any) -> HostFacts:
    facts: dict[str, Any] = {
        "platform": Platform.MACOS, "machine": "arm64", "kernel": "24.0.0", "uid": 501, "gid": 20, "shell": "/bin/dash",
        "bubblewrap": None, "home": "/Users/alice", "state_home": "/Users/alice/Library/Application Support/palyra",
        "seatbelt": SeatbeltFacts(path="/usr/bin/sandbox-exec", base=BASE, network=NETWORK),
    }  # fmt: skip
    return make_host(**(facts | changes))


def sight(**changes: Any) -> WorkspaceSight:
    return WorkspaceSight(**({"path": WS, "owner_uid": 501, "owner_gid": 20} | changes))


def plan(host: HostFacts | None = None, **changes: Any) -> ProcessPlan:
    return BACKEND.plan(make_job(**({"workspace": sight(), "program": "/usr/bin/git"} | changes)), host or mac())


def profile(made: ProcessPlan) -> str:
    return str(made.launcher[made.launcher.index("-p") + 1])


def defined(made: ProcessPlan) -> dict[str, str]:
    words = [str(word) for word in made.launcher]
    pairs = [words[at + 1].partition("=") for at, word in enumerate(words) if word == "-D"]
    return {name: value for name, _, value in pairs}


CLOSED = sight(
    protected=(f"{WS}/.git/hooks", f"{WS}/.github"), masked=(f"{WS}/.env", f"{WS}/.palyra/"),
    links=(f"{WS}/shared",),
)  # fmt: skip
PLANS = {
    "plain": plan,
    "network": lambda: plan(net=OPEN),
    "closed": lambda: plan(workspace=CLOSED, read_roots=("/opt/homebrew", "/Users/alice/.rustup")),
}


@pytest.mark.parametrize("name", PLANS)
def test_every_profile_is_well_formed_and_begins_by_refusing_everything(name: str) -> None:
    assert list(problems(profile(PLANS[name]()))) == []


@pytest.mark.parametrize("name", PLANS)
def test_every_parameter_has_its_value_and_no_value_is_without_use(name: str) -> None:
    made = PLANS[name]()
    assert parameters(profile(made)) == set(defined(made))


@pytest.mark.parametrize(
    "path",
    ['/Users/a")(allow default)("', "/Users/a\n(allow default)", "/Users/ä b", "/Users/a\\", '/Users/a"', "/Users/=;"],
)
def test_no_path_ever_becomes_part_of_the_profile(path: str) -> None:
    odd = plan(workspace=sight(path=path), cwd=path, read_roots=(path + "2",))
    plain = plan(read_roots=("/opt/x",))
    assert profile(odd) == profile(plain)
    assert (defined(odd)["WORKSPACE"], defined(odd)["READ_0"]) == (path, path + "2")


def test_the_launcher_is_the_systems_own_and_ends_before_the_program() -> None:
    made = plan()
    assert (made.launcher[:2], made.launcher[-1]) == (("/usr/bin/sandbox-exec", "-p"), "--")
    assert (made.executor, made.road) == ("sandbox_tier_c_macos_sandbox_exec", "held")
    assert "git" not in [str(word) for word in made.launcher]


def test_no_network_rule_stands_in_a_closed_profile() -> None:
    assert "network" not in profile(plan())
    assert "network-outbound" in profile(plan(net=OPEN))
    assert Guarantee.NET_ISOLATED in plan().guarantees
    shared = plan(net=OPEN)
    assert Guarantee.NET_ISOLATED not in shared.guarantees
    assert any(note.startswith("network_shared") for note in shared.degraded)


def test_what_is_closed_stands_after_what_is_opened() -> None:
    made = plan(workspace=CLOSED, read_roots=("/opt/homebrew",))
    text = profile(made)
    names = ("WORKSPACE", "READ_0", "PARENT_0", "CLOSED_0", "LINK_0", "HIDDEN_0")
    order = [text.index(f'(param "{name}")') for name in names]
    assert order == sorted(order)
    assert defined(made) == {
        "WORKSPACE": WS,
        "READ_0": "/opt/homebrew",
        "PARENT_0": f"{WS}/.git",
        "CLOSED_0": f"{WS}/.git/hooks",
        "CLOSED_1": f"{WS}/.github",
        "LINK_0": f"{WS}/shared",
        "HIDDEN_0": "/Users/alice/Library/Application Support/palyra",
        "HIDDEN_1": f"{WS}/.env",
        "HIDDEN_2": f"{WS}/.palyra",
    }
    # Whoever makes the link anew leads its readers elsewhere.
    assert '(deny file-write* (literal (param "LINK_0")))' in text


def test_only_the_workspace_and_empty_devices_can_be_written() -> None:
    writes = [form for form in parse(BASE) if form[0] == "allow" and any("write" in str(word) for word in form[1:])]
    assert [form[-1] for form in writes] == [["subpath", '"/dev/fd"'], ["subpath", ["param", '"WORKSPACE"']]]
    assert writes[0][2:4] == [["literal", '"/dev/null"'], ["literal", '"/dev/zero"']]


def test_no_home_and_nothing_broad_is_named() -> None:
    for text in (BASE, NETWORK):
        for broad in ('"/Users', '(subpath "/")', '(subpath "/private")', '(subpath "/Library")', "(allow default)",
                      "(allow file-read*)", "(allow mach-lookup)", "regex"):  # fmt: skip
            assert broad not in text


def test_less_is_claimed_than_tier_c_needs_so_that_it_fails_closed() -> None:
    assert plan().guarantees == {
        Guarantee.FS_ISOLATED, Guarantee.NET_ISOLATED, Guarantee.CPU_LIMIT, Guarantee.PROCESS_LIMIT,
    }  # fmt: skip
    assert Guarantee.PROCESS_LIMIT not in BACKEND.guarantees(mac(uid=0))
    with pytest.raises(Unenforceable) as refusal:
        plan_job(make_job(workspace=sight()), mac())
    assert refusal.value.missing == ("MEMORY_LIMIT", "SYSCALL_FILTER", "TREE_KILL")
    assert "container_image" in (refusal.value.hint or "")


def test_home_and_temporary_files_are_in_the_workspace() -> None:
    made = plan(env=(("HOME", "/home/agent"), ("TMPDIR", "/tmp"), ("PATH", "/bin")))
    assert made.env == (("HOME", WS), ("TMPDIR", WS), ("PATH", "/bin"))


@pytest.mark.parametrize(
    "path", ["/", "/Users", "/Users/alice", "/System/x", "/private/etc", "/usr/local/x", "/Library"]
)
def test_a_workspace_that_would_open_the_sandbox_is_refused(path: str) -> None:
    with pytest.raises(Unenforceable):
        plan(workspace=sight(path=path))


def test_no_other_system_claims_it() -> None:
    for host in (mac(platform=Platform.LINUX), mac(seatbelt=None), mac(shell="")):
        assert BACKEND.guarantees(host) == frozenset()


@pytest.mark.parametrize(
    "text", ["(version 1", "(version 1))", "word", '(allow "x)', "(version 1)(allow default) \x00 ("]
)
def test_the_reader_refuses_what_does_not_balance(text: str) -> None:
    with pytest.raises(ValueError, match=r"bracket|alone|token"):
        parse(text)


def test_the_reader_knows_what_it_does_not_know() -> None:
    text = '(version 1)(deny default)(permit file-read*)(allow file-fly (subpath "/x") (regex "y") (subpath "rel"))'
    assert list(problems(text)) == [
        "unknown action permit", "unknown operation file-fly", "unknown filter regex", '"rel" is no absolute path',
    ]  # fmt: skip
