"""Path-like pieces of arguments are found, text is not taken for paths, and inside means by component."""

from __future__ import annotations

import posixpath
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palyra.errors import Reason, Rejected
from palyra.guard.paths import candidates, inside, is_device, judge_paths, lexical, workspace_problem
from palyra.model.plan import ExecutableSight, PathCandidate, PathSight, Sights, WorkspaceSight


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


def test_paths_outside_are_those_that_nothing_makes_readable():
    seen = sights("/w/a", "/etc/shadow", "/usr/share", "/opt/tool/x", "/dev/null", "/tmp/x", "/proc/self/environ", "/")
    assert judge_paths(seen, ("/opt/tool",)) == (
        (1, "/etc/shadow", "/etc/shadow"),
        (5, "/tmp/x", "/tmp/x"),
        (6, "/proc/self/environ", "/proc/self/environ"),
        (7, "/", "/"),
    )
    assert [at for at, _, _ in judge_paths(seen, (), visible=())] == [1, 2, 3, 5, 6, 7]


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
