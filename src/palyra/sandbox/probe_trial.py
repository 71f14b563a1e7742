"""What every trial of a sandbox shares: a place to try it in, with a secret beside it, a job for it, a look at a file.

Touches: a throwaway folder. Not here: what is started and what it must report (probe_bwrap, probe_foreign,
probe_container).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace

from palyra.model.call import Tier
from palyra.model.host import HostFacts
from palyra.model.job import Job
from palyra.model.limits import Limits
from palyra.model.net import NO_NETWORK
from palyra.model.plan import ProcessPlan
from palyra.model.sights import WorkspaceSight
from palyra.sandbox.bwrap import BubblewrapBackend


@contextlib.contextmanager
def trial_place() -> Iterator[tuple[str, str]]:
    """A workspace, and a file beside it that must not be seen from inside."""
    import shutil  # too heavy for every start: what was found is remembered
    import tempfile

    folder = os.path.realpath(tempfile.mkdtemp(prefix="palyra-probe-"))
    try:
        workspace, secret = os.path.join(folder, "workspace"), os.path.join(folder, "secret")
        os.mkdir(workspace, 0o700)
        with open(secret, "w", encoding="ascii") as file:
            file.write("secret\n")
        yield workspace, secret
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def trial_plan(workspace: str, host: HostFacts) -> ProcessPlan:
    """Of bubblewrap."""
    job = trial_job(workspace, host, program="/usr/bin/true")
    return BubblewrapBackend().plan(job, replace(host, home="", state_home=""))


def read_file(path: str) -> str:
    """Empty where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def trial_job(
    workspace: str,
    host: HostFacts,
    *,
    program: str,
    env: tuple[tuple[str, str], ...] = (),
    limits: Limits | None = None,
) -> Job:
    return Job(
        program=program,
        program_sha256="",
        argv=(os.path.basename(program),),
        env=env,
        cwd=workspace,
        workspace=WorkspaceSight(path=workspace, owner_uid=host.uid, owner_gid=host.gid),
        read_roots=(),
        limits=limits or Limits(),
        net=NO_NETWORK,
        tier=Tier.C,
        needs=frozenset(),
        wants=frozenset(),
    )
