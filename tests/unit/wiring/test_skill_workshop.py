"""Compiling a project: what of its folder is read, and what a compiler can reach while it runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from palyra.errors import Unenforceable
from palyra.launch.process import ProcessExecutor
from palyra.model.call import Tier
from palyra.model.host import ContainerFacts
from palyra.skills.languages import Language
from palyra.skills.project import ProjectError, parse_project
from palyra.wiring.skill_programs import Shelf
from palyra.wiring.skill_workshop import Compiled, Workshop, _made, read_project_files
from tests.authoring import new_project, place_files
from tests.conformance.arena import host, require
from tests.promises import promise


def compile_project(folder: Path, path: tuple[str, ...] = ()) -> Compiled:
    require(Tier.C)

    async def work() -> Compiled:
        executor = ProcessExecutor(host())
        try:
            workshop = Workshop(executor, host(), path=path, user_home=str(folder.parent / "home"))
            return await workshop.compile(parse_project(read_project_files(folder)), folder)
        finally:
            await executor.close()

    return asyncio.run(work())


def test_a_project_is_read_without_what_is_made_from_it_or_hidden(tmp_path: Path) -> None:
    folder = place_files(tmp_path, new_project("acme.echo", Language.WAT))
    place_files(folder, {"dist/old": "x", "node_modules/a/b": "x", "target/c": "x", ".env": "SECRET", "src/.x/y": "x"})
    assert sorted(read_project_files(folder)) == [
        *("README.md", "build.toml", "skill.toml", "src/main.wat", "tests/empty.json", "tests/object.json"),
    ]


@promise("skills.builder-sandbox")
def test_a_link_in_a_project_is_refused(tmp_path: Path) -> None:
    folder = place_files(tmp_path, new_project("acme.echo", Language.WAT))
    (folder / "src" / "secret.wat").symlink_to("/etc/passwd")
    with pytest.raises(ProjectError, match="is a link, or not a file"):
        read_project_files(folder)


@promise("skills.builder-sandbox")
def test_a_folder_of_a_project_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = place_files(tmp_path / "project", new_project("acme.echo", Language.WAT))
    place_files(tmp_path, {"outside/key": "KEY"})
    (folder / "assets").symlink_to(tmp_path / "outside")
    with pytest.raises(ProjectError, match="assets is a link, or not a file"):
        read_project_files(folder)


def test_a_pipe_in_a_project_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    folder = place_files(tmp_path, new_project("acme.echo", Language.WAT))
    os.mkfifo(folder / "src" / "pipe")
    with pytest.raises(ProjectError, match="is a link, or not a file"):
        read_project_files(folder)


def test_text_is_assembled_without_any_toolchain(tmp_path: Path) -> None:
    compiled = compile_project(place_files(tmp_path, new_project("acme.echo", Language.WAT)))
    assert compiled.modules["modules/main.wasm"][:8] == b"\0asm\1\0\0\0"
    assert compiled.tool == "wasmtime wat2wasm"


def test_the_assemblers_complaint_is_passed_on(tmp_path: Path) -> None:
    folder = place_files(
        tmp_path, {**new_project("acme.echo", Language.WAT), "src/main.wat": "(module (func (bogus)))"}
    )
    with pytest.raises(ProjectError, match=r"(?s)src/main.wat could not be compiled:.*bogus"):
        compile_project(folder)


@pytest.mark.parametrize(
    ("language", "command"),
    [
        (Language.C, "pip install ziglang=="),
        (Language.ASSEMBLYSCRIPT, "npm install --ignore-scripts --no-audit --no-fund assemblyscript@"),
        (Language.PYTHON, "pip install componentize-py=="),
        (Language.JAVASCRIPT, "npm install --ignore-scripts --no-audit --no-fund componentize-qjs@"),
        (Language.RUST, "rustup target add wasm32-unknown-unknown"),
    ],
)
def test_a_missing_toolchain_is_answered_with_the_command_that_installs_it(
    language: Language, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "bin" / "python"))
    folder = place_files(tmp_path / "project", new_project("acme.echo", language))
    with pytest.raises(ProjectError) as error:
        compile_project(folder)
    assert command in (error.value.hint or "")
    assert str(folder) in (error.value.hint or "")


COMPILER = """#!/usr/bin/python3
# Stands where clang would: tries what a build script or a macro could try.
import os, socket

def tried(name, what):
    try:
        what()
        print("DID", name)
    except OSError:
        pass

tried("read outside", lambda: open({outside!r}).read())
tried("read a key", lambda: open({home!r} + "/.ssh/id_ed25519").read())
tried("change itself", lambda: open(__file__, "a"))
tried("see the project", lambda: os.listdir({folder!r}))
tried("reach the host", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
open("out.wasm", "wb").write(b"\\0asm\\1\\0\\0\\0")
print("tried all")
{ending}
"""


def attack(tmp_path: Path, ending: str, port: int = 9) -> tuple[Path, Path]:
    """A project in C, and a folder whose clang is not one."""
    folder = place_files(tmp_path / "project", new_project("acme.echo", Language.C))
    place_files(tmp_path, {"home/.ssh/id_ed25519": "KEY", "outside": "OUTSIDE"})
    tools = tmp_path / "tools"
    tools.mkdir()
    words = {"outside": str(tmp_path / "outside"), "home": str(tmp_path / "home"), "folder": str(folder)}
    for name in ("clang", "wasm-ld"):
        (tools / name).write_text(COMPILER.format(**words, port=port, ending=ending))
        (tools / name).chmod(0o755)
    return folder, tools


@promise("skills.builder-sandbox")
def test_a_compiler_reaches_neither_files_nor_network_nor_the_project_itself(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        folder, tools = attack(tmp_path, "raise SystemExit(1)", server.getsockname()[1])
        with pytest.raises(ProjectError) as error:
            compile_project(folder, (str(tools),))
    assert error.value.detail == "src/main.c could not be compiled:\ntried all"


@promise("skills.builder-sandbox")
def test_what_a_compiler_leaves_is_one_file_and_no_link(tmp_path: Path) -> None:
    folder, tools = attack(tmp_path, "os.remove('out.wasm'); os.symlink('/etc/passwd', 'out.wasm')")
    with pytest.raises(ProjectError, match="produced no module"):
        compile_project(folder, (str(tools),))


@promise("skills.builder-sandbox")
def test_a_link_on_the_way_to_the_module_is_not_followed(tmp_path: Path) -> None:
    """What cargo leaves lies three folders deep; each of them is the compiler's to swap."""
    copy, elsewhere = tmp_path / "copy", tmp_path / "elsewhere"
    place_files(elsewhere, {"release/x.wasm": "the builder's own"})
    copy.mkdir()
    (copy / ".out").symlink_to(elsewhere)
    with pytest.raises(FileNotFoundError):
        _made(copy, ".out/release/x.wasm")


def test_a_projects_own_programs_open_nothing_but_its_node_modules(tmp_path: Path) -> None:
    """A link to a program of the builder's, or a first line that names one, would show its folder to the compiler."""
    place_files(tmp_path, {"private/bin/tool": "#!/bin/sh\n", "private/key": "KEY"})
    (tmp_path / "private" / "bin" / "tool").chmod(0o755)
    project = place_files(tmp_path / "project", {"node_modules/asc/asc.js": f"#!{tmp_path}/private/bin/tool\n"})
    (project / "node_modules" / "asc" / "asc.js").chmod(0o755)
    tools = project / "node_modules" / ".bin"
    tools.mkdir()
    (tools / "asc").symlink_to("../asc/asc.js")
    (tools / "clang").symlink_to(tmp_path / "private" / "bin" / "tool")
    shelf = Shelf.of(project, ())
    asc = shelf.find("asc")
    assert asc == str(tools / "asc")
    assert shelf.roots({"asc": asc}, "") == (str(project / "node_modules"),)
    assert shelf.find("clang") == ""
    shutil.move(project / "node_modules", tmp_path / "moved")
    (project / "node_modules").symlink_to(tmp_path / "moved")
    assert Shelf.of(project, ()).find("asc") == ""


def test_nothing_of_a_build_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    folder, tools = attack(tmp_path, "")
    assert compile_project(folder, (str(tools),)).modules == {"modules/main.wasm": b"\0asm\1\0\0\0"}
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("language", [Language.WAT, Language.C])
def test_where_tier_c_is_a_container_nothing_is_built_with_its_images_programs(
    tmp_path: Path, language: Language
) -> None:
    container = ContainerFacts(
        runtime="podman", path="/nonexistent", version="5", image="sha256:" + "a" * 64, memory=True, pids=True
    )
    alone = replace(host(), bubblewrap=None, container=container)
    folder = place_files(tmp_path / "project", new_project("acme.echo", language))
    tools = tmp_path / "tools"
    for name in ("clang", "wasm-ld", "zig"):
        place_files(tools, {name: "#!/bin/sh\n"})
        (tools / name).chmod(0o755)
    workshop = Workshop(ProcessExecutor(alone), alone, path=(str(tools),), user_home=str(tmp_path / "home"))
    with pytest.raises(Unenforceable, match="no building of skills"):
        asyncio.run(workshop.compile(parse_project(read_project_files(folder)), folder))
