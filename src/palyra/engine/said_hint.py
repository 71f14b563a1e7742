"""What a failed program said that has a known answer here: no name for a commit, no repository, no network, no memory.

A sandbox has no ~/.gitconfig, limits, and a network of its own. Programs do not know that: git advises `git config
--global`, which lasts no longer than the call, and "Connection refused" sends an agent looking for a fault in its
server. Rules: a hint only, from what a program printed, which may be made up; it names nothing that was printed.

Not here: closed paths (closed_hint), hosts that were refused (output).
"""

from __future__ import annotations

from collections.abc import Sequence

from palyra.late import late
from palyra.model.limits import Limits
from palyra.model.net import EgressMode, NetGrant

MAX_BYTES = 1 << 16
"""Of the end of what it said."""
_WHO = (b"Please tell me who you are", b"could not lock config file /dev/null")
"""The second of git config --global."""
_NO_REPOSITORY = b"fatal: not a git repository"
_NO_REMOTE = (b"does not appear to be a git repository", b"transport 'file' not allowed")
_REFUSED = (b"Connection refused", b"ECONNREFUSED", b"Couldn't connect to server", b"Could not connect to server")
_HERE = (b"localhost", b"127.0.0.1", b"::1", b"0.0.0.0")  # as programs print it
_UNNAMED = (
    *(b"Temporary failure in name resolution", b"Could not resolve host", b"Name or service not known"),
    *(b"getaddrinfo EAI_AGAIN", b"Network is unreachable", b"ENETUNREACH"),
)
_READ_ONLY_REMOTE = b"unable to create temporary object directory"
_NO_FORK = (
    *(b"fork: retry", b"fork: Resource temporarily unavailable", b"Cannot fork", b"cannot fork", b"spawn EAGAIN"),
    *(b"can't start new thread", b"pthread_create", b"failed to spawn thread", b"unable to create new native thread"),
)
_GONE = late(rb"/(?:tmp|home/agent)/[^\n]{0,300}No such file or directory|ENOENT[^\n]{0,300}'/(?:tmp|home/agent)/")
_FULL = (b"MemoryError", b"Cannot allocate memory", b"std::bad_alloc", b"heap out of memory", b"memory exhausted")
_OPERATORS = frozenset("| || & && ; > >> < 2> 2>&1 2>/dev/null >/dev/null &>".split())
_PATTERN = late(r"[*?]|\{[^}]*,|\$[A-Za-z_{(]")
_IN_A_SHELL = (
    'What needs a shell runs in one, where policy allows that: command="bash", args=["-c", "…"]; palyra.fs.list and '
    "find -name know files by their names."
)
_NO_IDENTITY = (
    "There is no ~/.gitconfig in a sandbox, and git config --global ends with the call. Put it before the subcommand, "
    'each time: args=["-c", "user.name=NAME", "-c", "user.email=EMAIL", "commit", …]. An operator can set both '
    "for good in the repository, outside: git config user.name NAME."
)
_ABOVE = (
    "Nothing above the workspace is shown, and nothing of the repository that a worktree belongs to. Work with the "
    "files alone, or in a repository of the workspace. An operator can name the folder that holds .git as the "
    "workspace, palyra run --workspace DIR, or let a worktree's repository be read, not written, with palyra run "
    "--read DIR."
)
_ELSEWHERE = (
    "A remote that is a folder outside the workspace is not shown. Into a repository of the workspace git pushes where "
    "its folder is named: git push ./DIR BRANCH. An operator can let git fetch from it with palyra run --read DIR, and "
    "push to it outside."
)
_NO_PUSH = (
    "This remote is a folder that is shown for reading only: git fetches from it and cannot push to it. Commit here; "
    "into a repository of the workspace git pushes where its folder is named: git push ./DIR BRANCH. An operator can "
    "push to it outside."
)
_NO_PROCESSES = (
    "A call here has at most {} processes and threads: run fewer at once (make -j2, pytest -n 2, a smaller pool). An "
    "operator can raise max_processes in [tool_call.process_runner]."
)
_NEW_EACH_TIME = (
    "The home folder and /tmp are new and empty in each call: make and use such a file in one call, or put it into "
    "the workspace."
)
_OWN_NETWORK = (
    "Each call has a network of its own: what listens on localhost in another call, in the background too, cannot be "
    'reached from this one. Start the server and its client in one call: command="bash", args=["-c", "SERVER & sleep '
    '1; CLIENT"].'
)
_NO_NETWORK = (
    "There is no network in this call: no host is granted. An operator can grant hosts for this call: "
    "palyra run --allow-host HOST (palyra run --learn names them); always: allowed_egress_hosts in "
    "[tool_call.process_runner]."
)
_NO_MEMORY = (
    "A process here has at most {} MiB of memory: do less at once, or in fewer processes. An operator can give more "
    "for this call: palyra run --memory BYTES; always: memory_limit_bytes in [tool_call.process_runner]."
)

_TRACING = (
    "No program here can trace another: ptrace is refused, so strace, ltrace and gdb do not start one. valgrind works, "
    "and so do a program's own traces, such as python3 -m trace, bash -x or LD_DEBUG=files. "
    "An operator can trace outside."
)
_LEAKS = (
    "LeakSanitizer looks for leaks with ptrace, which is refused here. Switch that part off, in a shell: "
    'command="bash", args=["-c", "ASAN_OPTIONS=detect_leaks=0 ./PROGRAM"]. valgrind finds leaks.'
)
_SHADOW = (
    "A sanitizer reserves terabytes of addresses, which the memory limit of this call counts. valgrind and "
    "-fsanitize=undefined need none. An operator can let AddressSanitizer run with palyra run --memory 16384G; "
    "ASAN_OPTIONS=detect_leaks=0 is needed too."
)
_BROWSER = (
    "A browser cannot make a second sandbox inside this one. Start it without its own: chromium --headless "
    "--no-sandbox; in Puppeteer and Playwright args: ['--no-sandbox'] (chromiumSandbox: false)."
)
_REFUSED_BY_FILTER = (
    (b"LeakSanitizer has encountered a fatal error", _LEAKS),
    (b"Sanitizer failed to allocate", _SHADOW),
    (b"PTRACE_", _TRACING),
    (b"ptrace: Operation not permitted", _TRACING),
    (b"No usable sandbox!", _BROWSER),
    (b"Running as root without --no-sandbox", _BROWSER),
)
"""What a program prints that wants a system call or an amount of addresses that no call has here."""


def unread_hint(args: Sequence[str], said: bytes) -> str | None:
    """For a program that failed with words that only a shell reads: it got them as they are. An argument may hold a
    secret, so none is repeated."""
    operator = next((word for word in args if word in _OPERATORS), "")
    patterns = (word.encode("utf-8", "surrogateescape") for word in args if _PATTERN.search(word))
    if not operator and not any(word in said[-MAX_BYTES:] for word in patterns):
        return None
    return (
        f"There is no shell here: {operator or 'a pattern or a variable'} reached the program as it is. {_IN_A_SHELL}"
    )


def said_hint(said: bytes, net: NetGrant, limits: Limits) -> str | None:
    said = said[-MAX_BYTES:]
    if any(map(said.__contains__, _WHO)):
        return _NO_IDENTITY
    if _NO_REPOSITORY in said:
        return _ABOVE
    if any(map(said.__contains__, _NO_REMOTE)):
        return _ELSEWHERE
    for words, hint in _REFUSED_BY_FILTER:
        if words in said:
            return hint
    if _READ_ONLY_REMOTE in said:
        return _NO_PUSH
    if any(map(said.__contains__, _NO_FORK)):
        return _NO_PROCESSES.format(limits.processes)
    if any(map(said.__contains__, _FULL)):
        return _NO_MEMORY.format(limits.memory_bytes >> 20)
    if _GONE.search(said):
        return _NEW_EACH_TIME
    if net.mode is not EgressMode.STRICT:
        return None
    if not net.hosts and any(map(said.__contains__, _UNNAMED)):
        return _NO_NETWORK
    # Without a granted host there is no other address that could have refused.
    is_here = not net.hosts or any(map(said.__contains__, _HERE))
    return _OWN_NETWORK if is_here and any(map(said.__contains__, _REFUSED)) else None
