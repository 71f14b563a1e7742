"""Tiny package registries on loopback: PyPI's simple index and npm's, each with one package, `palyra-sample`.

Made with the standard library alone: a wheel is a zip, a package of npm a gzipped tar, and the indexes are one page
each. Not here: serving them (tests/servers).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
import zipfile
from pathlib import Path

NAME, VERSION = "palyra-sample", "1.2.3"
_MODULE = NAME.replace("-", "_")
WHEEL = f"{_MODULE}-{VERSION}-py3-none-any.whl"
TARBALL = f"{NAME}-{VERSION}.tgz"


def make_pypi(folder: Path) -> None:
    """folder/simple/palyra-sample/: the page pip asks for, and the wheel beside it."""
    place = folder / "simple" / NAME
    place.mkdir(parents=True)
    info = f"{_MODULE}-{VERSION}.dist-info"
    files = {
        f"{_MODULE}.py": b"ANSWER = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items())
    with zipfile.ZipFile(place / WHEEL, "w") as wheel:
        for name, data in files.items():
            wheel.writestr(name, data)
        wheel.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    (place / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{WHEEL}">{WHEEL}</a></body></html>')


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def make_npm(folder: Path, url: str) -> None:
    """folder/palyra-sample/index.html is what npm asks for: the package's document, with its tarball below `url`."""
    package = {"name": NAME, "version": VERSION, "main": "index.js"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in (("package.json", json.dumps(package).encode()), ("index.js", b"module.exports = 42\n")):
            member = tarfile.TarInfo(f"package/{name}")
            member.size, member.mode = len(data), 0o644
            tar.addfile(member, io.BytesIO(data))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / TARBALL).write_bytes(buffer.getvalue())
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(buffer.getvalue()).digest()).decode()
    dist = {"tarball": f"{url}/{TARBALL}", "integrity": integrity}
    document = {
        "name": NAME,
        "dist-tags": {"latest": VERSION},
        "versions": {VERSION: {**package, "dist": dist}},
    }
    (folder / NAME).write_text(json.dumps(document))
