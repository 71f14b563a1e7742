"""The builder: off until it is switched on, candidates that run nowhere, promotion into quarantine, a model's part."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from palyra.config.load import Home
from palyra.errors import ConfigError, Rejected
from palyra.journal.entry import parse_entry
from palyra.model.call import Tier
from palyra.skills.lifecycle import Status
from palyra.skills.project import ProjectError
from palyra.wiring.embedded import Installation, open_installation
from palyra.wiring.skill_builder import SkillBuilder
from tests.conformance.arena import require
from tests.promises import promise

T = TypeVar("T")
ON = "[skills]\nbuilder = true\n"
ECHO = """(module
  (import "palyra:plugins/host@0.1.0" "input-len" (func $len (result i32)))
  (import "palyra:plugins/host@0.1.0" "input-read" (func $read (param i32 i32) (result i32)))
  (import "palyra:plugins/host@0.1.0" "output" (func $output (param i32 i32) (result i32)))
  (memory (export "memory") 8)
  (func (export "run") (result i32)
    (call $output (i32.const 0) (call $read (i32.const 0) (call $len)))))
"""
WRITTEN: dict[str, Any] = {
    "language": "wat",
    "code": ECHO,
    "input_schema": {"type": "object"},
    "output_schema": {"type": "object"},
    "tests": {"same": {"input": {"a": 1}, "expect": {"exit_code": 0, "result": {"a": 1}}}},
}


def with_builder(home: Path, work: Callable[[SkillBuilder, Installation], Awaitable[T]], config: str = ON) -> T:
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "palyra.toml").write_text(config)
    (home / "palyra.toml").chmod(0o600)

    async def whole() -> T:
        installation = await open_installation(Home(home), one_call=True)
        try:
            return await work(SkillBuilder(installation, path=()), installation)
        finally:
            await installation.close()

    return asyncio.run(whole())


@dataclass
class Model:
    """A server with one scripted answer, and what it was asked."""

    answer: bytes
    status: int = 200
    asked: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)


@contextmanager
def serving(model: Model) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            model.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            self.send_response(model.status)
            self.send_header("content-length", str(len(model.answer)))
            self.end_headers()
            self.wfile.write(model.answer)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def chat(written: Any) -> bytes:
    return json.dumps({"choices": [{"message": {"role": "assistant", "content": json.dumps(written)}}]}).encode()


def test_the_builder_is_off_until_it_is_switched_on(tmp_path: Path) -> None:
    async def work(builder: SkillBuilder, here: Installation) -> None:
        raise AssertionError

    with pytest.raises(ProjectError) as error:
        with_builder(tmp_path / "home", work, config="")
    assert error.value.hint == "It is experimental: set builder = true in [skills]."


@pytest.mark.parametrize(
    "text",
    ["fetch api.example.com/v1 with a token", "keep a copy of news.example.org/today", "remember a note", "count"],
)
def test_every_template_builds_passes_its_tests_and_lands_in_quarantine(text: str, tmp_path: Path) -> None:
    require(Tier.C)

    async def work(builder: SkillBuilder, here: Installation) -> None:
        made = await builder.propose(text, by="user:ada")
        promoted = await builder.promote(made.candidate_id, by="user:bob")
        assert promoted.done.standing.status is Status.QUARANTINED
        assert promoted.done.report is not None
        assert promoted.done.report.failures == ()
        assert [one.promoted_sha256 for one in builder.candidates()] == [promoted.built.payload_sha256]
        with pytest.raises(Rejected) as refused:
            here.ports.skills.find(made.skill_id, version="", tool_id="")
        assert refused.value.reason == "SKILL_NOT_ACTIVE"

    with_builder(tmp_path / "home", work)


@promise("skills.candidate-wishes")
def test_a_candidate_is_journaled_and_nothing_of_it_runs(tmp_path: Path) -> None:
    async def work(builder: SkillBuilder, here: Installation) -> None:
        made = await builder.propose("get api.example.com", by="user:ada", skill_id="acme.made")
        said = parse_entry(here.journal.tail(1)[0].body).predicate
        assert (said["act"], said["actor"]) == ("skill.proposed", "user:ada")
        assert said["details"] == {"skill_id": "acme.made", "source": "template", "model": ""}
        assert builder.candidates() == [made]
        assert set(builder.show(made.candidate_id)[1]) == {
            *("REVIEW.md", "build.toml", "skill.toml", "src/main.wat"),
            *("tests/answered.json", "tests/elsewhere.json", "tests/silent.json"),
        }
        assert here.skills.list_skills() == []

    with_builder(tmp_path / "home", work)


@pytest.mark.parametrize("name", ["../../etc", "01J00000000000000000000000", "", "x" * 300])
def test_a_candidate_that_is_none_is_refused_and_never_a_path(name: str, tmp_path: Path) -> None:
    async def work(builder: SkillBuilder, here: Installation) -> None:
        with pytest.raises((ProjectError, Rejected)):
            await builder.promote(name, by="user:ada")

    with_builder(tmp_path / "home", work)


def test_a_candidate_whose_tests_differ_is_not_installed(tmp_path: Path) -> None:
    require(Tier.C)

    async def work(builder: SkillBuilder, here: Installation) -> None:
        made = await builder.propose("count words", by="user:ada")
        case = tmp_path / "home" / "candidates" / made.candidate_id / "project" / "tests" / "object.json"
        case.write_text('{"input": {"a": 1}, "expect": {"result": {"a": 2}}}')
        with pytest.raises(ProjectError, match="does not do what its recorded inputs say"):
            await builder.promote(made.candidate_id, by="user:ada")
        assert here.skills.list_skills() == []

    with_builder(tmp_path / "home", work)


def test_a_model_writes_the_code_with_a_key_it_is_told_alone(tmp_path: Path) -> None:
    require(Tier.C)
    model = Model(chat(WRITTEN))

    async def work(builder: SkillBuilder, here: Installation) -> None:
        await here.vault.set("MODEL_KEY", b"sk-very-secret", scope=None, binding=None, actor="uid:0")
        made = await builder.propose("return what came in", by="user:ada", skill_id="acme.made")
        assert (made.source, made.model) == ("model", "some-model")
        promoted = await builder.promote(made.candidate_id, by="user:ada")
        assert promoted.done.standing.status is Status.QUARANTINED

    with serving(model) as url:
        config = f'{ON}builder_endpoint = "{url}"\nbuilder_model = "some-model"\nbuilder_secret = "MODEL_KEY"\n'
        with_builder(tmp_path / "home", work, config=config)
    ((path, headers, body),) = model.asked
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer sk-very-secret"
    assert (body["model"], body["messages"][1]["content"]) == ("some-model", "return what came in")
    kept = [file for file in (tmp_path / "home" / "candidates").rglob("*") if file.is_file()]
    assert all(b"sk-very-secret" not in file.read_bytes() for file in kept)


HOSTILE = [
    pytest.param(Model(chat({**WRITTEN, "capabilities": {}})), "keys other than", id="asks for capabilities"),
    pytest.param(Model(b"not json"), "no JSON object", id="no JSON"),
    pytest.param(Model(b"{}", status=500), "answered 500", id="fails"),
    pytest.param(Model(b"x" * (600 << 10)), "answered 200|larger than", id="floods"),
]


@promise("skills.candidate-wishes")
@pytest.mark.parametrize(("model", "why"), HOSTILE)
def test_a_models_answer_of_another_form_makes_no_candidate(model: Model, why: str, tmp_path: Path) -> None:
    async def work(builder: SkillBuilder, here: Installation) -> None:
        with pytest.raises(ProjectError, match=why):
            await builder.propose("anything", by="user:ada")
        assert builder.candidates() == []

    with serving(model) as url:
        with_builder(tmp_path / "home", work, config=f'{ON}builder_endpoint = "{url}"\nbuilder_model = "m"\n')


def test_a_key_never_goes_in_the_clear_to_another_machine(tmp_path: Path) -> None:
    async def work(builder: SkillBuilder, here: Installation) -> None:
        with pytest.raises(ConfigError, match="plain http to another machine"):
            await builder.propose("anything", by="user:ada")

    config = f'{ON}builder_endpoint = "http://models.example.com/v1"\nbuilder_model = "m"\n'
    with_builder(tmp_path / "home", work, config=config)


@promise("skills.candidate-wishes")
def test_code_of_a_model_that_does_more_than_the_wish_is_not_promoted(tmp_path: Path) -> None:
    """It may be built; what it imports beyond its capabilities gets no handle, and its tests tell."""
    require(Tier.C)
    greedy = ECHO.replace("(memory", '(import "wasi_snapshot_preview1" "fd_write" (func (param i32)))\n  (memory')
    model = Model(chat({**WRITTEN, "code": greedy}))

    async def work(builder: SkillBuilder, here: Installation) -> None:
        made = await builder.propose("return what came in", by="user:ada", skill_id="acme.made")
        with pytest.raises(ProjectError, match="does not do what its recorded inputs say"):
            await builder.promote(made.candidate_id, by="user:ada")
        assert here.skills.list_skills() == []

    with serving(model) as url:
        with_builder(tmp_path / "home", work, config=f'{ON}builder_endpoint = "{url}"\nbuilder_model = "m"\n')
