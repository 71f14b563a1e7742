"""Facts for policy: lists, wrappers, scripts, places and hosts, each with a sentence for its refusal."""

from __future__ import annotations

import shlex

import pytest

from palyra.errors import Reason, Rejected
from palyra.guard.command import classify
from palyra.guard.facts import guard_process
from palyra.model.call import OperatorGrant
from palyra.model.job import Facts
from palyra.model.net import EgressMode, NamedHost
from palyra.model.sights import ExecutableSight, PathSight, Sights, WorkspaceSight

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
        tier="C",
        egress="strict",
        program="ls",
        effective_program="ls",
        programs='[["ls","/usr/bin/ls"]]',
        listed=True,
        found=True,
    )


def test_a_program_that_is_not_listed():
    facts = guard("curl x")
    assert (facts.listed, facts.details) == (
        False,
        (("program", "curl"), ("EXECUTABLE_DENIED", "curl is not on the executable allowlist.")),
    )


def test_a_program_that_can_run_others_has_to_be_listed_beside_the_leave_to_run_code():
    facts = guard("sqlite3 x.db")
    assert facts.details == (
        ("INTERPRETER_DENIED", "sqlite3 can run other programs."),
        ("program", "sqlite3"),
        ("unlisted", "sqlite3"),
        ("EXECUTABLE_DENIED", "sqlite3 is not on the executable allowlist."),
    )
    assert "unlisted" not in dict(guard("bash -c id").details)
    assert "unlisted" not in dict(guard("make").details)


def test_lists_are_compared_as_written():
    assert not guard("LS").listed
    assert not guard("ls.exe").listed


def test_what_a_wrapper_runs_must_be_listed_too():
    assert guard("timeout 5 ls").listed
    facts = guard("timeout 5 touch x")
    assert (facts.listed, facts.details) == (
        False,
        (
            ("program", "touch"),
            ("EXECUTABLE_DENIED", "touch, which timeout would run, is not on the executable allowlist."),
        ),
    )


@pytest.mark.parametrize(("line", "name"), [("python3.11 -V", "python3.11"), ("nice ls", "nice"), ("LS", "LS")])
def test_the_program_to_be_listed_is_named_as_a_list_has_to_spell_it(line, name):
    assert dict(guard(line).details)["program"] == name


def test_the_operators_allow_flag_lists_and_grants():
    facts = guard("curl x", grant=OperatorGrant(executables=("curl",)))
    assert (facts.listed, facts.granted) == (True, True)


def test_an_interpreter_on_the_list_is_still_one():
    facts = guard("bash -c id", allowed_executables=("bash",))
    assert (facts.interpreter, facts.runs_code, facts.inline_code, facts.listed) == (True, True, True, True)
    assert (facts.granted_interpreters, facts.details) == (False, (("INTERPRETER_DENIED", "bash is an interpreter."),))


def test_an_interpreter_is_named_as_it_was_written():
    assert guard("python3.12 x").details[0] == ("INTERPRETER_DENIED", "python3.12 is an interpreter.")


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
    assert (facts.listed, facts.found, dict(facts.details)["EXECUTABLE_DENIED"]) == (True, False, sentence)


def test_an_interpreter_that_is_not_there_is_told_to_be_missing_and_not_to_be_unlisted():
    """Where policy allows interpreters they need no list, and the list was named as what kept them out."""
    facts = guard("python x.py", executable=sight_of("python", path="", sha256=""))
    told = [sentence for code, sentence in facts.details if code == "EXECUTABLE_DENIED"]
    assert told == [
        "python was not found on the search path; it may be called python3.",
        "python is not on the executable allowlist.",
    ]


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
            ("read", "PATH"),
        ),
    )


@pytest.mark.parametrize("path", ["/", "/tmp", "/var/tmp", "/etc", "/proc/1/environ", "/sys/class", "/dev/sda"])
def test_a_flag_that_no_sandbox_could_follow_is_not_advised(path):
    facts = guard(f"cat {path}", seen=((0, path, path),))
    assert (facts.outside_workspace, dict(facts.details).get("read")) == (True, None)


def test_a_folder_that_each_call_has_for_itself_is_said_to_be_that():
    own, below = (guard(f"ls {path}", seen=((0, path, path),)) for path in ("/tmp", "/tmp/x"))
    assert own.details == (
        (
            "OUTSIDE_WORKSPACE",
            "Argument 1 (/tmp) is outside the workspace: each call has an empty one of its own, which ends with it.",
        ),
    )
    assert dict(below.details) == {
        "OUTSIDE_WORKSPACE": "Argument 1 (/tmp/x) is outside the workspace.",
        "read": "PATH",
    }


@pytest.mark.parametrize("tier", ["B", "C"])
def test_the_machines_own_numbers_may_be_named_and_no_processs(tier):
    assert not guard("cat /proc/meminfo", seen=((0, "/proc/meminfo", "/proc/meminfo"),), tier=tier).outside_workspace
    assert guard("cat /proc/1/maps", seen=((0, "/proc/1/maps", "/proc/1/maps"),), tier=tier).outside_workspace


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
        "Use a folder of yours: mkdir -p /tmp/try && cd /tmp/try, or --workspace DIR; "
        '"workspace" over HTTP, workspace= in Python.',
    )


def test_a_cwd_outside_is_refused_the_same_whether_it_exists_or_not():
    there, missing = refuse("ls", cwd="/etc"), refuse("ls", cwd="/nowhere", exists=False)
    assert there.reason is missing.reason is Reason.OUTSIDE_WORKSPACE
    assert there.detail == missing.detail


def test_a_missing_cwd_is_refused():
    assert refuse("ls", cwd="/w/x", exists=False).reason is Reason.BAD_ARGUMENTS


def test_a_command_with_a_folder_is_refused():
    assert refuse("./ls").reason is Reason.BAD_ARGUMENTS


def test_a_push_to_a_folder_that_the_disk_knows_is_code():
    seen = ((1, "backup", "/w/backup"),)
    facts = guard("git push backup main", seen=seen)
    assert (facts.effective_program, facts.runs_code) == ("git", True)
    assert facts.details[0][1] == "git push to a folder runs the hooks of the repository there."
    assert not guard("git push origin main", seen=seen).runs_code
    assert not guard("git status", seen=seen).runs_code
    assert not guard("git stash push backup", seen=((2, "backup", "/w/backup"),)).runs_code
    assert guard("git --namespace push push backup", seen=((3, "backup", "/w/backup"),)).runs_code
    assert not guard("cat push backup", seen=((1, "backup", "/w/backup"),)).runs_code


def test_a_folder_that_is_not_there_is_no_place_to_push_to():
    gone = PathSight(argument=1, text="backup", resolved="/w/backup", exists=False)
    sights = Sights(
        workspace=WorkspaceSight(path="/w"),
        cwd=PathSight(argument=-1, text="", resolved="/w", exists=True),
        executable=sight_of("git"),
        paths=(gone,),
    )
    facts = guard_process(
        command="git",
        args=["push", "backup"],
        classification=classify("git", ["push", "backup"]),
        sights=sights,
        allowed_executables=LISTED,
        allow_interpreters=False,
        grant=OperatorGrant(),
        tier="C",
        egress="strict",
    )
    assert not facts.runs_code


def test_git_below_the_top_of_the_workspace_is_code_and_says_so():
    facts = guard("git status", cwd="/w/sub")
    assert (facts.effective_program, facts.runs_code, facts.interpreter) == ("git", True, False)
    assert "below the top of the workspace" in facts.details[0][1]
    assert not guard("ls", cwd="/w/sub").runs_code


def test_what_the_disk_says_does_not_make_less_of_what_the_words_say():
    script = (sight_of("find"), sight_of("tool", shebang="python3"))
    inline = guard("find . -exec tool ;", executable=script[0], also=script[1:])
    assert (inline.effective_program, inline.interpreter) == ("python", True)
    vim = sight_of("editor", path="/usr/bin/vim.basic")
    assert guard("timeout 3 editor f", also=(vim,)).effective_program == "vim"
    assert guard("timeout 3 bash f", also=(sight_of("bash"), vim)).effective_program == "bash"
    assert guard("sed 1e f", executable=sight_of("sed", path="/usr/bin/make")).effective_program == "sed"


def test_an_interpreter_behind_a_link_goes_before_code():
    python = sight_of("sed", path="/usr/bin/python3")
    facts = guard("sed 1e f", executable=python)
    assert (facts.effective_program, facts.interpreter) == ("python", True)


@pytest.mark.parametrize("line", ["fuser f", "timeout 5 fuser f"])
def test_asking_who_uses_a_file_kills_nobody(line):
    assert guard(line).effective_program == "fuser"


def test_a_path_is_told_by_where_it_leads():
    seen = ((0, "../x", "/x"), (1, "a/../../y", "/y"), (2, "ok/l", "/z"), (3, "d", "/d"))
    facts = guard("cat ../x a/../../y ok/l d", seen=seen)
    assert [told for code, told in facts.details if code != "read"] == [
        "Argument 1 (../x) is outside the workspace.",
        "Argument 2 (a/../../y) is outside the workspace.",
        "Argument 3 (ok/l) is a link that leads outside the workspace.",
    ]


@pytest.mark.parametrize(
    ("port", "host", "sentence"),
    [
        (None, "h.test", "h.test is not among the granted hosts."),
        (80, "h.test", "h.test:80 is not among the granted hosts."),
        (443, "h.test", "h.test:443 is not among the granted hosts."),
        (22, "h.test:22", "h.test:22 is not among the granted hosts."),
    ],
)
def test_a_denied_host_is_named_as_it_would_be_granted(port, host, sentence):
    facts = guard("git fetch", hosts_denied=(NamedHost("h.test", port, "x"),))
    assert facts.details == (("host", host), ("EGRESS_DENIED", sentence))


def test_an_address_of_six_words_is_granted_in_brackets():
    facts = guard("git fetch", hosts_denied=(NamedHost("::1", 22, "x"),))
    assert facts.details[0] == ("host", "[::1]:22")


def test_at_most_three_of_a_kind_are_told():
    denied = tuple(NamedHost(f"h{at}.test", None, "x") for at in range(5))
    facts = guard("git fetch", hosts_denied=denied)
    assert [kind for kind, _ in facts.details] == ["host", "EGRESS_DENIED", "EGRESS_DENIED", "EGRESS_DENIED"]
    assert facts.hosts_denied == 5


def test_code_that_is_no_interpreter_is_told_with_its_own_sentence():
    facts = guard("make all", allowed_executables=("make",))
    assert facts.details == (("INTERPRETER_DENIED", "make runs what the project's own files say."),)
    assert (facts.interpreter, facts.runs_code) == (False, True)


def test_a_long_name_is_cut_where_the_sentence_says_so():
    facts = guard("cat x", seen=((0, "/" + "x" * 119, "/x"), (1, "/" + "y" * 120, "/y")))
    assert facts.details[0][1] == f"Argument 1 (/{'x' * 119}) is outside the workspace."
    assert facts.details[1][1] == f"Argument 2 (/{'y' * 118}…) is outside the workspace."


def test_grants_of_the_operator_are_told_apart():
    assert guard("ls").granted_egress is False
    assert guard("ls", grant=OperatorGrant(executables=("ls",))).granted is True
    assert guard("ls", grant=OperatorGrant(executables=("cat",))).granted is False
    assert guard("ls", grant=OperatorGrant(interpreters=True)).granted_interpreters is True
    assert guard("ls").granted_interpreters is False


def test_programs_names_everything_the_verdict_rests_on():
    """An exception for `find -exec wget` must not be one for `find -exec gpg`, nor for any argument that runs code."""
    lines = {
        line: guard(line).programs
        for line in (
            "find . -exec wget {} ;",
            "find . -exec gpg {} ;",
            "wget x",
            "env wget x",
            "git -c core.pager=one log",
            "git -c core.pager=two log",
            "env git -c core.pager=one log",
            "env git -c core.pager=two log",
        )
    }
    assert len(set(lines.values())) == len(lines), lines
    assert guard("wget x").programs == guard("wget y").programs
    assert guard("bash -c one").programs == guard("bash -c two").programs


def test_programs_that_are_many_are_told_by_their_digest():
    line = "find . " + " ".join(f"-exec {name * 40} ;" for name in "abcdefghijklmnop")
    assert guard(line).programs.startswith("sha256:")
    assert guard(line).programs != guard(line.replace("p" * 40, "q" * 40)).programs
