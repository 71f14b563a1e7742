"""What operators do with policies, for every door: use a version, go back, compare, replay, explain.

Rules: text is checked whole before anything changes, in a child process first; what is not good raises PolicyError and
changes nothing. Answers are plain JSON, so that each door shows the same. Not here: how a door shows them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from palyra.canon import Json
from palyra.engine.replay import flip_json
from palyra.journal.lookup import Lookup
from palyra.policy.bundle import EXAMPLES_FILE, PolicyBundle
from palyra.policy.compare import Flip, compare_requests, compare_texts, counts_of
from palyra.policy.decide import decide
from palyra.policy.examples import parse_examples
from palyra.policy.explain import Change, Explanation, explain
from palyra.policy.request import Request
from palyra.policy.scan import PolicyError
from palyra.policy.store import POSTURES, load_posture, read_posture, try_in_child, without_exceptions
from palyra.values import dataclass
from palyra.wiring.history import History

if TYPE_CHECKING:
    from palyra.wiring.embedded import Installation


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """What is in use after an act."""

    version: str | None
    """None for the policies folder itself."""
    bundle: PolicyBundle
    changed: bool


def checked(installation: Installation, files: Mapping[str, str]) -> PolicyBundle:
    """Load these policies and the home's exceptions beside the posture, in a child first. Raise PolicyError."""
    posture = installation.config.posture
    local = {**without_exceptions(files), **installation.policies.exceptions()}
    if local:
        try_in_child(posture, local)
    return load_posture(posture, local)


async def use_policies(installation: Installation, files: Mapping[str, str], *, by: str) -> InUse:
    bundle = await asyncio.to_thread(checked, installation, files)  # calls go on meanwhile
    version, receipt = await installation.versions.install(
        without_exceptions(files), policy_sha256=bundle.digest, by=by
    )
    installation.policies.current()
    return InUse(version=version, bundle=bundle, changed=receipt is not None)


async def roll_back_policies(installation: Installation, *, by: str) -> InUse:
    """Raises PolicyError also when there is nothing to go back to."""
    from palyra.policy.load import read_folder

    now = installation.versions.use()
    target = installation.versions.before(now)
    if target is None:
        raise PolicyError("There are no policies to go back to.", "palyra policy versions lists every use.")
    version = target.version
    files = read_folder(installation.home.policies) if version is None else installation.versions.files(version)
    bundle = await asyncio.to_thread(checked, installation, files)  # calls go on meanwhile
    await installation.versions.roll_back(now, policy_sha256=bundle.digest, by=by)
    installation.policies.current()
    return InUse(version=version, bundle=bundle, changed=True)


def uses_json(installation: Installation) -> list[dict[str, Json]]:
    """Every use, the newest first."""
    current = installation.versions.use().number
    return [
        {"number": number, "version": version, "at_unix_ms": at, "by": by, "in_use": number == current}
        for number, version, at, by in installation.versions.uses()
    ]


def posture_bundle(installation: Installation, posture: str) -> PolicyBundle:
    """Another posture with the operator's policies of now beside it."""
    return _loaded(posture, tuple(sorted(installation.policies.local().items())))


@lru_cache(maxsize=2 * len(POSTURES))
def _loaded(posture: str, local: tuple[tuple[str, str], ...]) -> PolicyBundle:
    """Bundles are values: every explanation compares with the same two others."""
    return load_posture(posture, dict(local))


# ── what others would decide ──


def history_of(installation: Installation, *, since_unix_ms: int = 0) -> History:
    writer = installation.writer
    lookup = Lookup(writer.rows, writer.home.verifier)
    return History(rows=writer.rows, lookup=lookup, since_unix_ms=since_unix_ms)


def replay_json(installation: Installation, bundle: PolicyBundle, *, since_unix_ms: int = 0) -> dict[str, Json]:
    """Every journaled call whose outcome this bundle would flip."""
    history = history_of(installation, since_unix_ms=since_unix_ms)
    items = [
        {"call_id": stored.call_id, "tool": stored.tool, "principal": stored.principal,
         "at_unix_ms": stored.opened_unix_ms, **flip_json(replayed)}
        for stored, replayed in history.flips(bundle)
    ]  # fmt: skip
    return {
        "policy_sha256": bundle.digest,
        "calls": history.calls,
        "without_request": history.without_request,
        "flips": len(items),
        "damaged": history.damaged,
        "items": items,
        "next": None,
    }


def diff_json(installation: Installation, bundle: PolicyBundle, *, since_unix_ms: int = 0) -> dict[str, Json]:
    """What this bundle newly allows, asks about or denies, over the examples and the journal's requests."""
    old = installation.policies.current()
    texts = compare_texts(old, bundle)
    examples, by_example = compare_requests(old, bundle, _example_requests(installation, old, bundle))
    history = history_of(installation, since_unix_ms=since_unix_ms)
    calls, by_call = compare_requests(old, bundle, ((s.call_id, r.request) for s, r in history))
    return {
        "from": old.digest,
        "to": bundle.digest,
        "same": not by_example and not by_call,
        "policies": {"added": texts.added, "removed": texts.removed, "changed": texts.changed},
        "examples": _side(examples, by_example),
        "journal": _side(calls, by_call) | {"damaged": history.damaged},
    }


def _side(count: int, flips: tuple[Flip, ...]) -> dict[str, Json]:
    return {"requests": count, **counts_of(flips), "items": [flip.as_json() for flip in flips]}


def _example_requests(
    installation: Installation, old: PolicyBundle, new: PolicyBundle
) -> Iterator[tuple[str, Request]]:
    """The examples of the posture, of the policies in use and of the new ones."""
    texts = (read_posture(installation.config.posture)[EXAMPLES_FILE], old.examples, new.examples)
    for text in dict.fromkeys(texts):
        for example in parse_examples(EXAMPLES_FILE, text):
            yield example.name, example.request


# ── why ──


def explain_request(
    installation: Installation,
    request: Request,
    details: tuple[tuple[str, str], ...],
    tried: tuple[Change, ...] | None = None,
    *,
    call_id: str = "",
    then: frozenset[str] | None = None,
) -> Explanation:
    """By the policies of now; the other postures are compared with the operator's own policies beside them."""
    bundle = installation.policies.current()
    others: dict[str, PolicyBundle] = {}
    for name in POSTURES:
        with suppress(PolicyError):  # where the operator's policies do not fit a posture, it is no advice
            if name != installation.config.posture:
                others[name] = posture_bundle(installation, name)
    decision = decide(bundle, request, details=details)
    return explain(bundle, request, decision, postures=others, tried=tried, details=details, call_id=call_id, then=then)
