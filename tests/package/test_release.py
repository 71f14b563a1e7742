"""The release as strangers get it: the same bytes twice, and an install with nothing but what was asked for.

Run by `make test-package`, which sets PALYRA_PACKAGE: environments are made and filled from the hashed locks.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import release
from palyra.signing import SigningKey, dsse_verify, write_pem

PROJECT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif("PALYRA_PACKAGE" not in os.environ, reason="make test-package runs these")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Also the test that it builds twice to the same bytes: `release` ends where it does not."""
    output = tmp_path_factory.mktemp("dist")
    key = tmp_path_factory.mktemp("key") / "key.pem"
    key.write_text(write_pem(SigningKey.from_seed(bytes(32))))
    release.release(output, key)
    return output


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def run(*words: str | Path, home: Path | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": "/usr/bin:/bin", "HOME": str(home or "/nonexistent"), "LANG": "C.UTF-8"}
    pip = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "REQUESTS_"))}
    environ = kept | pip | ({"PALYRA_HOME": str(home / "palyra")} if home else {})
    return subprocess.run([*map(str, words)], env=environ, cwd=cwd, capture_output=True, text=True, timeout=600)


def make_environment(place: Path, package: Path, lock: str = "runtime") -> Path:
    """Nothing but the lock and the package: no tools of ours, no code from this folder."""
    assert run("/usr/bin/python3", "-m", "venv", place).returncode == 0
    pip = (place / "bin" / "python", "-m", "pip", "install", "-qq")
    locked = run(*pip, "--require-hashes", "--requirement", PROJECT / "requirements" / f"{lock}.txt")
    assert locked.returncode == 0, locked.stderr
    installed = run(*pip, "--no-deps", "--no-index", "--no-build-isolation", package)
    assert installed.returncode == 0, installed.stderr
    return place / "bin"


@pytest.fixture(scope="session")
def plain(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_environment(tmp_path_factory.mktemp("plain") / "venv", only(built, "*.whl"))


def test_the_wheel_runs_a_call_in_a_clean_environment(plain: Path, tmp_path: Path, workspace: Path) -> None:
    assert run(plain / "palyra", "--version").stdout.startswith("palyra ")
    done = run(plain / "palyra", "run", "--", "echo", "hello", home=tmp_path, cwd=workspace)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    assert run(plain / "palyra", "journal", "verify", home=tmp_path, cwd=workspace).returncode == 0
    assert run(plain / "palyra", "demo", home=tmp_path, cwd=workspace).returncode == 0


def test_the_install_command_of_the_readme_works_in_a_checkout(tmp_path: Path, workspace: Path) -> None:
    assert "`pip install .`" in (PROJECT / "README.md").read_text(encoding="utf-8")
    release.export(tmp_path / "checkout")
    assert run("/usr/bin/python3", "-m", "venv", tmp_path / "venv").returncode == 0
    installed = run(tmp_path / "venv" / "bin" / "pip", "install", ".", cwd=tmp_path / "checkout")
    assert installed.returncode == 0, installed.stderr
    done = run(tmp_path / "venv" / "bin" / "palyra", "run", "--", "echo", "hello", home=tmp_path, cwd=workspace)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


def test_only_what_was_asked_for_is_installed(plain: Path) -> None:
    script = "import importlib.util as u; print([n for n in %r if u.find_spec(n)])"
    extras = ("starlette", "uvicorn", "pydantic", "jinja2", "mcp", "cyclonedx", "pytest", "hypothesis", "keyring")
    assert run(plain / "python", "-c", script % (extras,)).stdout == "[]\n"


@pytest.mark.parametrize(("words", "extra"), [(("serve",), "daemon"), (("mcp",), "mcp")])
def test_a_command_whose_extra_is_missing_names_it(
    plain: Path, tmp_path: Path, workspace: Path, words: tuple[str, ...], extra: str
) -> None:
    done = run(plain / "palyra", *words, home=tmp_path, cwd=workspace)
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr


def test_the_sdist_builds_the_very_wheel(built: Path, tmp_path: Path) -> None:
    packed = only(built, "palyra-*[0-9].tar.gz")
    subprocess.run(["tar", "--extract", "--gzip", "--file", packed, "--directory", tmp_path], check=True)
    (source,) = tmp_path.iterdir()
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(release.EPOCH)}
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "out")]
    subprocess.run(words, cwd=source, env=environ, check=True, capture_output=True)
    assert only(tmp_path / "out", "*.whl").read_bytes() == only(built, "*.whl").read_bytes()


def test_the_wheel_holds_the_package_and_its_data_and_no_tests(built: Path) -> None:
    names = zipfile.ZipFile(only(built, "*.whl")).namelist()
    assert {name.partition("/")[0] for name in names} == {"palyra", names[-1].partition("/")[0]}
    for needed in (
        "py.typed",
        "policy/bundles/standard/guards.cedar",
        "inside/learner.py",
        "sandbox/profiles/base.sbpl",
    ):
        assert f"palyra/{needed}" in names
    assert [name for name in names if name.endswith("dist-info/licenses/LICENSE")]
    assert [name for name in names if "test_" in name or name.endswith(".pyc")] == []


def test_provenance_and_checksums_name_every_file(built: Path) -> None:
    sums: dict[str, str] = {
        line.split()[1]: line.split()[0] for line in (built / "SHA256SUMS").read_text().splitlines()
    }
    files = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in built.iterdir()}
    assert sums == {name: digest for name, digest in files.items() if name != "SHA256SUMS"}
    envelope = json.loads(only(built, "*.intoto.jsonl").read_text())
    kind, payload = dsse_verify(envelope, SigningKey.from_seed(bytes(32)).public)
    subjects = {one["name"]: one["digest"]["sha256"] for one in json.loads(payload)["subject"]}
    assert kind == "application/vnd.in-toto+json"
    assert subjects == {name: digest for name, digest in sums.items() if not name.endswith(".intoto.jsonl")}


def test_the_bill_of_materials_is_the_lock(built: Path) -> None:
    bill = json.loads(only(built, "*.cdx.json").read_text())
    pins = {found["name"] for found in release.PIN.finditer(
        (PROJECT / "requirements" / "runtime.txt").read_text().replace(" \\\n   ", "")
    )}  # fmt: skip
    assert {one["name"] for one in bill["components"]} == pins
    assert "cedarpy" in pins
    assert all(one["properties"] for one in bill["components"])


def test_manuals_and_completions_are_packed(built: Path) -> None:
    with tarfile.open(only(built, "*-manuals.tar.gz")) as archive:
        names = archive.getnames()
    assert {"man/man1/palyra.1", "man/man1/palyra-run.1", "completions/_palyra"} <= set(names)
