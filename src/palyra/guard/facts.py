"""The facts policy decides over, joined from the command's classification, the sights and the lists.

Refuses by itself only what has no business before a policy: a command that is no name, a workspace or cwd that cannot
be one, a broad kill. Everything else becomes a fact, with a sentence for the refusal that a policy may make of it.

Checks, in this order: 1 shape · 2 executable · 3 interpreters · 4 broad kills · 5 workspace scope · 7 egress preflight.
(6, the environment, is guard/environ.)

Not here: whether a fact is allowed (policy), what the sandbox then enforces (sandbox).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from palyra.canon import canonical, digest
from palyra.errors import Reason, Rejected
from palyra.guard.command import (
    ANY_PROGRAM,
    Classification,
    behind,
    check_shape,
    is_broad_kill,
    is_interpreter,
    normalise,
)
from palyra.guard.paths import EACH_CALLS_OWN, MACHINE, VISIBLE_SYSTEM, can_be_granted, inside, judge_paths, lexical
from palyra.guard.programs import BROAD_KILLS, BUILD_TOOLS
from palyra.guard.wrappers import is_wrapper
from palyra.model.call import OperatorGrant, Tier
from palyra.model.job import Facts
from palyra.model.net import NamedHost
from palyra.model.sights import ExecutableSight, Sights

Details = Iterator[tuple[str, str]]
_MAX_SHOWN = 3
_MAX_PROGRAMS = 1024
"""Characters: what policy takes of one string."""
_OFTEN_CALLED = {"python": "python3", "pip": "pip3"}


def guard_process(
    *,
    command: str,
    args: Sequence[str],
    classification: Classification,
    sights: Sights,
    allowed_executables: Sequence[str],
    allow_interpreters: bool,
    own_list: bool = False,
    read_roots: Sequence[str] = (),
    grant: OperatorGrant,
    tier: str,
    egress: str,
    hosts_named: Sequence[NamedHost] = (),
    hosts_denied: Sequence[NamedHost] = (),
) -> Facts:
    check_shape(command, args)  # 1
    kind = _refine(classification, sights, command, args)  # 3
    _check_kill(command, args, kind)  # 4
    check_places(sights)  # 5
    with_interpreters = allow_interpreters or grant.interpreters
    names = frozenset((*allowed_executables, *grant.executables))
    unlisted = _unlisted(kind, sights, names, with_interpreters=with_interpreters and not own_list)
    # Tier B shows the host's own folders, so nothing beside the workspace is taken for granted there.
    shown, private = (VISIBLE_SYSTEM, EACH_CALLS_OWN) if tier == Tier.C else ((), ())
    outside = judge_paths(sights, read_roots, visible=(*MACHINE, *shown))
    writable = [sight for sight in _programs(sights) if sight.agent_writable]
    return Facts(
        tier=tier,
        egress=egress,
        program=kind.program,
        effective_program=kind.effective_program,
        programs=_name_programs(kind, sights, command, args),
        interpreter=kind.interpreter,
        runs_code=kind.runs_code,
        inline_code=kind.inline_code,
        listed=not unlisted,
        own_list=own_list,
        found=bool(sights.executable.path and sights.executable.sha256),
        agent_writable=bool(writable),
        outside_workspace=bool(outside),
        hosts_named=len(hosts_named),
        hosts_denied=len(hosts_denied),
        granted=command in grant.executables,
        granted_interpreters=with_interpreters,
        granted_egress=grant.egress is not None or bool(grant.hosts),
        details=(
            *_tell_code(kind),
            *_tell_executables(kind, sights, unlisted, writable, own_list=own_list),
            *tell_outside(outside, sights, private=private),
            *_tell_reading(outside, sights),
            *tell_hosts(hosts_denied),
            *(("end", name) for name in kind.ends if len(kind.ends) > 1),
        ),
    )


def _unlisted(
    kind: Classification, sights: Sights, names: frozenset[str], *, with_interpreters: bool
) -> tuple[str, ...]:
    """What would be started and is on no list. `with_interpreters`: interpreters are allowed and the operator wrote no
    list, so they are listed by being interpreters."""
    looked = (s.name for s in _programs(sights) if not (with_interpreters and _comes_with_interpreters(s)))
    started = () if with_interpreters else kind.starts
    return tuple(dict.fromkeys(name for name in (*looked, *started) if name not in names))


def _programs(sights: Sights) -> tuple[ExecutableSight, ...]:
    return (sights.executable, *sights.also)


def _name_programs(kind: Classification, sights: Sights, command: str, args: Sequence[str]) -> str:
    """Return what an exception for a program binds: everything the verdict rests on.

    `find -exec wget` and `find -exec gpg` differ. So do `git -c core.pager=a` and `git -c core.pager=b`: there the
    arguments make the program run code, so their digest is part of the value.
    """
    named: list[list[str]] = [[sight.name, _as_text(sight.path)] for sight in _programs(sights)]
    if (kind.runs_code or kind.inline_code) and not any(map(_runs_code_by_name, _programs(sights))):
        named.append(["args", digest([command, *args])])
    text = canonical(named).decode()
    return text if len(text) <= _MAX_PROGRAMS else f"sha256:{digest(named)}"


def _refine(kind: Classification, sights: Sights, command: str, args: Sequence[str]) -> Classification:
    """Add what the disk says: scripts, and links such as `editor` → vim; what git would go on with."""
    if kind.runs_code and sights.resumable and _goes_on(sights, command, args):
        kind = replace(kind, runs_code=False, starts=(), why="")
    for sight in _programs(sights):
        name, why, interprets = behind(sight.name, sight.shebang, sight.path)
        if why and not kind.interpreter and (interprets or not kind.runs_code):
            kind = replace(kind, effective_program=name, interpreter=interprets, runs_code=True, why=why)
    if not kind.runs_code and any(normalise(sight.name) == "git" for sight in _programs(sights)):
        why = _why_git_runs_code(sights, command, args)
        if why:
            kind = replace(kind, effective_program="git", runs_code=True, starts=(*kind.starts, ANY_PROGRAM), why=why)
    return kind


def _goes_on(sights: Sights, command: str, args: Sequence[str]) -> bool:
    from palyra.guard.gitsteps import opened_steps

    return bool(opened_steps(command, args, sights.workspace.path, sights.resumable))


def _why_git_runs_code(sights: Sights, command: str, args: Sequence[str]) -> str:
    """What the disk says of a git whose words name no program; empty where it runs none."""
    from palyra.guard.gitline import push_target
    from palyra.guard.gitpush import push_words

    if sights.cwd.resolved != sights.workspace.path:
        return (
            "git below the top of the workspace can meet a repository with its own settings and hooks; without cwd, "
            "with paths as arguments, it can be run"
        )
    if _has_common_folder(sights):
        return "a commondir in .git says that the repository's settings are another folder's"
    if sights.git_program:
        return f"git obeys {sights.git_program}"
    pushed = push_words(command, args)
    target = "" if pushed is None else push_target(pushed)
    if target and any(sight.text == target and sight.exists for sight in sights.paths):
        return "git push to a folder runs the hooks of the repository there"
    return ""


def _has_common_folder(sights: Sights) -> bool:
    """Only worktrees have one. In .git itself it leads git past the config that is closed, to one of the agent's."""
    places = (path for path in sights.workspace.protected if path.endswith("/commondir"))
    return not all(map(_is_of_worktree, places))


def _is_of_worktree(path: str) -> bool:
    """As `git worktree add` makes it, in a bare repository too; not that of a repository in a folder of this name."""
    above, name = path.split("/")[-3:-1]
    return "/.git/worktrees/" in path or (above == "worktrees" and name != ".git" and "/modules/" not in path)


def _as_text(path: str) -> str:
    """Return a path that may hold bytes that are no UTF-8 as text that JSON can hold."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _runs_code_by_name(sight: ExecutableSight) -> bool:
    """Return whether every call of it may run code. A wrapper's arguments say what it runs: `env git -c …`."""
    return _comes_with_interpreters(sight) and not is_wrapper(normalise(sight.name))


def _comes_with_interpreters(sight: ExecutableSight) -> bool:
    """`--allow-interpreters` lists interpreters, and what is no more than one: scripts, build tools, bare wrappers."""
    name = normalise(sight.name)
    _, why, interprets = behind(sight.name, sight.shebang, sight.path)
    return is_interpreter(name) or name in BUILD_TOOLS or is_wrapper(name) or (bool(why) and interprets)


def _check_kill(command: str, args: Sequence[str], kind: Classification) -> None:
    wrapped = (kind.effective_program, *(normalise(name) for name in kind.also))
    if is_broad_kill(command, args) or any(name in BROAD_KILLS - {"fuser"} for name in wrapped):
        raise Rejected(
            Reason.EXECUTABLE_DENIED,
            f"{kind.effective_program}, called like this, ends processes that do not belong to this call.",
            "Stop a process you started with palyra.process.stop.",
        )


def check_places(sights: Sights) -> None:
    workspace, cwd = sights.workspace, sights.cwd
    if workspace.problem or not workspace.path:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            workspace.problem or "The workspace does not exist.",
            workspace.remedy
            or "Use a folder of yours: mkdir -p /tmp/try && cd /tmp/try, or --workspace DIR; "
            '"workspace" over HTTP, workspace= in Python.',
            fields=(("workspace", workspace.problem or "missing"),),
        )
    # Outside first: whether a folder out there exists is nothing a call may find out.
    if not inside(workspace.path, cwd.resolved):
        raise Rejected(
            Reason.OUTSIDE_WORKSPACE,
            f"The working folder {_shown(cwd.text)} is outside the workspace.",
            "Give a cwd below the workspace, or another --workspace DIR.",
            fields=(("cwd", "outside the workspace"),),
        )
    if not cwd.exists:
        raise Rejected(
            Reason.BAD_ARGUMENTS,
            f"The working folder {_shown(cwd.text)} does not exist.",
            "Create it first, or leave cwd out.",
            fields=(("cwd", "does not exist"),),
        )


def _tell_code(kind: Classification) -> Details:
    if kind.interpreter or kind.runs_code:
        yield Reason.INTERPRETER_DENIED.value, f"{kind.why or kind.effective_program + ' can run code'}."


def _tell_executables(
    kind: Classification,
    sights: Sights,
    unlisted: Sequence[str],
    writable: Sequence[ExecutableSight],
    *,
    own_list: bool,
) -> Details:
    code, first = Reason.EXECUTABLE_DENIED.value, sights.executable
    for name in (*unlisted, *(() if first.path else (first.name,)))[:1]:
        yield "program", name  # as a list has to spell it: `python3` where policies say python, the wrapper itself
    if kind.interpreter or kind.runs_code:
        by_kind = (
            () if own_list else {s.name for s in _programs(sights) if _comes_with_interpreters(s)} | {*kind.starts}
        )
        yield from (("unlisted", name) for name in unlisted if name not in by_kind)
    needs_no_list = kind.interpreter or kind.runs_code  # where such programs are allowed; else they are refused as code
    if not first.path and needs_no_list:
        yield code, _tell_missing(first.name)
    for name in unlisted[:_MAX_SHOWN]:
        by = "" if name == first.name else f", which {_shown(first.name)} would run,"
        yield code, f"{_shown(name)}{by} is not on the executable allowlist."
    for sight in writable[:_MAX_SHOWN]:
        yield code, f"{_shown(sight.path)} could be written by the agent, so it is not run."
    if not first.path and not needs_no_list:
        yield code, _tell_missing(first.name)
    elif first.path and not first.sha256:
        yield code, f"{_shown(first.path)} cannot be read, so what runs could not be attested."


def _tell_missing(name: str) -> str:
    also = _OFTEN_CALLED.get(name)
    return f"{_shown(name)} was not found on the search path{f'; it may be called {also}' if also else ''}."


def _tell_reading(outside: Sequence[tuple[int, str, str]], sights: Sights) -> Details:
    """Whether --read would help, by what was written: where links of the host's lead is not for a caller to know."""
    if outside and all(can_be_granted(lexical(text, sights.cwd.resolved)) for _, text, _ in outside):
        yield "read", "PATH"


def tell_outside(
    outside: Sequence[tuple[int, str, str]], sights: Sights, *, called: str = "Argument", private: Sequence[str] = ()
) -> Details:
    for argument, text, resolved in outside[:_MAX_SHOWN]:
        if text.startswith("~"):
            where = "is in a home folder, outside the workspace"
        elif lexical(text, sights.cwd.resolved) != resolved and inside(
            sights.workspace.path, lexical(text, sights.cwd.resolved)
        ):
            where = "is a link that leads outside the workspace"
        elif lexical(text, sights.cwd.resolved) in private:
            where = "is outside the workspace: each call has an empty one of its own, which ends with it"
        else:
            where = "is outside the workspace"
        yield Reason.OUTSIDE_WORKSPACE.value, f"{called} {argument + 1} ({_shown(text)}) {where}."


def tell_hosts(denied: Sequence[NamedHost]) -> Details:
    for named in denied[:1]:
        name = f"[{named.host}]" if ":" in named.host else named.host
        yield "host", name if named.port in (None, 80, 443) else f"{name}:{named.port}"
    for named in denied[:_MAX_SHOWN]:
        port = f":{named.port}" if named.port is not None else ""
        # The host alone: the argument that names it may carry credentials.
        yield Reason.EGRESS_DENIED.value, f"{_shown(named.host)}{port} is not among the granted hosts."


def _shown(text: str) -> str:
    """For a sentence: short, and nothing that a terminal would obey."""
    clean = "".join(letter if letter.isprintable() else "?" for letter in text[:121])
    return clean if len(clean) <= 120 else clean[:119] + "…"
