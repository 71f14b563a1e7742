"""The sample skills, built from their sources in this run and tried on their recorded inputs."""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from palyra.model.call import Tier
from palyra.signing import SigningKey
from palyra.wiring.skill_bench import Bench, try_project
from palyra.wiring.skill_building import build_project
from tests.authoring import SAMPLES, assemblyscript, at_the_bench, copy_of
from tests.conformance.arena import require

KEY = SigningKey.from_seed(bytes(range(32)))


def test_there_are_three_samples() -> None:
    assert sorted(path.name for path in SAMPLES.iterdir()) == ["json-query", "redact", "repo-issues"]


def large_query() -> dict[str, Any]:
    """100 KB to read and to filter, within the fuel that a skill has by default."""
    items = [{"name": "pen", "price": 2.5}, {"name": "desk", "price": 120}]
    document = {"orders": [{"id": n, "customer": {"name": f"c{n}"}, "items": items} for n in range(1000)]}
    assert len(json.dumps(document)) > 100_000
    asked = {"document": document, "query": "$.orders[*].items[?price >= 10].name", "limit": 1}
    return {"input": asked, "expect": {"exit_code": 0, "result": {"matches": ["desk"], "more": True}}}


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["json-query", "redact", "repo-issues"])
def test_a_sample_builds_and_passes_its_recorded_inputs(sample: str, tmp_path: Path) -> None:
    folder = copy_of(sample, tmp_path)
    if sample == "json-query":
        (folder / "tests" / "large.json").write_text(json.dumps(large_query()))

    async def work(bench: Bench) -> dict[str, str]:
        built = await build_project(folder, bench.workshop, lambda publisher: KEY, at_unix_ms=1)
        if sample == "redact":  # once is enough: compiled in two places, the same bytes
            other = copy_of(sample, tmp_path / "elsewhere")
            again = await build_project(other, bench.workshop, lambda publisher: KEY, at_unix_ms=1)
            assert again.path.read_bytes() == built.path.read_bytes()
        _, verdicts = await try_project(folder, bench)
        assert len(verdicts) >= 7
        return {verdict.name: verdict.diff for verdict in verdicts if not verdict.passed}

    assert at_the_bench(tmp_path / "home", work, path=assemblyscript()) == {}


TOKEN = "forge-7c1e5d20b9a34f66-token"
ISSUES = [{"number": 7, "title": "Größe", "state": "open", "user": {"login": "ada"}, "labels": [{"name": "bug"}]}]


@contextmanager
def forge() -> Iterator[tuple[int, list[dict[str, str]]]]:
    """A forge of one repository that knows its tags; its port, and the headers of every request."""
    seen: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append({"path": self.path, **{name.lower(): value for name, value in self.headers.items()}})
            known = self.headers.get("if-none-match") == '"tag-1"'
            body = b"" if known else json.dumps(ISSUES).encode()
            self.send_response(304 if known else 200)
            for name, value in (("etag", '"tag-1"'), ("content-length", str(len(body)))):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port, seen
        server.shutdown()
        thread.join()


def approved(cli: Any, *words: str) -> dict[str, Any]:
    """The outcome of a call that a person agrees to, for an hour."""
    waiting = cli.outcome(*words)
    assert waiting["status"] == "pending_approval", waiting
    assert cli("approvals", "approve", waiting["approval"]["approval_id"], "--for", "3600").returncode == 0
    outcome: dict[str, Any] = cli.outcome(*words)
    return outcome


@pytest.mark.slow
def test_an_api_client_uses_a_secret_it_never_sees_and_keeps_what_did_not_change(cli: Any, tmp_path: Path) -> None:
    require(Tier.C)
    with forge() as (port, seen):
        folder = copy_of("repo-issues", tmp_path)
        manifest = folder / "skill.toml"
        manifest.write_text(manifest.read_text().replace('"api.github.com"', f'"http://127.0.0.1:{port}"'))
        environ = {**cli.environ, "PATH": os.pathsep.join(assemblyscript())}
        built = subprocess.run(
            [*cli.argv, "skills", "build", str(folder)], env=environ, capture_output=True, timeout=120
        )
        assert built.returncode == 0, built.stderr
        package = str(folder / "dist" / "samples.repo-issues-1.0.0.palyra-skill")
        for words in (("install", package, "--tofu"), ("enable", "samples.repo-issues")):
            done = cli("skills", *words)
            assert done.returncode == 0, (words, done.stderr)
        scoped = ("--host", f"127.0.0.1:{port}", "--prefix", "Bearer ", "--scope", "tool=samples.repo-issues")
        assert cli("secrets", "set", "samples.repo-issues.token", *scoped, stdin=TOKEN.encode()).returncode == 0
        call = ("call", "samples.repo-issues", '{"owner": "acme", "repo": "tools"}', "--as", "agent:ci", "--json")
        first = approved(cli, *call)
        second = cli.outcome(*call)
    third = cli.outcome(*call)
    issues = [{"number": 7, "title": "Größe", "state": "open", "author": "ada", "labels": ["bug"]}]
    results = [one["output"].get("result") for one in (first, second, third)]
    sources = ("api", "cache", "stale cache")
    assert results == [{"issues": issues, "source": source} for source in sources], (first, second, third)
    assert [(one["path"], one.get("if-none-match")) for one in seen] == [
        ("/repos/acme/tools/issues?state=open&per_page=20", None),
        ("/repos/acme/tools/issues?state=open&per_page=20", '"tag-1"'),
    ]
    assert {one.get("authorization") for one in seen} == {f"Bearer {TOKEN}"}
    assert first["attestation"]["executor"] == "sandbox_tier_a"
    assert TOKEN not in str((first, second, third))
    holding = [path for path in cli.home.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert holding == []
    assert cli("journal", "verify").returncode == 0
