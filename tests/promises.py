"""The promises of docs/security/promises.toml: which tests show each, and where each was shown.

A test says with `@promise("id")` that it shows a promise. The plugin below refuses an id that the page does not have,
and records the promises whose tests ran and passed. `python -m tests.promises` compares the records of the halves of
`make test` with the page, and fails when a promise was not shown where it must be. With `--index` it writes
docs/security/tests.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGE = PROJECT / "docs" / "security" / "promises.toml"
INDEX = PROJECT / "docs" / "security" / "tests.md"
RECORDS = PROJECT / ".make" / "promises"
HALVES = ("root", "plain")
PROPERTY = "promise"

Cases = Mapping[str, Counter[str]]
"""Of each promise, the cases of each test that shows it."""


def promise(*ids: str) -> pytest.MarkDecorator:
    """Mark a test, a class or (as `pytestmark`) a module as one that shows these promises."""
    return pytest.mark.promise(*ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """One entry of the page. `shown_in` names halves of `make test`, or the one target that shows it."""

    id: str
    says: str
    source: str
    shown_in: tuple[str, ...]


def read_promises() -> dict[str, Promise]:
    entries = tomllib.loads(PAGE.read_text(encoding="utf-8"))
    return {
        name: Promise(id=name, says=entry["says"], source=entry["source"], shown_in=tuple(entry["shown_in"]))
        for name, entry in entries.items()
    }


def ids_of(item: pytest.Item) -> list[str]:
    return sorted({name for marker in item.iter_markers("promise") for name in marker.args})


# ── the plugin ───────────────────────────────────────────────────────────────


class PromiseRecorder:
    """Collects the promises of tests that ran and passed; in the controller of pytest-xdist, from all workers."""

    def __init__(self, record: Path | None, counts: Path | None) -> None:
        self.record, self.counts, self.shown = record, counts, set[str]()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = read_promises()
        for item in items:
            for name in ids_of(item):
                if name not in known:
                    raise pytest.UsageError(f"{item.nodeid}: {PAGE.name} makes no promise {name!r}")
                item.user_properties.append((PROPERTY, name))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.counts is not None:
            self.counts.write_text(json.dumps(count_cases(session.items)), encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.shown.update(str(value) for name, value in report.user_properties if name == PROPERTY)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.record is not None and not hasattr(session.config, "workerinput"):
            self.record.parent.mkdir(parents=True, exist_ok=True)
            before = set(json.loads(self.record.read_text())) if self.record.is_file() else set()
            self.record.write_text(json.dumps(sorted(before | self.shown)), encoding="utf-8")


def register(config: pytest.Config) -> None:
    """Add the plugin; two variables name the file of the shown promises and that of the counted cases."""
    record, counts = (os.environ.get(name) for name in ("PALYRA_PROMISES", "PALYRA_PROMISE_CASES"))
    config.pluginmanager.register(PromiseRecorder(Path(record) if record else None, Path(counts) if counts else None))


# ── what was shown ───────────────────────────────────────────────────────────


def find_unshown(promises: Iterable[Promise], shown: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield a line for each promise that did not run in a half which has a record and must show it."""
    for one in promises:
        for half in one.shown_in:
            if half in shown and one.id not in shown[half]:
                yield f"{one.id} was not shown {half_in_words(half)}: {one.says}"


def half_in_words(half: str) -> str:
    return "as root" if half == "root" else "as a plain user"


def read_records(folder: Path = RECORDS) -> dict[str, set[str]]:
    return {half: set(json.loads(path.read_text())) for half in HALVES if (path := folder / f"{half}.json").is_file()}


# ── the index ────────────────────────────────────────────────────────────────


def count_cases(items: Iterable[pytest.Item]) -> Cases:
    cases: dict[str, Counter[str]] = {}
    for item in items:
        for name in ids_of(item):
            cases.setdefault(name, Counter())[item.nodeid.partition("[")[0]] += 1
    return cases


def collect_cases() -> Cases:
    """Collect all tests in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "cases.json"
        argv = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider", "tests"]
        env = {**os.environ, "PALYRA_PROMISE_CASES": str(counts)}
        done = subprocess.run(argv, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stdout[-2000:] + done.stderr[-2000:])
        return {name: Counter(tests) for name, tests in json.loads(counts.read_text()).items()}


def make_index(cases: Cases) -> str:
    """Return docs/security/tests.md: promise by promise, the tests that show it and how many cases each has."""
    lines = [
        "<!-- Written by `python -m tests.promises --index` (make docs); edit the tests it is made from. -->",
        "",
        "# Which tests show which promise",
        "",
        "The promises stand in [promises.toml](promises.toml). A number counts a test's cases, as root collects them.",
        "A change that loses a test or a case changes this page.",
    ]
    for one in read_promises().values():
        tests = cases.get(one.id, Counter())
        lines += ["", f"## {one.id}", "", one.says, f"*{one.source}; shown in {', '.join(one.shown_in)}*", ""]
        lines += [f"- `{test}` {count}" for test, count in sorted(tests.items())] or ["- none"]
    return "\n".join(lines) + "\n"


def main(argv: list[str]) -> int:
    if argv == ["--index"]:
        INDEX.write_text(make_index(collect_cases()), encoding="utf-8")
        return 0
    promises, shown = read_promises(), read_records()
    if not shown:
        sys.stderr.write("palyra: no half of the tests has left a record: make test\n")
        return 1
    unshown = list(find_unshown(promises.values(), shown))
    for line in unshown:
        sys.stderr.write(f"palyra: {line}\n")
    ran = set().union(*shown.values())
    sys.stdout.write(f"{len(ran)} of {len(promises)} promises shown ({', '.join(shown)})\n")
    return 1 if unshown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
