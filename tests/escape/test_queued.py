"""Calls of one run sent together: the second is judged by the disk that the first one leaves, in both tiers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

from palyra import AsyncPalyra
from palyra.api import Outcome, grant
from palyra.errors import Reason
from tests.promises import promise

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")]


@promise("calls.queued-reassessment")
@pytest.mark.parametrize("tier", ["c", "b"])
@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_git_queued_behind_a_copied_repository_runs_no_filter_of_it(
    home: Path, workspace: Path, tier: str, warm: bool
) -> None:
    made = workspace / "g"
    subprocess.run(["git", "init", "-q", str(made)], check=True)
    config = ("git", "-C", str(made), "config", "filter.x.clean", f"touch {workspace}/ran; cat")
    subprocess.run(config, check=True)
    (made / ".git").rename(made / "repository")  # under no name that is looked at
    (workspace / ".gitattributes").write_text("* filter=x\n")
    (workspace / "file").write_text("x")

    async def story() -> tuple[Outcome, Outcome]:
        async with AsyncPalyra.open(str(home)) as palyra:
            run = palyra.run("agent:probe", workspace, grant=grant(tier=tier, root_tier_b=tier == "b"))

            def call(command: str, *args: str) -> asyncio.Future[Outcome]:
                given = {"command": command, "args": list(args)}
                return asyncio.ensure_future(run.call("palyra.process.run", given))

            if warm:  # the very call was made before, when there was nothing to be seen
                await call("git", "add", "file")
            copy = call("find", "g/repository", "-maxdepth", "0", "-exec", "cp", "-r", "{}", ".git", ";")
            added = call("git", "add", "file")
            return await copy, await added

    copied, added = asyncio.run(story())
    if copied.reason is Reason.UNENFORCEABLE:
        pytest.skip(f"this tier is not to be had here: {copied.message}")
    assert copied.success, copied.output
    assert (workspace / ".git" / "config").exists()
    assert added.reason is Reason.INTERPRETER_DENIED, added.message
    assert not (workspace / "ran").exists()
