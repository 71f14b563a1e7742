"""The sample skills, built from their sources in this run and tried on their recorded inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from palyra.signing import SigningKey
from palyra.wiring.skill_bench import Bench, try_project
from palyra.wiring.skill_building import build_project
from tests.authoring import SAMPLES, assemblyscript, at_the_bench, copy_of

KEY = SigningKey.from_seed(bytes(range(32)))


def test_there_are_three_samples() -> None:
    assert sorted(path.name for path in SAMPLES.iterdir()) == ["json-query", "redact", "repo-issues"]


@pytest.mark.slow
@pytest.mark.parametrize("sample", ["json-query", "redact", "repo-issues"])
def test_a_sample_builds_and_passes_its_recorded_inputs(sample: str, tmp_path: Path) -> None:
    folder = copy_of(sample, tmp_path)

    async def work(bench: Bench) -> dict[str, str]:
        await build_project(folder, bench.workshop, lambda publisher: KEY, at_unix_ms=1)
        _, verdicts = await try_project(folder, bench)
        assert len(verdicts) >= 7
        return {verdict.name: verdict.diff for verdict in verdicts if not verdict.passed}

    assert at_the_bench(tmp_path / "home", work, path=assemblyscript()) == {}


@pytest.mark.slow
def test_compiling_twice_in_two_places_gives_the_same_bytes(tmp_path: Path) -> None:
    places = [copy_of("redact", tmp_path / name) for name in ("one", "two")]

    async def work(bench: Bench) -> list[bytes]:
        built = [await build_project(one, bench.workshop, lambda who: KEY, at_unix_ms=1) for one in places]
        return [one.path.read_bytes() for one in built]

    one, two = at_the_bench(tmp_path / "home", work, path=assemblyscript())
    assert one == two
