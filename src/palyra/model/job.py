"""What a call means: `Facts` are what policy decides over, `Job` is the native program that is to be run.

Both are made from the call and what the disk said, before anybody chose a sandbox.

Not here: making them (guard), the sandbox that is chosen for a job (sandbox, plan).
"""

from __future__ import annotations

from palyra.model.call import Tier
from palyra.model.face import NetFace, Trust
from palyra.model.host import Guarantee
from palyra.model.limits import Limits
from palyra.model.net import NamedHost, NetGrant
from palyra.model.sights import WorkspaceSight
from palyra.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What Cedar sees of a call: flat scalars, computed here; raw arguments never enter (spec/policy.md)."""

    tier: str = ""
    """A, B, C or empty for a built-in tool."""
    egress: str = ""
    program: str = ""
    """Normalised basename of the program that is started."""
    effective_program: str = ""
    """What a wrapper really runs; equals `program` otherwise."""
    programs: str = ""
    """Every program that would be started, by name and place, as JSON; with the digest of the arguments where these
    alone make a program run code. Longer than a policy may see: the digest of all that."""
    interpreter: bool = False
    runs_code: bool = False
    """Can run code that its arguments name: a wrapper to an interpreter, an -exec, a build tool."""
    inline_code: bool = False
    listed: bool = False
    """All it would start is on the executable allowlist of the configuration or of the operator's flags."""
    own_list: bool = False
    """The operator wrote `allowed_executables`: interpreters have to be on it like any other program."""
    found: bool = False
    agent_writable: bool = False
    outside_workspace: bool = False
    writes_obeyed: bool = False
    """A file tool would write what other programs obey, or a name that hides letters."""
    background: bool = False
    """The program would outlive its call."""
    network: bool = False
    """It could reach some host: egress is not strict, or hosts are granted."""
    egress_raw: bool = False
    """A host is granted raw: every byte may pass there, of any protocol."""
    hosts_named: int = 0
    hosts_denied: int = 0
    """Named hosts that the network grant does not cover."""
    granted: bool = False
    """The operator's flags name this program (`--allow`)."""
    granted_interpreters: bool = False
    granted_egress: bool = False

    details: tuple[tuple[str, str], ...] = ()
    """(reason code, sentence) for refusals: which argument, which host, which program. Never sent to Cedar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A native program to be run, before anyone chose a sandbox for it."""

    program: str
    """Absolute path to start, as it was found: a link is started as the link."""
    program_sha256: str
    """Of the file the program really is."""
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cwd: str
    workspace: WorkspaceSight
    read_roots: tuple[str, ...]
    """Shown read-only."""
    limits: Limits
    net: NetGrant
    tier: Tier
    needs: frozenset[Guarantee]
    wants: frozenset[Guarantee]
    """Taken where the host has them; what is absent is reported as degraded."""
    stdin: bytes = b""
    stdin_streamed: bool = False
    hosts_named: tuple[NamedHost, ...] = ()
    face: NetFace | None = None
    """What would be listened on inside for the granted hosts of `net`."""
    trust: Trust | None = None
    """For hosts whose TLS is ended outside: what is trusted inside."""
    program_file: str = ""
    """Where `program` really is, when it is a link: both must be visible inside."""
    own_files: tuple[tuple[str, bytes], ...] = ()
    """(path inside, content) of a program of Palyra's own, which the backend puts there."""
    workspace_writable: bool = True
    granted_roots: tuple[str, ...] = ()
    """Those of `read_roots` whose links were followed when they were granted: one that is there now came since."""
    allow_root: bool = False
    """In tier B a root engine's program may keep uid 0 in a workspace of root's: an operator's setting or flag."""
    own_program: bool = False
    """It runs programs of Palyra's own, or a toolchain of this host: no image's program of that name will do."""
    background: bool = False
    """It outlives its call."""
    learning: bool = False
    """A program of ours stands before a foreign one (`palyra run --learn`): the filter is the foreign one's."""
