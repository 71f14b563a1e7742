"""A program that failed for want of something a sandbox has not is told so, and one that failed otherwise is not."""

from __future__ import annotations

import asyncio

import pytest

from palyra.egress.hosts import parse_pattern
from palyra.engine import said_hint as module
from palyra.engine.hints import split_hint
from palyra.engine.said_hint import MAX_BYTES, said_hint, unread_hint
from palyra.engine.trip import CallRequest
from palyra.engine.walk import Engine
from palyra.errors import Reason
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.outcome import Execution, Status
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry
from palyra.testing import FakeExecutor, fake_ports, fake_run

PATTERN = "a pattern or a variable"
WHO = b"Author identity unknown\n\n*** Please tell me who you are.\n"
ALONE, OPEN = NetGrant(mode=EgressMode.STRICT), NetGrant(mode=EgressMode.NONE)
GRANTED = NetGrant(mode=EgressMode.STRICT, hosts=(parse_pattern("a.example"),))
REFUSED = b"curl: (7) Failed to connect to 127.0.0.1 port 8000: Couldn't connect to server"


def hint_of(said: bytes, net: NetGrant) -> str | None:
    return said_hint(said, net, Limits(memory_bytes=64 << 20))


@pytest.mark.parametrize("said", [WHO, b"error: could not lock config file /dev/null: Read-only file system\n"])
def test_git_without_a_name_is_told_how_to_give_one(said: bytes) -> None:
    hint = hint_of(said, OPEN)
    assert hint is not None
    assert 'args=["-c", "user.name=NAME", "-c", "user.email=EMAIL", "commit", …]' in hint


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (b"fatal: not a git repository (or any parent up to mount point /srv/app)\n", "--workspace DIR"),
        (b"fatal: not a git repository: /srv/app/.git/worktrees/two\n", "--read DIR"),
        (b"fatal: '/srv/app.git' does not appear to be a git repository\n", "--read DIR"),
        (b"fatal: transport 'file' not allowed\n", "git push ./DIR BRANCH"),
    ],
)
def test_git_without_its_repository_is_told_what_is_shown_and_what_to_name(said: bytes, advice: str) -> None:
    hint = hint_of(said, ALONE)
    assert hint is not None
    assert advice in hint


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        (b"strace: ptrace(PTRACE_TRACEME, ...): Operation not permitted\n", "valgrind"),
        (b"warning: ptrace: Operation not permitted\n", "python3 -m trace"),
        (b"==3==ERROR: AddressSanitizer failed to allocate 0xdfff0001000 bytes (errno: 12)\n", "--memory 16384G"),
        (b"==22==LeakSanitizer has encountered a fatal error.\n", "ASAN_OPTIONS=detect_leaks=0"),
        (b"[3:3:ERROR:zygote_host_impl_linux.cc(128)] No usable sandbox! If this is a Debian system\n", "--no-sandbox"),
    ],
)
def test_a_debugger_a_sanitizer_and_a_browser_say_what_works_instead(said: bytes, advice: str) -> None:
    hint = hint_of(said, ALONE)
    assert hint is not None
    assert advice in hint


@pytest.mark.parametrize(
    "said",
    [
        b"bash: fork: retry: Resource temporarily unavailable",
        b"RuntimeError: can't start new thread",
        b"Error: spawn EAGAIN",
        b"error: failed to spawn thread: Os { code: 11 }",
    ],
)
def test_who_has_no_process_left_is_told_the_limit_and_to_run_fewer(said: bytes) -> None:
    agents, operators = split_hint(str(said_hint(said, OPEN, Limits(processes=7))))
    assert agents.startswith("A call here has at most 7 processes and threads: run fewer at once")
    assert operators == "An operator can raise max_processes in [tool_call.process_runner]."


def test_a_push_to_a_remote_for_reading_is_told_that_it_is_one() -> None:
    said = b"remote: error: unable to create temporary object directory\n ! [remote rejected] main (unpacker error)"
    agents, operators = split_hint(str(hint_of(said, ALONE)))
    assert "for reading only" in agents
    assert operators


@pytest.mark.parametrize(
    "said",
    [b"cat: /tmp/x/f: No such file or directory", b"Error: ENOENT: no such file or directory, open '/home/agent/x'"],
)
def test_who_looks_for_what_an_earlier_call_left_in_tmp_is_told_that_it_is_new_each_time(said: bytes) -> None:
    assert str(hint_of(said, OPEN)).startswith("The home folder and /tmp are new and empty in each call")


def test_every_hint_about_an_operators_setting_stands_behind_the_operators_words() -> None:
    hints = [value for name, value in vars(module).items() if name.startswith("_") and isinstance(value, str)]
    assert len(hints) > 10
    for hint in hints:
        agents = split_hint(hint)[0]
        assert not any(words in agents for words in ("palyra run", "[tool_call", "perator")), hint


@pytest.mark.parametrize(
    "said",
    [REFUSED, b"connect ECONNREFUSED ::1:3000", b"bash: connect: Connection refused\nbash: /dev/tcp/localhost/1"],
)
def test_who_finds_no_server_on_localhost_is_told_whose_localhost_it_is(said: bytes) -> None:
    hint = hint_of(said, GRANTED)
    assert hint is not None
    assert hint.startswith("Each call has a network of its own")


def test_who_has_no_host_can_have_been_refused_on_localhost_alone() -> None:
    said = b"urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"
    assert hint_of(said, ALONE) == hint_of(REFUSED, GRANTED)
    assert hint_of(said, GRANTED) is None


@pytest.mark.parametrize(
    "said",
    [
        b"[Errno -3] Temporary failure in name resolution", b"curl: (6) Could not resolve host: pypi.org",
        b"getaddrinfo EAI_AGAIN registry.npmjs.org", b"connect: Network is unreachable",
    ],
)  # fmt: skip
def test_who_found_no_network_is_told_who_grants_one(said: bytes) -> None:
    hint = hint_of(said, ALONE)
    assert hint is not None
    assert "palyra run --allow-host HOST" in hint
    assert [hint_of(said, net) for net in (GRANTED, OPEN)] == [None, None]


@pytest.mark.parametrize("said", [b"MemoryError", b"fork: Cannot allocate memory", b"JavaScript heap out of memory"])
def test_who_ran_out_of_memory_is_told_the_limit(said: bytes) -> None:
    hint = hint_of(said, OPEN)
    assert hint is not None
    assert hint.startswith("A process here has at most 64 MiB of memory")


@pytest.mark.parametrize(
    ("said", "net"),
    [
        (b"", ALONE), (REFUSED, OPEN), (b"Connection refused: a.example", GRANTED), (b"listening on localhost", ALONE),
        (WHO + b"x" * MAX_BYTES, ALONE),
    ],
)  # fmt: skip
def test_what_failed_otherwise_is_not_explained_by_it(said: bytes, net: NetGrant) -> None:
    assert hint_of(said, net) is None


@pytest.mark.parametrize(
    ("args", "said", "word"),
    [
        (("*.py",), b"ls: cannot access '*.py': No such file or directory", PATTERN),
        (("-l", "|", "wc"), b"ls: cannot access '|'", "|"),
        (("a", "2>/dev/null"), b"cat: 2>/dev/null: No such file", "2>/dev/null"),
        (("$HOME/x",), b"cat: '$HOME/x': No such file", PATTERN),
        (("{a,b}.c",), b"rm: cannot remove '{a,b}.c'", PATTERN),
    ],
)
def test_words_that_only_a_shell_reads_are_named_where_the_program_failed_on_them(
    args: tuple[str, ...], said: bytes, word: str
) -> None:
    assert (unread_hint(args, said) or "").startswith(f"There is no shell here: {word} reached the program as it is.")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-rn", "a|b", "."), b"grep: x: Is a directory"), (("*.py",), b"ls: cannot access 'x'"), ((), b"failed"),
        (("a{2}",), b"grep: a{2}: no"),
    ],
)  # fmt: skip
def test_other_words_are_not(args: tuple[str, ...], said: bytes) -> None:
    assert unread_hint(args, said) is None


@pytest.mark.parametrize(
    ("execution", "told"),
    [
        (Execution(status=Status.COMPLETED, exit_code=1), "A process here has at most 4096 MiB of memory"),
        (Execution(status=Status.TIMEOUT, reason=Reason.TIMEOUT), "Do less in one call"),
    ],
)
def test_a_limit_that_ended_a_program_keeps_its_own_remedy_whatever_was_said(execution: Execution, told: str) -> None:
    ports = fake_ports(executor=FakeExecutor(stderr=b"MemoryError", execution=execution))
    request = CallRequest(tool="palyra.process.run", input={"command": "ls"}, run=fake_run())
    outcome = asyncio.run(Engine(ports, make_registry(BUILTIN_TOOLS)).call(request))
    assert (outcome.hint or "").startswith(told)
