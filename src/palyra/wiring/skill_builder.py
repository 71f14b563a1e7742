"""The builder (experimental, off by default): candidates out of words or of what a run did, and their promotion.

A candidate is a project in quarantine: a folder of the home that nothing runs from. `promote` builds it in the sandbox,
tries its recorded inputs, and installs the package, which lands audited in quarantine like any other; enabling it is an
operator's act of its own, after a recorded review. The command line and the console call the same.

Not here: what is generated (skills/intent, candidate, model_answer), the life of skills (skill_acts).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from palyra.canon import Json
from palyra.config.load import user_home
from palyra.egress.fetch import HttpFetcher
from palyra.errors import StateError
from palyra.journal.acts import Act, ActKind, record_act
from palyra.model.call import parse_ulid
from palyra.skills.bundle import read_untrusted
from palyra.skills.candidate import candidate_files, manifest_of
from palyra.skills.intent import SeenCall, Shape, Wish, learn_wish, parse_wish
from palyra.skills.project import ProjectError
from palyra.skills.recorded import Verdict, parse_cases
from palyra.skills.templates.load import read_templates
from palyra.state.transaction import Transaction
from palyra.wiring.egress import dialer_of
from palyra.wiring.journal_desk import JournalDesk
from palyra.wiring.skill_building import Built, build_project, write_built
from palyra.wiring.skill_keys import publisher_key
from palyra.wiring.skill_model import ask_model
from palyra.wiring.skill_projects import write_project
from palyra.wiring.skill_testing import Proving
from palyra.wiring.skill_workshop import Workshop, load_project, read_plain

if TYPE_CHECKING:
    from palyra.wiring.embedded import Installation
    from palyra.wiring.skill_payloads import Done

FOLDER, FACTS, PROJECT = "candidates", "candidate.json", "project"
MAX_CANDIDATES = 200
MAX_FACTS_BYTES = 64 << 10
MAX_CALLS = 500
FETCH = "palyra.http.fetch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    candidate_id: str
    skill_id: str
    version: str
    wish: str
    source: str
    shape: str
    model: str
    capabilities: dict[str, Json]
    made_unix_ms: int
    made_by: str
    promoted_sha256: str = ""

    def as_json(self) -> dict[str, Json]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted:
    candidate: Candidate
    built: Built
    verdicts: tuple[Verdict, ...]
    done: Done

    def as_json(self) -> dict[str, Json]:
        return {
            "candidate": self.candidate.as_json(),
            "built": self.built.as_json(),
            "tests": [verdict.as_json() for verdict in self.verdicts],
            "skill": self.done.as_json(),
        }


class SkillBuilder:
    """`path`: where the programs of toolchains are looked for."""

    def __init__(self, installation: Installation, *, path: Sequence[str]) -> None:
        if not installation.config.skills.builder:
            raise ProjectError(
                "The skill builder is switched off.", "It is experimental: set builder = true in [skills]."
            )
        self._here, self._path = installation, path
        self._root = installation.home.root / FOLDER

    # ── candidates ──

    async def propose(self, text: str, *, by: str, skill_id: str = "") -> Candidate:
        """From words. With a model configured the model writes the code; otherwise a template stands there."""
        return await self._make(parse_wish(text, skill_id=skill_id), by=by)

    async def learn(self, run_id: str, *, by: str, skill_id: str = "") -> Candidate:
        """From what a run did, as its journal and kept records tell."""
        seen = self._calls(parse_ulid(run_id, what="the run"))
        return await self._make(learn_wish(seen, run_id=run_id, skill_id=skill_id), by=by)

    def candidates(self) -> list[Candidate]:
        """The newest first; what is no candidate in their folder is left out."""
        names = sorted(os.listdir(self._root), reverse=True) if self._root.is_dir() else []
        return [found for name in names if (found := self._read(name)) is not None]

    def show(self, candidate_id: str) -> tuple[Candidate, dict[str, str]]:
        """With its files, for whoever reviews it."""
        candidate = self._known(candidate_id)
        files = load_project(self._project(candidate)).files
        return candidate, {path: data.decode("utf-8", "replace") for path, data in sorted(files.items())}

    async def _make(self, wish: Wish, *, by: str) -> Candidate:
        if len(self.candidates()) >= MAX_CANDIDATES:
            raise ProjectError(f"There are already {MAX_CANDIDATES} candidates.", f"Remove some in {self._root}.")
        config, ports = self._here.config.skills, self._here.ports
        written = None
        if config.builder_endpoint:
            fetcher = HttpFetcher(dialer_of(self._here.config))
            written = await ask_model(wish, config, fetcher, self._here.vault, by=by)
        candidate_id = ports.ids.ulid()
        codes = {shape.value: read_templates("builder")[f"{shape.value}.wat"] for shape in Shape}
        manifest = manifest_of(wish, candidate_id, written)
        candidate = Candidate(
            candidate_id=candidate_id,
            skill_id=wish.skill_id,
            version=manifest.version,
            wish=wish.text,
            source="model" if written else wish.source,
            shape=wish.shape.value,
            model=written.model if written else "",
            capabilities=manifest.capabilities.as_json(),
            made_unix_ms=ports.clock.now_unix_ms(),
            made_by=by,
        )
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_project(self._project(candidate), candidate_files(wish, candidate_id, templates=codes, written=written))
        self._write(candidate)
        await self._record(candidate)
        return candidate

    async def _record(self, candidate: Candidate) -> None:
        details: dict[str, Json] = {
            "skill_id": candidate.skill_id,
            "source": candidate.source,
            "model": candidate.model,
        }
        act = Act(
            kind=ActKind.SKILL_PROPOSED,
            actor=candidate.made_by,
            subject=f"candidate/{candidate.candidate_id}",
            details=details,
        )

        def work(tx: Transaction) -> None:
            record_act(tx, act, at_unix_ms=candidate.made_unix_ms)

        await self._here.writer.commit(work)

    def _calls(self, run_id: str) -> list[SeenCall]:
        """Completed calls of a run, each held against its entry. Raises StateError for a record that was changed."""
        lookup = JournalDesk(self._here.writer, is_alive=lambda _: True).lookup
        sql = "SELECT call_id FROM calls WHERE run_id = ? ORDER BY opened_unix_ms, call_id LIMIT ?"
        found = []
        for (call_id,) in self._here.writer.rows(sql, (run_id, MAX_CALLS)):
            stored = lookup.call(str(call_id))
            if stored is not None and stored.status == "completed" and stored.outcome:
                output = json.loads(stored.outcome).get("output", {})
                url = output.get("url", "") if stored.tool == FETCH and isinstance(output, dict) else ""
                found.append(SeenCall(tool=stored.tool, url=str(url)))
        return found

    # ── promotion ──

    async def promote(self, candidate_id: str, *, by: str) -> Promoted:
        """Build, try, install into quarantine. Nothing is installed when it does not build or its tests differ."""
        candidate = self._known(candidate_id)
        folder = self._project(candidate)
        project = load_project(folder)
        if project.manifest.skill_id != candidate.skill_id or project.manifest.builder is None:
            raise ProjectError("The candidate's skill.toml is about another skill.", f"Look into {folder}.")
        key, _ = publisher_key(self._here.home, project.manifest.publisher)
        workshop = Workshop(self._here.executor, self._here.host, path=self._path, user_home=user_home())
        built = await build_project(folder, workshop, lambda _: key)
        package = built.path.read_bytes()
        verdicts = await self._try(package, project.files)
        if not all(verdict.passed for verdict in verdicts):
            shown = "\n".join(f"{one.name}\n{one.diff}" for one in verdicts if not one.passed)
            raise ProjectError(f"{candidate.skill_id} does not do what its recorded inputs say:\n{shown}")
        done = await self._here.skills.install(package, by=by, tofu=True)
        promoted = replace(candidate, version=project.manifest.version, promoted_sha256=built.payload_sha256)
        self._write(promoted)
        return Promoted(candidate=promoted, built=built, verdicts=verdicts, done=done)

    async def _try(self, package: bytes, files: Mapping[str, bytes]) -> tuple[Verdict, ...]:
        skill = read_untrusted(package)
        proving = Proving(skill, self._here.guests, self._here.config.tool_call.wasm_runtime)
        cases = parse_cases(files, skill.manifest)
        if not cases:
            raise ProjectError("The candidate has no recorded inputs.", "Put some into its tests folder.")
        return tuple([await proving.prove(case) for case in cases])

    # ── its folder ──

    def _project(self, candidate: Candidate) -> Path:
        return self._root / candidate.candidate_id / PROJECT

    def _known(self, candidate_id: str) -> Candidate:
        found = self._read(parse_ulid(candidate_id, what="the candidate"))
        if found is None:
            raise ProjectError(f"There is no candidate {candidate_id}.", "palyra skills candidates lists them.")
        return found

    def _read(self, name: str) -> Candidate | None:
        try:
            data = read_plain(self._root / name / FACTS, most=MAX_FACTS_BYTES)
            found = Candidate(**json.loads(data))
        except (OSError, ValueError, TypeError, ProjectError):
            return None
        return found if found.candidate_id == name else None

    def _write(self, candidate: Candidate) -> None:
        try:
            write_built(self._root / candidate.candidate_id / FACTS, json.dumps(candidate.as_json()).encode())
        except OSError as error:
            raise StateError(f"The candidate cannot be stored: {error.strerror}.") from error
