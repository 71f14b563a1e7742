#!/usr/bin/env python3
"""`make test-api`: schemathesis against a real daemon, over the whole OpenAPI document it serves.

    api.py SCHEMATHESIS [--examples N]

Once as an operator, once as an agent: no 500, no answer that is not documented, no body that is not of its schema. The
daemon has a home of its own below a temporary folder and listens on loopback; streams that do not end are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PALYRA = (sys.executable, "-m", "palyra")
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method"
)
ENDLESS = ("stream_events", "feed_call")
"""Operations whose answer, or body, has no end."""
LAST = "revoke_token"
"""Tried at the very end: it takes back the credential it is tried with."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("schemathesis", type=os.path.abspath)
    parser.add_argument("--examples", type=int, default=25)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="palyra-api-") as folder:
        home = Path(folder) / "home"
        environ = {**os.environ, "PALYRA_HOME": str(home)}
        callers = {
            "agent": ("agent:tester", "--workspace", folder),
            "operator": ("user:tester", "--operator"),
        }
        log = (Path(folder) / "log").open("w+b")
        daemon = subprocess.Popen(
            [*PALYRA, "--json", "serve", "--port", "0"], env=environ, stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert daemon.stdout is not None
            url = json.loads(daemon.stdout.readline())["listening"][0]
            wrong = [name for name, words in callers.items() if not _holds(asked, url, name, _token(environ, *words))]
            wrong += [] if _holds(asked, url, LAST, _token(environ, *callers["operator"])) else [LAST]
        finally:
            daemon.terminate()
            code = daemon.wait(60)
        log.seek(0)
        broke = [line.decode("utf-8", "replace") for line in log if not line.startswith(b"{")]
    sys.stderr.writelines(broke[:200])
    return 1 if wrong or broke or code else 0


def _token(environ: dict[str, str], principal: str, *words: str) -> str:
    """Made when it is needed: an operator's requests before may have revoked any."""
    argv = [*PALYRA, "token", "create", "--principal", principal, *words]
    return subprocess.run(argv, env=environ, capture_output=True, check=True).stdout.decode().strip()


def _holds(asked: argparse.Namespace, url: str, name: str, token: str) -> bool:
    print(f"palyra: schemathesis as {name}", flush=True)
    words = [
        *(asked.schemathesis, "run", f"{url}/openapi.json"),
        *("--header", f"Authorization: Bearer {token}"),
        *("--checks", CHECKS),
        *("--phases", "examples,coverage,fuzzing"),
        *("--max-examples", str(asked.examples)),
        *("--seed", "1"),
        *("--request-timeout", "60"),
        *("--continue-on-failure", "--no-color", "--suppress-health-check", "all", "--warnings", "off"),
    ]
    if name == LAST:
        words += ["--include-operation-id", LAST]
    else:
        words += [word for one in (*ENDLESS, LAST) for word in ("--exclude-operation-id", one)]
    return subprocess.run(words, cwd=tempfile.gettempdir()).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
