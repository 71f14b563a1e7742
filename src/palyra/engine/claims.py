"""What a call claims of its run's workspace: the places it reads and those it writes. Two calls of a run go on together
unless one writes where the other reads or writes.

The tool's class is where it begins, the call's facts refine it: a program that is known only to read claims the paths
it was given; whatever can run code, reach a network or outlive its call claims the whole workspace. Tools that touch no
files claim nothing and wait for nobody. Not here: waiting itself (engine/turns).
"""

from __future__ import annotations

from palyra.engine.trip import Trip
from palyra.guard.readers import only_reads
from palyra.model.job import Facts
from palyra.model.sights import Sights
from palyra.model.tool import Parallelism, ToolKind
from palyra.values import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    reads: tuple[str, ...] = ()
    """Absolute paths; everything below them too."""
    writes: tuple[str, ...] = ()

    def conflicts(self, other: Claim) -> bool:
        return _meet(self.writes, other.writes) or _meet(self.writes, other.reads) or _meet(self.reads, other.writes)


NOTHING = Claim()
WHOLE = Claim(writes=("/",))
READING = Claim(reads=("/",))


def claim_of(trip: Trip) -> Claim:
    """Remembered beside the facts and the sights it follows from."""
    shape = trip.shape
    if shape is None:
        return _work_out(trip)
    if shape.claim is None:
        shape.claim = _work_out(trip)
    return shape.claim


def _work_out(trip: Trip) -> Claim:
    assert trip.tool is not None
    spec = trip.tool.spec
    if spec.kind is ToolKind.PROCESS and trip.facts is not None and trip.sights is not None:
        return _of_process(trip.facts, trip.sights)
    if trip.fetch is not None:
        return WHOLE if trip.fetch.method == "POST" else NOTHING
    match spec.parallelism:
        case Parallelism.EXCLUSIVE:
            return WHOLE
        case Parallelism.PATH_SCOPED:
            return Claim(writes=_paths(trip.sights)) if trip.sights is not None else WHOLE
        case _ if spec.kind is ToolKind.INSIDE:
            return Claim(reads=_paths(trip.sights)) if trip.sights is not None else READING
        case _:
            return NOTHING


def _of_process(facts: Facts, sights: Sights) -> Claim:
    runs_code = facts.runs_code or facts.interpreter or facts.inline_code or facts.agent_writable
    if runs_code or facts.network or facts.background or facts.outside_workspace:
        return WHOLE
    if not (only_reads(facts.program) and only_reads(facts.effective_program)):
        return WHOLE
    return Claim(reads=_paths(sights))


def _paths(sights: Sights) -> tuple[str, ...]:
    """What the arguments name; the folder it works in where they name nothing."""
    return tuple(dict.fromkeys(path.resolved for path in sights.paths)) or (sights.cwd.resolved,)


def _meet(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    return any(_within(a, b) or _within(b, a) for a in one for b in other)


def _within(path: str, folder: str) -> bool:
    return path == folder or folder == "/" or path.startswith(f"{folder}/")
