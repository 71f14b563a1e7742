"""Without a sandbox: which programs need none, and which paths one would have closed."""

from __future__ import annotations

import pytest

from palyra.guard.unconfined import closed_name, is_plain, may_read_hidden
from palyra.model.job import Facts
from palyra.model.sights import ExecutableSight, PathSight, Sights, WorkspaceSight


def seen(*paths: str, masked: tuple[str, ...] = ()) -> Sights:
    return Sights(
        workspace=WorkspaceSight(path="/w", masked=masked),
        cwd=PathSight(argument=-1, text="", resolved="/w/sub", exists=True),
        executable=ExecutableSight(name="x", path="/usr/bin/x"),
        paths=tuple(PathSight(argument=0, text=text, resolved=f"/w/sub/{text}", exists=True) for text in paths),
    )


def facts(program: str, effective: str = "", **more: bool) -> Facts:
    return Facts(program=program, effective_program=effective or program, **more)


@pytest.mark.parametrize("name", ["interpreter", "runs_code", "inline_code", "agent_writable", "background"])
def test_only_a_reader_that_is_nothing_else_is_plain(name: str) -> None:
    assert is_plain(facts("cat"))
    assert not is_plain(facts("cat", **{name: True}))
    assert not is_plain(facts("nice", "cat"))
    assert not is_plain(facts("cat", "git"))
    assert [is_plain(facts(program)) for program in ("jq", "zcat", "git", "sort", "")] == [False] * 5


@pytest.mark.parametrize(
    ("path", "reading", "writing"),
    [
        ("../.env", ".env", ".env"),
        ("../.ENV.local", ".ENV.local", ".ENV.local"),
        ("../.env.example", "", ".env.example"),
        (".env", "", ""),
        ("../.git/config", "", ".git/config"),
        ("deep/.Git", "", "sub/deep/.Git"),
        ("../jenkinsfile", "", "jenkinsfile"),
        (".github", "", ""),
        ("../../.env", "", ""),
        ("plain", "", ""),
    ],
)
def test_a_path_is_closed_as_in_a_sandbox(path: str, reading: str, writing: str) -> None:
    assert (closed_name(seen(path), reads=True), closed_name(seen(path), reads=False)) == (reading, writing)


def test_where_a_link_leads_counts() -> None:
    sights = seen()
    link = PathSight(argument=0, text="innocent", resolved="/w/.git/hooks", exists=True)
    assert closed_name(Sights(**{**_fields(sights), "paths": (link,)}), reads=False) == ".git/hooks"


def test_who_goes_through_folders_may_come_upon_what_is_hidden() -> None:
    assert may_read_hidden(facts("grep"), seen(masked=("/w/.env",)))
    assert may_read_hidden(facts("nice", "diff"), seen(masked=("/w/.env",)))
    assert not may_read_hidden(facts("cat"), seen(masked=("/w/.env",)))
    assert not may_read_hidden(facts("grep"), seen())


def _fields(sights: Sights) -> dict[str, object]:
    return {name: getattr(sights, name) for name in ("workspace", "cwd", "executable", "also", "paths")}
