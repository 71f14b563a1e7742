"""`palyra run --learn`: a watcher before the program, its lines taken out of stderr, and the smallest grant.

The sandbox is the one the call would have had; only what is started in it differs (inside/learner). Of the paths that
could not be had, those matter that the host has: the rest is a program looking around. What is advised is the least
that was asked for: the file itself, where links really end, or its folder where several were wanted. Nothing that looks
like somebody's secrets is advised at all.

Not here: watching (inside/learner), whether the call may run (policy: as ever), what people read (cli/learn).
"""

from __future__ import annotations

import json
import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palyra.canon import Json
from palyra.engine.inside import PYTHON, SYSTEM_PATH
from palyra.engine.output import Collector
from palyra.engine.ports import Ports
from palyra.engine.trip import Trip
from palyra.errors import Unenforceable
from palyra.model.call import Tier
from palyra.model.face import NetFace
from palyra.model.host import Guarantee
from palyra.model.job import Job
from palyra.model.net import EgressMode
from palyra.model.outcome import Connection, Status, StreamName
from palyra.model.sights import LookRequest
from palyra.sandbox.view import OWN_FOLDER
from palyra.values import dataclass

MARK = b"\x1epalyra-learn "
"""As inside/learner writes it, which is not imported: only a sandbox needs it."""
MAX_LINE_BYTES = 4000
"""The watcher writes none that is longer."""
MAX_PATHS = 2000
SHOWN = 200
FOLDER_FROM = 4
"""So many files wanted of one folder: the folder is advised."""
LEARNER = f"{OWN_FOLDER}/learner.py"
_SANDBOXS_OWN = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/run", "/home/agent")  # noqa: S108
_SECRET = re.compile(
    r"/(?:\.ssh|\.aws|\.gnupg|\.kube|\.docker|\.azure|\.config/gcloud|\.netrc|\.pgpass|\.npmrc|\.pypirc|\.env[^/]*|"
    r"\.git-credentials|\.bash_history|\.zsh_history|shadow-?|gshadow-?|sudoers(?:\.d)?|private|id_[a-z0-9]+|"
    r"\.config/(?:gh|hub|op|git/credentials|rclone|doctl|containers|google-chrome|chromium)|\.mozilla|\.thunderbird|"
    r"\.vault-token|\.terraform\.d|\.terraformrc|\.databrickscfg|\.boto|\.s3cfg|\.my\.cnf|\.password-store|keyrings|"
    r"\.cargo/credentials[^/]*|\.gem/credentials|\.m2/settings[^/]*|\.gradle/gradle\.properties|\.composer/auth\.json|"
    r"[^/]*\.(?:key|p12|pfx|jks|kdbx|keytab)|palyra/(?:state|vault))(?:/|$)"
)
_BROAD = re.compile(
    r"/root|/(?:home|Users)/[^/]+|.*/(?:\.config|\.local|\.local/(?:share|state)|\.cache|Library|Application Support)|"
    r"/var/(?:lib|log|spool|mail|backups)|/usr/local/etc|/etc/[^/]*\.d"
)
"""Folders with more in them than a program needs, somebody's secrets too: four harmless files asked for do not get the
whole home advised."""
_QUIET = re.compile(
    r"/etc/(?:ld\.so\.(?:preload|conf)|locale\.alias|host\.conf|gai\.conf|inputrc|python3[0-9.]*/sitecustomize\.py)"
)
"""What libraries ask for at every start; without it they go on."""


def learning_job(trip: Trip, job: Job, ports: Ports) -> Job:
    """The same sandbox, with our watcher as its first program. Raises Unenforceable where that cannot be."""
    assert trip.sights is not None
    if job.tier is not Tier.C or ports.host.bubblewrap is None:
        raise _cannot("--learn watches programs in a bubblewrap sandbox (tier C), which this call does not get.")
    request = LookRequest(workspace=job.workspace.path, cwd="", command=PYTHON, search_path=SYSTEM_PATH)
    python = ports.look.look(request).executable
    source = dict(ports.own_files).get(LEARNER)
    if not python.path or source is None:
        raise _cannot("--learn needs python3 in /usr/bin, which runs the watcher inside the sandbox.")
    own_places = tuple(filter(None, (job.program, job.program_file)))
    return replace(
        job,
        program=python.found_at or python.path,
        program_file=python.path if python.found_at else "",
        program_sha256=python.sha256,
        argv=(PYTHON, "-I", "-S", LEARNER, job.program, *job.argv),
        own_files=((LEARNER, source),),
        learning=True,
        read_roots=(*job.read_roots, *(place for place in own_places if not place.startswith("/usr/"))),
        face=job.face or (NetFace() if job.net.mode is EgressMode.STRICT else None),
    )


def _cannot(detail: str) -> Unenforceable:
    return Unenforceable(
        (Guarantee.FS_ISOLATED.value,), detail, "Leave out --learn; palyra doctor says what is missing."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    path: str
    want: str


class LearningCollector(Collector):
    """Takes the watcher's lines out of stderr, however they are cut into chunks."""

    def __init__(self, trip: Trip, ports: Ports) -> None:
        super().__init__(ports.secrets.known_values(trip.run.run_id), trip.request.on_output)
        self._look = ports.look
        self._held = b""
        self._wanted: dict[Wanted, None] = {}
        self._complete = True
        self._problem = ""

    def feed(self, stream: StreamName, chunk: bytes) -> None:
        if stream is StreamName.STDERR:
            chunk = self._split(self._held + chunk)
        super().feed(stream, chunk)

    def finish(self, status: Status) -> None:
        super().feed(StreamName.STDERR, self._held)
        self._held = b""
        super().finish(status)

    def _split(self, data: bytes) -> bytes:
        """What is the program's own; what may be the beginning of a line of ours is held back."""
        before, mark, rest = data.partition(MARK)
        while mark:
            line, end, after = rest.partition(b"\n")
            if not end and len(rest) <= MAX_LINE_BYTES:
                self._held = mark + rest
                return before
            if len(line) > MAX_LINE_BYTES:  # a program's own, which must not be held, and copied, for ever
                before, after = before + mark, rest
            else:
                self._take(line)
                self.own_bytes += len(mark) + len(line) + len(end)
            more, mark, rest = after.partition(MARK)
            before += more
        cut = next((size for size in range(len(MARK) - 1, 0, -1) if before.endswith(MARK[:size])), 0)
        self._held = before[len(before) - cut :]
        return before[: len(before) - cut]

    def _take(self, line: bytes) -> None:
        """A program can write such a line too: whatever is not exactly of our shape is dropped."""
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            return
        match record:
            case {"path": str(path), "want": "read" | "write" | "run" as want, **more} if not more:
                if len(self._wanted) < MAX_PATHS and path.startswith("/") and path.isprintable():
                    self._wanted[Wanted(path=path, want=want)] = None
            case {"more": True}:
                self._complete = False
            case {"problem": str(problem)} if not self._wanted:
                self._problem = problem[:200]

    def extra(self) -> dict[str, Json]:
        on_host = self._look.present([one.path for one in self._wanted])
        learned = suggest(tuple(self._wanted), on_host, self.connections)
        more: dict[str, Json] = {"complete": self._complete and not self._problem, "problem": self._problem or None}
        return {"learned": self.clean(learned | more)}


# ── the smallest grant ───────────────────────────────────────────────────────


def suggest(wanted: Sequence[Wanted], on_host: Mapping[str, str], connections: Sequence[Connection]) -> dict[str, Json]:
    """What was missing, and the settings that give just that. `on_host`: where a path that exists really ends.

    Judged by where it ends: a link in the workspace that a program made must not get a key file advised.
    """
    missing = [Wanted(path=on_host[one.path], want=one.want) for one in wanted if one.path in on_host]
    missing = [one for one in missing if not _is_own(one.path)]
    secret = sorted({one.path for one in missing if _SECRET.search(one.path)})
    writes = sorted({one.path for one in missing if one.want == "write"} - set(secret))
    reads = sorted({one.path for one in missing if one.want != "write"} - set(secret) - set(writes))
    roots, hosts = _roots(reads), _hosts(connections)
    return {
        "read": [*reads[:SHOWN]],
        "write": [*writes[:SHOWN]],
        "secret": [*secret[:SHOWN]],
        "hosts": [*hosts],
        "grant": {"read_roots": [*roots], "allowed_egress_hosts": [*hosts]},
    }


def _is_own(path: str) -> bool:
    return (
        path == "/"
        or _QUIET.fullmatch(path) is not None
        or any(path == own or path.startswith(f"{own}/") for own in _SANDBOXS_OWN)
    )


def _roots(paths: Sequence[str]) -> list[str]:
    """Files, or their folder where many were wanted; nothing that an outer one covers, and never a whole top folder."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_folder[posixpath.dirname(path)].append(path)
    chosen: list[str] = []
    for folder, files in sorted(by_folder.items()):
        whole = len(files) >= FOLDER_FROM and folder.count("/") > 1 and not _BROAD.fullmatch(folder)
        chosen += [folder] if whole else files
    return [path for path in chosen if not any(path.startswith(f"{other}/") for other in chosen)]


def _hosts(connections: Sequence[Connection]) -> list[str]:
    """Each with its port where that is not a web port; a name that was only looked up stands alone. For a name that
    leads to a private address, the address: the name is granted already."""
    found = {pattern for one in connections if one.verdict == "denied" for pattern in one.grants}
    return sorted(host for host in found if not any(host != other and other.startswith(f"{host}:") for other in found))
