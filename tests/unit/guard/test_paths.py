"""Path-like pieces of arguments are found, text is not taken for paths, and inside means by component."""

from __future__ import annotations

import posixpath
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected
from palyra.guard.paths import candidates, inside, is_device, judge_paths, lexical, workspace_problem
from palyra.model.sights import ExecutableSight, PathCandidate, PathSight, Sights, WorkspaceSight
from tests.promises import promise


def firm(line: str) -> set[str]:
    """What counts as a path even when nothing of that name exists."""
    program, *args = shlex.split(line)
    return {one.text for one in candidates(args, program=program) if not one.must_exist}


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("cat /etc/shadow", "/etc/shadow"), ("cat ../x", "../x"), ("cat ..", ".."), ("cat ~/.ssh/id", "~/.ssh/id"),
        ("cat ~root", "~root"), ("dd if=/etc/shadow of=x", "/etc/shadow"), ("x --file=/etc/x", "/etc/x"),
        ("x --file=../x", "../x"), ("tar -C/etc", "/etc"), ("tar -xf../x.tar", "../x.tar"), ("x -o~/y", "~/y"),
        ("curl -d@/etc/passwd", "/etc/passwd"), ("curl --data=@/etc/passwd", "/etc/passwd"),
        ("x @/etc/args", "/etc/args"),
        ("curl -F f=@/etc/passwd", "/etc/passwd"), ("curl -F 'f=</etc/passwd;type=x'", "/etc/passwd"),
        ("cat file:///etc/passwd", "/etc/passwd"), ("cat FILE:/etc/passwd", "/etc/passwd"),
        ("cat file://localhost/etc/%70asswd", "/etc/passwd"), ("x git+file:///etc/x#y", "/etc/x"),
        ("x --cp=a:/etc/x:b", "/etc/x"), ("x a:../../x", "../../x"),
        ("cat x:y/../../etc/passwd", "x:y/../../etc/passwd"),
        ("x --mount=type=bind,src=/etc,dst=y", "/etc"), ("x k=v=/etc/x", "/etc/x"), ("sed 'r /etc/x' f", "/etc/x"),
        ("sed 's/a/b/w /etc/x' f", "/etc/x"), ("grep -f /etc/x y", "/etc/x"), ("rg --files /etc", "/etc"),
        ("rg x /etc", "/etc"),
        ("grep -e x /etc", "/etc"), ("find / -name x", "/"), ("git -C / status", "/"), ("env -C /etc ls", "/etc"),
        ("timeout 5 cat /etc/x", "/etc/x"), ("jq -f /etc/x f", "/etc/x"), ("sort -o/etc/x f", "/etc/x"),
        ("git diff --no-index a /etc/x", "/etc/x"), ("x sqlite://../../x", "sqlite://../../x"),
        ("git commit -F /etc/x", "/etc/x"),
    ],
)  # fmt: skip
def test_what_can_be_a_path_is_looked_at(line, path):
    assert path in firm(line)


@pytest.mark.parametrize(
    "line",
    [
        "sed -n /x/p f", "sed -e s,/a,/b, f", "sed s/../../x/ f", "grep /api src", "grep -e ../lib src",
        "rg -e /x y", "tr / _",
        "rg ../lib", "rg -g /x/* y", "git commit -m '/api: fix'", "git commit -am '/api'", "git log --grep=/api -S/x",
        "git log --format=/%h", "cut -d / -f1 x", "cut -d/ f", "sort -t/ f", "find . -path /x/*", "find . -regex ../.*",
        "jq --arg a /x ./b f", "awk -F/ /x/{print} f", "timeout 5 sed -n /x/p f", "env A=1 grep /x f",
        "curl -H 'Referer: https://x/y'", "curl https://x/../y", "git clone ssh://h/../x", "scp u@h:/etc/x y",
        "scp h:/etc/x y", "git clone git@h:/x/y", "gcc -DX", "tar --exclude=/x -cf a b", "paste -d/ a b", "seq -s/ 3",
    ],
)  # fmt: skip
def test_text_and_addresses_are_not_taken_for_paths_that_lead_out(line):
    assert [path for path in firm(line) if not inside("/w", lexical(path, "/w"))] == []


def test_a_bare_word_counts_only_when_it_exists():
    assert candidates(["a"]) == (PathCandidate(argument=0, text="a", must_exist=True),)


def test_an_address_counts_when_a_file_of_that_name_exists():
    assert candidates(["http://../../x"]) == (PathCandidate(argument=0, text="http://../../x", must_exist=True),)


def test_a_name_that_looks_like_an_option_counts_behind_two_dashes():
    assert PathCandidate(argument=1, text="-link", must_exist=True) in candidates(["--", "-link"])


def test_a_call_cannot_spend_its_time_on_paths():
    with pytest.raises(Rejected) as caught:
        candidates([":".join(f"/{n}" for n in range(600))])
    assert caught.value.reason is Reason.BAD_ARGUMENTS


@given(st.lists(st.text(max_size=30), max_size=6), st.sampled_from(["", "sed", "git", "grep", "jq", "find", "env"]))
def test_any_arguments_are_read_without_failing(args, program):
    for one in candidates(args, program=program):
        assert 0 <= one.argument < len(args)
        assert one.text


@promise("commands.outside-paths")
@given(st.sampled_from(["{}", "--x={}", "-f{}", "if={}", "@{}", "a:{}", "a,{}", "file://{}", "--x=a={}"]), st.data())
def test_no_spelling_hides_a_path_to_the_root(form, data):
    tail = data.draw(st.text(alphabet="abc./", max_size=10))
    path = "/etc/" + tail
    assert path in {one.text for one in candidates([form.format(path)])}


@given(st.text(alphabet="ab./", max_size=20), st.text(alphabet="ab./", max_size=20))
def test_lexical_agrees_with_the_usual_reading(path, base):
    base = posixpath.normpath("/" + base.lstrip("/"))
    assert lexical(path, base) == "/" + posixpath.normpath(posixpath.join(base, path)).lstrip("/")


@given(st.text(alphabet="ab./", max_size=20))
def test_nothing_lexical_is_above_the_root(path):
    assert inside("/", lexical(path))
    assert ".." not in lexical(path).split("/")


@pytest.mark.parametrize(
    ("root", "path", "answer"),
    [
        ("/w", "/w", True), ("/w", "/w/a", True), ("/w", "/wa", False), ("/w", "/", False), ("/w/", "/w/a", True),
        ("/", "/x", True), ("/w", "/w/../x", False), ("/w", "w/a", False), ("", "/x", False), ("/w", "/w/..a", True),
    ],
)  # fmt: skip
def test_inside_is_by_component(root, path, answer):
    assert inside(root, path) is answer


def test_devices_of_the_program_itself_are_known():
    assert is_device("/dev/null")
    assert is_device("/dev/fd/3")
    assert not is_device("/dev/sda")
    assert not is_device("/dev/fd/../sda")


def sights(*resolved: str) -> Sights:
    return Sights(
        workspace=WorkspaceSight(path="/w"),
        cwd=PathSight(argument=-1, text="", resolved="/w", exists=True),
        executable=ExecutableSight(name="ls", path="/usr/bin/ls"),
        paths=tuple(PathSight(argument=at, text=path, resolved=path, exists=True) for at, path in enumerate(resolved)),
    )


@promise("commands.outside-paths")
def test_paths_outside_are_those_that_nothing_makes_readable():
    seen = sights("/w/a", "/etc/shadow", "/usr/share", "/opt/tool/x", "/dev/null", "/tmp/x", "/proc/self/environ", "/")
    assert judge_paths(seen, ("/opt/tool",)) == (
        (1, "/etc/shadow", "/etc/shadow"),
        (5, "/tmp/x", "/tmp/x"),
        (6, "/proc/self/environ", "/proc/self/environ"),
        (7, "/", "/"),
    )
    assert [at for at, _, _ in judge_paths(seen, (), visible=())] == [1, 2, 3, 5, 6, 7]


@promise("workspace.system-folders")
@pytest.mark.parametrize(
    "path",
    """/ /home/me /home /usr /usr/lib /usr/local/bin /etc /etc/x /var /var/lib /root /tmp /dev /proc/1 /sys /opt /bin
    /boot /home/me/.state /home/me/.state/palyra /home/me/.state/palyra/x /usr/src /dev/shm /home/other
    /Users/x""".split(),
)
def test_folders_that_must_not_become_writable_are_no_workspace(path):
    assert workspace_problem(path, home="/home/me", state_home="/home/me/.state/palyra")


@pytest.mark.parametrize(
    "path",
    "/home/me/x /home/other/x /srv/x /opt/x /tmp/x /var/lib/ci/x /usr/src/app /workspace /dev/shm/x /usrx".split(),
)
def test_project_folders_are_workspaces(path):
    assert workspace_problem(path, home="/home/me", state_home="/home/me/.state/palyra") == ""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["-f-"], set()), (["-"], set()), ([""], set()), (["--file="], set()), (["--file=-"], set()),
        (["-Isrc/include"], {"src/include"}), (["-vC/etc"], {"C/etc", "/etc"}),
        (["-Ix/../etc"], {"x/../etc", "/../etc"}), (["-xf.."], {".."}), (["-ab~/x"], {"b~/x", "~/x"}),
        (["a,./b;../c:~/d=/e"], {"a,./b;../c:~/d=/e", "/e", "./b", "../c", "~/d"}), (["@./x"], {"@./x", "./x"}),
        (["x=@/y"], {"x=@/y", "/y"}), (["x,@/y"], {"x,@/y", "/y"}), (["x,</y"], {"x,</y", "/y"}),
        (["<../x"], {"<../x", "../x"}), (["u@h:/x"], set()), (["./u@h:/x"], {"./u@h:/x", "./u@h", "/x"}),
        (["~u@h:/x"], {"~u@h:/x", "~u@h", "/x"}), (["file:///a?b#c"], {"file:///a?b#c", "///a?b#c", "/a?b#c", "/a"}),
        (["file:///%zz%2e"], {"file:///%zz%2e", "///%zz%2e", "/%zz."}),
    ],
)  # fmt: skip
def test_the_pieces_of_a_word_that_are_paths_in_any_case(words, found):
    assert {one.text for one in candidates(words) if not one.must_exist} == found


def test_a_name_with_dots_that_looks_like_an_option_counts_where_it_exists():
    assert PathCandidate(argument=0, text="--x=/../y", must_exist=True) in candidates(["--x=/../y"])
    assert candidates(["-x..y"])[0] == PathCandidate(argument=0, text="-x..y", must_exist=True)


@promise("commands.outside-paths")
def test_a_word_that_is_a_path_in_one_reading_is_one():
    assert candidates(["a", "a/b", "a"]) == (
        PathCandidate(argument=0, text="a", must_exist=True),
        PathCandidate(argument=1, text="a/b", must_exist=False),
        PathCandidate(argument=2, text="a", must_exist=True),
    )


def test_512_paths_are_looked_at_and_not_one_more():
    assert len(candidates([f"/{at}" for at in range(512)])) == 512
    with pytest.raises(Rejected) as refused:
        candidates([f"/{at}" for at in range(513)])
    assert refused.value.reason is Reason.BAD_ARGUMENTS


@pytest.mark.parametrize("root", "/usr /bin /sbin /lib /lib32 /lib64 /libx32".split())
def test_the_systems_own_folders_may_be_named(root):
    assert judge_paths(sights(root, f"{root}/x"), ()) == ()


@pytest.mark.parametrize("name", "null zero full random urandom stdin stdout stderr fd fd/0".split())
def test_a_programs_own_devices_may_be_named(name):
    assert judge_paths(sights(f"/dev/{name}"), (), visible=()) == ()


@pytest.mark.parametrize("program", ["scp", "rsync", "sftp", "ssh", "git"])
def test_a_host_without_a_user_is_no_path_to_programs_that_go_there(program):
    assert not any(one.text.startswith("h:") and not one.must_exist for one in candidates(["h:/x"], program=program))
    assert any(not one.must_exist for one in candidates(["h:/x"], program="cat"))


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("/", "The workspace is the root of the file system."),
        ("/home/me", "The workspace is a home folder itself."),
        ("/Users/you", "The workspace is a home folder itself."),
        ("/x", "The workspace contains the home folder."),
        ("/y", "The workspace contains Palyra's own state."),
        ("/y/state/z", "The workspace lies inside Palyra's own state."),
        ("/usr/src", "The workspace /usr/src is a system folder."),
        ("/System/x", "The workspace /System/x is a system folder."),
        ("/Library", "The workspace /Library is a system folder."),
        ("/Applications/x", "The workspace /Applications/x is a system folder."),
        ("/private/etc/x", "The workspace /private/etc/x is a system folder."),
        ("/lib64/x", "The workspace /lib64/x is a system folder."),
        ("/usr/local/src", "The workspace /usr/local/src is a system folder."),
        ("/usr/local/src/x", ""),
    ],
)
def test_why_a_folder_is_no_workspace_is_said(path, problem):
    home = "/x/me" if path == "/x" else "/home/me"
    assert workspace_problem(path, home=home, state_home="/y/state") == problem


def test_without_a_home_or_a_state_nothing_is_held_against_a_folder():
    assert workspace_problem("/srv/x", home="", state_home="") == ""
