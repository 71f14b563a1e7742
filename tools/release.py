"""A release: wheel and sdist that build to the same bytes twice, manuals, a bill of materials, provenance, checksums.

    python tools/release.py [--output dist] [--key KEY.pem]

1 the tree is exported as it is committed (or, without git, as it lies), into two folders · 2 built in each, and
compared · 3 man pages and completions packed · 4 the bill of materials (CycloneDX) is made from the hashed lock, not
from what happens to be installed · 5 provenance: an in-toto statement with a SLSA predicate over every file, signed
as a DSSE envelope where a key is given · 6 SHA256SUMS over all of it. Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import manuals
from palyra.canon import canonical
from palyra.signing import dsse_sign, parse_pem

PROJECT = Path(__file__).parents[1]
EPOCH = 1_577_836_800
"""All times inside the archives: 2020-01-01. What was built when is nobody's business and would differ."""
PIN = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+)(?: ; [^\\]+?)?(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)
PAYLOAD_TYPE = "application/vnd.in-toto+json"


def export(folder: Path) -> str:
    """The committed tree and its commit; without a repository what lies here, and an empty string."""
    folder.mkdir(parents=True)
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True)
    if asked.returncode == 0:
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=PROJECT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", "--directory", str(folder)], input=packed, check=True)
        return asked.stdout.strip()
    skipped = shutil.ignore_patterns(".git", ".venv", ".make", "dist", "site", "__pycache__", ".*_cache")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True, ignore=skipped)
    return ""


def build(source: Path, output: Path) -> None:
    environ = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist"]
    subprocess.run([*words, "--directory", str(output)], cwd=source, env=environ, check=True, capture_output=True)


def build_twice(output: Path) -> str:
    """The same bytes from two folders, or an error that names the file; returns the commit."""
    with tempfile.TemporaryDirectory(prefix="palyra-release-") as place:
        folders = [Path(place, name) for name in ("one", "a-longer-name-for-the-other")]
        commits = [export(folder / "source") for folder in folders]
        for folder in folders:
            build(folder / "source", folder / "dist")
        first, second = ({file.name: file.read_bytes() for file in (folder / "dist").iterdir()} for folder in folders)
        differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        if differing:
            raise SystemExit(f"not reproducible: {', '.join(differing)}")
        for name, data in first.items():
            (output / name).write_bytes(data)
    return commits[0]


def pack_manuals(output: Path, version: str) -> None:
    with tempfile.TemporaryDirectory(prefix="palyra-manuals-") as place:
        files = manuals.write(Path(place))
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for file in sorted(files):
                info = tarfile.TarInfo(str(file.relative_to(place)))
                data = file.read_bytes()
                info.size, info.mtime, info.mode = len(data), EPOCH, 0o644
                archive.addfile(info, io.BytesIO(data))
    target = output / f"palyra-{version}-manuals.tar.gz"
    target.write_bytes(gzip.compress(packed.getvalue(), mtime=EPOCH))


def bill_of_materials(project: dict[str, Any], lock: str) -> dict[str, Any]:
    components = []
    for found in PIN.finditer(re.sub(r" \\\n +", " ", lock)):
        name, version = found["name"], found["version"]
        purl = f"pkg:pypi/{name}@{version}"
        hashes = re.findall(r"sha256:([0-9a-f]{64})", found["hashes"])
        components.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "purl": purl,
                "properties": [{"name": "palyra:locked-sha256", "value": one} for one in sorted(hashes)],
            }
        )
    root = {"type": "application", "bom-ref": "palyra", "name": "palyra", "version": project["version"]}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": root | {"purl": f"pkg:pypi/palyra@{project['version']}"}},
        "components": sorted(components, key=lambda one: str(one["purl"])),
        "dependencies": [{"ref": "palyra", "dependsOn": sorted(str(one["bom-ref"]) for one in components)}],
    }


def provenance(subjects: dict[str, str], commit: str, lock_sha256: str) -> dict[str, Any]:
    source = {"uri": "git+palyra", "digest": {"gitCommit": commit}} if commit else {"uri": "palyra"}
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(subjects.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:palyra:release:v1",
                "externalParameters": {"source": source},
                "internalParameters": {"SOURCE_DATE_EPOCH": str(EPOCH), "python": sys.version.split()[0]},
                "resolvedDependencies": [
                    source,
                    {"uri": "requirements/dev.txt", "digest": {"sha256": lock_sha256}},
                ],
            },
            "runDetails": {"builder": {"id": "urn:palyra:tools/release.py"}},
        },
    }


def sha256_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def release(output: Path, key_file: Path | None) -> list[str]:
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    commit = build_twice(output)  # 1, 2
    pack_manuals(output, project["version"])  # 3
    lock = (PROJECT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    bill = bill_of_materials(project, lock)  # 4
    (output / f"palyra-{project['version']}.cdx.json").write_bytes(canonical(bill) + b"\n")
    subjects = {file.name: sha256_of(file) for file in output.iterdir()}
    statement = canonical(provenance(subjects, commit, sha256_of(PROJECT / "requirements" / "dev.txt")))  # 5
    if key_file is not None:
        envelope = dsse_sign(parse_pem(key_file.read_text(encoding="ascii")), PAYLOAD_TYPE, statement)
        statement = json.dumps(envelope, sort_keys=True).encode()
    suffix = "intoto.jsonl" if key_file is not None else "provenance.json"
    (output / f"palyra-{project['version']}.{suffix}").write_bytes(statement + b"\n")
    names = sorted(file.name for file in output.iterdir())
    sums = "".join(f"{sha256_of(output / name)}  {name}\n" for name in names)  # 6
    (output / "SHA256SUMS").write_text(sums, encoding="ascii")
    return [*names, "SHA256SUMS"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--output", type=Path, default=PROJECT / "dist")
    parser.add_argument("--key", type=Path, help="an Ed25519 key in PEM; without one, provenance is not signed")
    given = parser.parse_args()
    for name in release(given.output, given.key):
        print(given.output / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
