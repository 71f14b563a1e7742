"""Fixtures every test may use: a state home and a workspace of its own. Nothing reads the developer's real home."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import promises
from tests.command_line import Cli
from tests.folders import open_folder

# What was green stays green: a run on a machine that lands changes tries the same cases each time. New cases are looked
# for where a find is wanted: `make fuzz`, or `--hypothesis-profile=search`.
BUSY = (hypothesis.HealthCheck.too_slow,)
"""A busy machine makes examples slowly, and that is no defect of a strategy."""
hypothesis.settings.register_profile("promises", derandomize=True, deadline=None, suppress_health_check=BUSY)
SEARCH_TIMES = 20
hypothesis.settings.register_profile(
    "search", deadline=None, suppress_health_check=BUSY, max_examples=100 * SEARCH_TIMES
)
hypothesis.settings.load_profile("promises")

# Started by `nohup`, or behind a shell's `&`, these are ignored, and so they would be in everything a test starts.
for number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, signal.default_int_handler if number is signal.SIGINT else signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    promises.register(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--hypothesis-profile", None) == "search":
        search_longer(getattr(item, "obj", None) for item in items)


def search_longer(tests: Iterable[object]) -> None:
    """A number of examples that a test names itself hides the profile's, and was chosen for runs that land changes."""
    for test in {getattr(test, "__func__", test) for test in tests}:
        if getattr(test, "_hypothesis_internal_settings_applied", False):
            own = test._hypothesis_internal_use_settings  # type: ignore[attr-defined]
            longer = hypothesis.settings(own, max_examples=own.max_examples * SEARCH_TIMES)
            test._hypothesis_internal_use_settings = longer  # type: ignore[attr-defined]


@pytest.fixture(scope="session", autouse=True)
def no_real_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that forgets `--home` lands in a throwaway folder, never in the state of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for key in [key for key in os.environ if key.startswith("PALYRA_")]:
            patch.delenv(key)
        patch.setenv("PALYRA_HOME", str(tmp_path_factory.mktemp("forgotten-home")))
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A state home that nobody else may enter. It does not exist yet, like a new user's."""
    return tmp_path / "home"


@pytest.fixture
def workspace() -> Iterator[Path]:
    """An empty folder that is a legal workspace. Not below `tmp_path`: a root engine's children run as others."""
    with open_folder() as folder:
        yield folder


@pytest.fixture
def cli(home: Path, workspace: Path) -> Cli:
    return Cli(home, workspace)
