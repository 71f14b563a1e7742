"""Programs made to start others: what they start is found behind every option they have, and unknown ones are code."""

from __future__ import annotations

import shlex

import pytest

from palyra.guard.command import Classification, classify
from palyra.guard.wrappers import command_index, is_wrapper, may_run, read_wrapper

THROUGH = """
nice -n 5 prog a
nice -5 prog a
nice --adjustment=5 prog a
nohup prog a
timeout -k 5 -s KILL 3 prog a
timeout --kill-after=5 --signal=KILL --verbose --foreground --preserve-status 3 prog a
timeout -vfp 3 prog a
time -f x -o f -apvqV prog a
time --format=x --output=f --append --portability --verbose --quiet prog a
stdbuf -i 0 -o L -e 0 prog a
stdbuf --input=0 --output=L --error=0 prog a
setsid -cfw prog a
setsid --ctty --fork --wait prog a
ionice -c 2 -n 3 -t prog a
ionice --class=2 --classdata=3 --ignore prog a
chrt -b 0 prog a
chrt --rr --sched-runtime=5 --sched-period=5 --sched-deadline=5 1 prog a
chrt -T 5 -P 5 -D 5 -abdfimorRv 1 prog a
taskset 3 prog a
taskset -c 0,1 prog a
taskset --cpu-list 0,1 prog a
choom -n 5 prog a
choom --adjust=5 -- prog a
chronic -ev prog a
ifne -n prog a
prlimit -n10 --nofile=10 -o x --output=x prog a
prlimit --core --data --fsize=5 --raw --verbose prog a
sudo -u x -g y -n prog a
sudo --user=x --group=y --non-interactive --preserve-env prog a
sudo A=1 B=2 prog a
doas -u x -n prog a
setarch linux32 -R prog a
setarch i686 --addr-no-randomize prog a
setarch -vBFILRSTXZ3 prog a
linux32 prog a
linux64 --verbose prog a
i386 prog a
x86_64 prog a
uname26 prog a
env prog a
env - prog a
env -i A=1 prog a
env -u HOME2 -C d prog a
env --ignore-environment --unset=X --chdir=d --null --debug prog a
env --block-signal --default-signal=INT --ignore-signal --argv0=x prog a
env -S 'prog a'
env -S 'A=1 prog' a
env -v -S 'prog a'
env --split-string='prog a'
env -S '-S prog' a
flock f prog a
flock -sexunoFv -w 5 -E 3 f prog a
flock --shared --wait=5 --timeout=5 --conflict-exit-code=3 --nb --close f prog a
xargs prog a
xargs -0 -n 1 -P 4 -t -x -r -p -o prog a
xargs -a f -d , -E x -L 1 -s 100 prog a
xargs --null --arg-file=f --delimiter=, --max-args=1 --max-procs=4 --verbose prog a
xargs -I X prog a X
xargs -i prog a {}
xargs --replace=X prog a X
find . -exec prog a ;
find . -execdir prog a {} +
find . -ok prog a ;
find . -okdir prog a ;
find . -exec prog a
fd -x prog a
fd -xprog a
fd -X prog a ;
fd --exec prog a
fd --exec-batch=prog a
fdfind -H -x prog a
"""
SHELLED = """
sudo -s
sudo -i
sudo -e f
sudo --shell
sudo --login
sudo --edit f
sudo -u x -s
doas -s
flock -c 'id' f
flock --command=id f
flock f -c id
flock f --command id
setarch
setarch linux32
linux64 -R
"""
UNTOLD = """
timeout --wat 3 prog
nice -Z prog
sudo --wat prog
env --wat prog
env -Z prog
xargs --wat prog
xargs -Z prog
flock --wat f prog
env -S 'prog $X'
env -S 'prog\\_a'
env -S "prog 'a"
xargs -I X X a
xargs -I {} {}/prog
xargs -i d/{} a
xargs --replace {} a
find . -exec {} ;
find . -exec ./prog ;
find . -exec d/prog ;
nice ./prog
nice ''
nice .
nice ..
env LD_PRELOAD=x prog
env PATH=x prog
sudo LD_PRELOAD=x prog
env -C d git status
env --chdir=d nice git status
find . -execdir git status ;
find . -okdir git status ;
"""
QUIET = """
timeout --help
nice --version
env --help
env
env A=1
nohup
xargs
xargs -0
flock f
find . -name x
find . -exec
fd x
fd -e py x
"""


def read(line: str) -> Classification:
    command, *args = shlex.split(line)
    return classify(command, args)


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("line", lines(THROUGH))
def test_what_is_started_is_found_behind_every_option(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.also, found.runs_code) == ("prog", ("prog",), False)
    shell = read(line.replace("prog", "bash"))
    assert (shell.effective_program, shell.interpreter) == ("bash", True)


@pytest.mark.parametrize("line", lines(SHELLED))
def test_options_that_start_a_shell_are_that_shell(line: str) -> None:
    found = read(line)
    assert (found.effective_program, found.interpreter) == ("sh", True)


@pytest.mark.parametrize("line", lines(UNTOLD))
def test_where_it_cannot_be_told_it_is_code(line: str) -> None:
    found = read(line)
    assert (found.runs_code, bool(found.why)) == (True, True)


@pytest.mark.parametrize("line", lines(QUIET))
def test_a_wrapper_that_starts_nothing_is_plain(line: str) -> None:
    found = read(line)
    assert (found.also, found.runs_code) == ((), False)


def test_an_interpreter_behind_an_unknown_option_is_told_by_name() -> None:
    for line in ("timeout --wat 3 python3", "env --wat python3", "env -S 'python3 $X'", "env -C d git python3"):
        assert (read(line).effective_program, read(line).interpreter) == ("python", True), line
    assert read("find . -execdir git python3 ;").interpreter
    assert read("xargs -I {} {}/x python3").interpreter


@pytest.mark.parametrize("inner", ["sed", "git", "tar", "env", "nice", "ssh"])
@pytest.mark.parametrize("outer", ["xargs", "xargs -n 1", "fd -x", "find /x -exec INNER {} ;"])
def test_arguments_that_nobody_has_seen_are_code_to_who_could_run_them(outer: str, inner: str) -> None:
    line = outer.replace("INNER", inner) if "INNER" in outer else f"{outer} {inner}"
    found = read(line)
    assert (found.runs_code, "arguments that cannot be seen" in found.why) == (True, True)


def test_arguments_that_nobody_has_seen_are_nothing_to_a_plain_program() -> None:
    assert not read("xargs cat").runs_code
    assert not read("fd -x cat").runs_code
    assert not read("find . -exec cat {} +").runs_code


def test_one_command_of_find_ends_where_it_ends() -> None:
    assert read("find . -exec cat {} ; -exec bash ;").also == ("cat", "bash")
    assert read("find . -exec cat a + b ;").also == ("cat",)
    assert not read("find . -exec cat {} + -name bash").interpreter
    assert read("fd -x cat ; bash").also == ("cat",)


def test_a_string_of_env_that_holds_itself_is_not_followed_for_ever() -> None:
    assert read("env -S '-S -S -S -S -S -S -S -S prog'").runs_code
    assert read("env -S '-S -S -S prog'").also == ("prog",)


def test_refusals_name_the_option_without_its_value() -> None:
    assert read("timeout --wat=secret 3 x").why == "what timeout --wat runs cannot be determined"
    assert read("env LD_PRELOAD=x prog").why == "env sets LD_PRELOAD, which decides what a program loads or runs"
    assert read("make all").why == "make runs what the project's own files say"
    assert read("vim f").why == "vim can run other programs"
    assert read("xargs -I {} {} a").why == "xargs takes the program's name from its input"
    assert read("linux64").why == "linux64 without a program starts a shell"
    assert read("sudo -s").why == "sudo starts a shell or an editor"


def test_one_file_with_many_programs_counts_as_a_shell_whichever_is_asked_for() -> None:
    assert (read("busybox ls").effective_program, read("busybox ls").interpreter) == ("ls", True)
    assert (read("toybox").effective_program, read("busybox --list").interpreter) == ("toybox", True)
    assert (read("coreutils sh").interpreter, read("coreutils ls").interpreter) == (True, False)
    assert read("coreutils --help").runs_code is False


def test_wrappers_are_those_that_do_nothing_else() -> None:
    names = ("env", "xargs", "flock", "nice", "timeout", "sudo", "doas", "find", "ls")
    assert [name for name in names if is_wrapper(name)] == ["env", "xargs", "flock", "nice", "timeout"]
    assert [name for name in ("env", "nice", "tar", "ls", "cat") if may_run(name)] == ["env", "nice", "tar"]
    assert read_wrapper("ls", ["x"]) == ()


@pytest.mark.parametrize(
    ("line", "index"),
    [
        ("env A=1 - prog", 2), ("env -i prog", 1), ("env -S prog", -1), ("env --split-string=prog", -1),
        ("env A=1", -1), ("env --wat prog", -1), ("timeout 3 prog", 1), ("timeout 3", -1), ("timeout --wat 3 prog", -1),
        ("ls a", -1),
        ("nice -n 5 prog", 2), ("xargs prog", -1),
    ],
)  # fmt: skip
def test_where_a_simple_wrappers_command_begins_is_known(line: str, index: int) -> None:
    name, *args = shlex.split(line)
    assert command_index(name, args) == index
