"""An argument of 128 KiB reaches its program whole, by whatever way the program is started."""

from __future__ import annotations

import hashlib

import pytest

from palyra import Palyra
from palyra.api import grant
from palyra.errors import Reason


@pytest.mark.parametrize("tier", ["c", "b"])
@pytest.mark.parametrize("warm", [0, 2])
def test_an_argument_of_128_kib_arrives_whole(home, workspace, tier, warm):
    home.mkdir(mode=0o700)
    (home / "palyra.toml").write_text(f"[tool_call.process_runner]\nwarm_sandboxes = {warm}\n")
    texts = ["é" * 65535 + "x", "y" * 131071, "z" * 100_000]
    with Palyra.open(str(home)) as palyra:
        run = palyra.run("agent:probe", workspace, grant=grant(tier=tier, interpreters=True))
        for _ in range(2):
            line = 'for one; do printf %s "$one" | sha256sum; done'
            outcome = run.call("palyra.process.run", {"command": "bash", "args": ["-c", line, "bash", *texts]})
            if outcome.reason is Reason.UNENFORCEABLE:
                pytest.skip(f"this tier is not to be had here: {outcome.message}")
            assert outcome.success, (outcome.message, outcome.output)
            digests = [hashlib.sha256(text.encode()).hexdigest() for text in texts]
            assert [line.split()[0] for line in outcome.output["stdout"].splitlines()] == digests
