"""Facts for policy: lists, wrappers, scripts, places and hosts, each with a sentence for its refusal."""

from __future__ import annotations

import shlex

import pytest

from palyra.errors import Reason, Rejected
from palyra.guard.command import classify
from palyra.guard.facts import guard_process
from palyra.model.call import OperatorGrant
from palyra.model.net import EgressMode, NamedHost
from palyra.model.plan import ExecutableSight, Facts, PathSight, Sights, WorkspaceSight

LISTED = ("ls", "cat", "find", "rm", "git", "sed", "timeout")


def sight_of(name: str, **changes) -> ExecutableSight:
    values = {"name": name, "path": f"/usr/bin/{name}", "sha256": "d" * 64, **changes}
    return ExecutableSight(**values)


def guard(
    line: str, *, seen=(), executable=None, also=None, cwd="/w", exists=True, problem="", grant=None, **changes
) -> Facts:
    command, *args = shlex.split(line)
    found = classify(command, args)
    sights = Sights(
        workspace=WorkspaceSight(path="/w", problem=problem),
        cwd=PathSight(argument=-1, text="here", resolved=cwd, exists=exists),
        executable=executable or sight_of(command),
        also=tuple(sight_of(name) for name in found.also) if also is None else also,
        paths=tuple(PathSight(argument=at, text=text, resolved=end, exists=True) for at, text, end in seen),
    )
    values = {
        "allowed_executables": LISTED,
        "allow_interpreters": False,
        "grant": grant or OperatorGrant(),
        "tier": "C",
        "egress": "strict",
        **changes,
    }
    return guard_process(command=command, args=args, classification=found, sights=sights, **values)


def test_a_plain_listed_program_has_nothing_against_it():
    assert guard("ls -la") == Facts(
        tier="C", egress="strict", program="ls", effective_program="ls", listed=True, found=True
    )


def test_a_program_that_is_not_listed():
    facts = guard("curl x")
    assert (facts.listed, facts.details) == (
        False,
        (("EXECUTABLE_DENIED", "curl is not on the executable allowlist."),),
    )


def test_lists_are_compared_as_written():
    assert not guard("LS").listed
    assert not guard("ls.exe").listed


def test_what_a_wrapper_runs_must_be_listed_too():
    assert guard("timeout 5 ls").listed
    facts = guard("timeout 5 touch x")
    assert (facts.listed, facts.details) == (
        False,
        (("EXECUTABLE_DENIED", "touch, which timeout would run, is not on the executable allowlist."),),
    )


def test_the_operators_allow_flag_lists_and_grants():
    facts = guard("curl x", grant=OperatorGrant(executables=("curl",)))
    assert (facts.listed, facts.granted) == (True, True)


def test_an_interpreter_on_the_list_is_still_one():
    facts = guard("bash -c id", allowed_executables=("bash",))
    assert (facts.interpreter, facts.runs_code, facts.inline_code, facts.listed) == (True, True, True, True)
    assert (facts.granted_interpreters, facts.details) == (False, (("INTERPRETER_DENIED", "bash is an interpreter."),))


@pytest.mark.parametrize("line", ["bash -c id", "python3 x", "make", "env python3 x", "nice -n 5 sh x", "npm test"])
def test_allowing_interpreters_lists_them_and_says_so(line):
    for changes in ({"allow_interpreters": True}, {"grant": OperatorGrant(interpreters=True)}):
        facts = guard(line, **changes)
        assert (facts.runs_code, facts.granted_interpreters, facts.listed) == (True, True, True)


@pytest.mark.parametrize("line", ["vim f", "docker run x", "sudo ls", "curl x"])
def test_allowing_interpreters_lists_nothing_else(line):
    assert not guard(line, allow_interpreters=True).listed


def test_a_script_counts_as_its_interpreter():
    facts = guard("tool x", executable=sight_of("tool", shebang="python3"), allow_interpreters=True)
    assert (facts.effective_program, facts.interpreter, facts.listed) == ("python", True, True)


def test_a_script_behind_a_wrapper_counts_too():
    facts = guard("timeout 5 cat", also=(sight_of("cat", shebang="perl"),))
    assert (facts.effective_program, facts.interpreter) == ("perl", True)


def test_a_link_to_an_interpreter_counts_as_one():
    assert guard("ls", executable=sight_of("ls", path="/usr/bin/python3.11")).interpreter
    assert not guard("ls", executable=sight_of("ls", path="/bin/busybox")).interpreter


def test_a_planted_executable_with_an_allowed_name_is_seen():
    facts = guard("ls", executable=sight_of("ls", path="/w/ls", agent_writable=True))
    assert (facts.agent_writable, facts.details) == (
        True,
        (("EXECUTABLE_DENIED", "/w/ls could be written by the agent, so it is not run."),),
    )
    assert guard("timeout 5 ls", also=(sight_of("ls", agent_writable=True),)).agent_writable


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"path": "", "sha256": ""}, "ls was not found on the search path."),
        ({"sha256": ""}, "/usr/bin/ls cannot be read, so what runs could not be attested."),
    ],
)
def test_a_listed_program_that_is_not_there(changes, sentence):
    facts = guard("ls", executable=sight_of("ls", **changes))
    assert (facts.listed, facts.found, facts.details) == (True, False, (("EXECUTABLE_DENIED", sentence),))


def test_paths_outside_are_told_by_argument():
    facts = guard(
        "cat a /etc/shadow link ~/x",
        seen=(
            (0, "a", "/w/a"),
            (1, "/etc/shadow", "/etc/shadow"),
            (2, "link", "/etc/passwd"),
            (3, "~/x", "/home/me/x"),
        ),
    )
    assert (facts.outside_workspace, facts.details) == (
        True,
        (
            ("OUTSIDE_WORKSPACE", "Argument 2 (/etc/shadow) is outside the workspace."),
            ("OUTSIDE_WORKSPACE", "Argument 3 (link) is a link that leads outside the workspace."),
            ("OUTSIDE_WORKSPACE", "Argument 4 (~/x) is in a home folder, outside the workspace."),
        ),
    )


def test_system_folders_may_be_named_in_tier_c_only():
    seen = ((0, "/usr/share", "/usr/share"),)
    assert not guard("ls /usr/share", seen=seen).outside_workspace
    assert guard("ls /usr/share", seen=seen, tier="B").outside_workspace


def test_read_roots_are_inside():
    assert not guard("ls /opt/x", seen=((0, "/opt/x", "/opt/x"),), read_roots=("/opt",)).outside_workspace


def test_hosts_are_counted_and_told_without_the_argument_that_may_hold_a_password():
    named = NamedHost("evil.test", 443, "https://me:secret@evil.test/")
    facts = guard("git fetch", hosts_named=(named,), hosts_denied=(named,))
    assert (facts.hosts_named, facts.hosts_denied, facts.details) == (
        1,
        1,
        (("host", "evil.test"), ("EGRESS_DENIED", "evil.test:443 is not among the granted hosts.")),
    )


def test_the_operators_egress_is_said():
    assert guard("ls", grant=OperatorGrant(egress=EgressMode.NONE)).granted_egress


def test_sentences_obey_no_terminal():
    facts = guard("cat x", seen=((0, "/\x1b[31m" + "x" * 500, "/x"),))
    assert "\x1b" not in facts.details[0][1]
    assert len(facts.details[0][1]) < 200


def refuse(*args, **changes) -> Rejected:
    with pytest.raises(Rejected) as caught:
        guard(*args, **changes)
    return caught.value


@pytest.mark.parametrize(
    "line", ["pkill x", "killall x", "taskkill /im x", "timeout 5 pkill x", "xargs killall", "env busybox pkill x"]
)
def test_broad_kills_are_refused_with_a_hint_to_stop(line):
    refusal = refuse(line)
    assert refusal.reason is Reason.EXECUTABLE_DENIED
    assert "palyra.process.stop" in (refusal.hint or "")


def test_a_bad_workspace_is_refused_with_the_flag():
    refusal = refuse("ls", problem="The workspace is the root of the file system.")
    assert (refusal.reason, refusal.detail, refusal.hint) == (
        Reason.BAD_ARGUMENTS,
        "The workspace is the root of the file system.",
        "Name another folder with --workspace DIR.",
    )


def test_a_cwd_outside_is_refused_the_same_whether_it_exists_or_not():
    there, missing = refuse("ls", cwd="/etc"), refuse("ls", cwd="/nowhere", exists=False)
    assert there.reason is missing.reason is Reason.OUTSIDE_WORKSPACE
    assert there.detail == missing.detail


def test_a_missing_cwd_is_refused():
    assert refuse("ls", cwd="/w/x", exists=False).reason is Reason.BAD_ARGUMENTS


def test_a_command_with_a_folder_is_refused():
    assert refuse("./ls").reason is Reason.BAD_ARGUMENTS
