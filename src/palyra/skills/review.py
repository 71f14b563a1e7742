"""The audit of a skill: a list of checks over its manifest, what its modules declare, and what the host allows.

Rules: every check answers, with pass, warn or fail, so that a report says what was looked at and not only what was
found; nothing here compiles, reads or runs anything: the sights of each module are handed in. A fail keeps the skill in
quarantine; a warning is for the person who enables it.

Not here: what each module is checked for (review_modules), signatures and digests (bundle, whose refusals become
checks), reports (skills/store/reports).
"""

from __future__ import annotations

from collections.abc import Iterator

from palyra.canon import Json
from palyra.skills.capabilities import OWN_SCOPE, Capabilities
from palyra.skills.findings import FAIL, MAX_SHOWN, PASS, WARN, Check, make_check
from palyra.skills.manifest import SkillManifest
from palyra.skills.review_modules import review_module
from palyra.skills.subject import Ceilings, Subject, Surface
from palyra.skills.version import Version
from palyra.skills.words import described_anew, differences, loosened


def review(subject: Subject, surface: Surface, ceilings: Ceilings) -> tuple[Check, ...]:
    manifest = subject.manifest
    checks: list[Check] = [_compat(manifest, ceilings), _known_bad(subject)]
    for path in manifest.modules:
        sight = subject.modules[path]
        checks += review_module(path, sight, manifest.capabilities, surface, ceilings)
    checks += _requests(manifest, ceilings)
    checks.append(_fuel(subject, ceilings))
    checks += _content(subject)
    checks.append(_difference(subject))
    if subject.previous_key_id and subject.previous_key_id != subject.key_id:
        message = f"Signed by key {subject.key_id}; the version before by {subject.previous_key_id}."
        checks.append(make_check("trust.key", WARN, message))
    return tuple(checks)


def _compat(manifest: SkillManifest, ceilings: Ceilings) -> Check:
    if Version(manifest.min_palyra) > Version(ceilings.palyra):
        return make_check("compat.palyra", FAIL, f"It needs Palyra {manifest.min_palyra}; this is {ceilings.palyra}.")
    return make_check("compat.palyra", PASS, f"Made for Palyra {manifest.min_palyra} and later.")


def _known_bad(subject: Subject) -> Check:
    feed = subject.known_bad
    if feed.unreadable:
        return make_check("feed.known_bad", FAIL, f"The list of known bad skills cannot be used: {feed.unreadable}")
    found = sorted({subject.payload_sha256, *subject.digests.values()} & feed.digests)
    if subject.manifest.publisher in feed.publishers or found:
        what = found or [subject.manifest.publisher]
        return make_check("feed.known_bad", FAIL, "It is on the list of known bad skills.", found=what)
    return make_check("feed.known_bad", PASS, "Neither the publisher nor any file is on the list of known bad skills.")


# ── what is asked for ──


def _requests(manifest: SkillManifest, ceilings: Ceilings) -> Iterator[Check]:
    asked = manifest.capabilities
    forbidden = sorted(tag.value for tag in asked.tags if tag.value not in ceilings.capabilities)
    if forbidden:
        message = "It asks for capabilities that allowed_capabilities does not have."
        yield make_check("capability.ceiling", FAIL, message, capabilities=forbidden)
    else:
        yield _ceiling(asked, ceilings)
    wild = [f"{family}: {item}" for family, item in asked.wildcards]
    if wild:
        message = "It asks for several things under one name; no handle is given for that."
        yield make_check("capability.wildcard", FAIL, message, wildcards=wild[:MAX_SHOWN])
    else:
        yield make_check("capability.wildcard", PASS, "Everything it asks for is named.")
    if asked.device_capabilities:
        message = "It asks for devices, which no guest is given here."
        yield make_check("capability.device", FAIL, message, devices=list(asked.device_capabilities))
    else:
        yield make_check("capability.device", PASS, "It asks for no device.")
    yield _secret_scopes(manifest)


def _fuel(subject: Subject, ceilings: Ceilings) -> Check:
    """The fuel of each module in a call: what it asks for, or its kind's default, and at most what its kind is given
    here. One budget in the manifest means another figure for a component than for a core module."""
    quotas = subject.manifest.capabilities.quotas
    kinds = {path: sight.facts.kind for path, sight in subject.modules.items() if sight.facts is not None}
    wanted = {path: quotas.limits(kind).fuel for path, kind in kinds.items()}
    gets = {path: min(wanted[path], ceilings.fuel_of(kind)) for path, kind in kinds.items()}
    short: dict[str, Json] = {
        path: {"asked": wanted[path], "gets": gets[path]} for path in kinds if gets[path] < wanted[path]
    }
    if short:
        message = "It asks for more fuel than this host gives modules of its kind; it will get less."
        return make_check("capability.fuel", WARN, message, **dict(list(short.items())[:MAX_SHOWN]))
    shown = ", ".join(f"{path} {fuel}" for path, fuel in sorted(gets.items())[:MAX_SHOWN])
    return make_check("capability.fuel", PASS, f"Fuel in each call: {shown or 'none'}.", modules=dict(gets))


def _ceiling(asked: Capabilities, ceilings: Ceilings) -> Check:
    quotas = asked.quotas
    above = {
        "wall_clock_timeout_ms": (quotas.wall_clock_timeout_ms, ceilings.wall_ms),
        "max_memory_bytes": (quotas.max_memory_bytes, ceilings.memory_bytes),
    }
    found = {name: {"asked": a, "most": most} for name, (a, most) in above.items() if a > most}
    if found:
        message = "It asks for more than this host grants; it will get less."
        return make_check("capability.ceiling", WARN, message, **found)
    return make_check("capability.ceiling", PASS, "What it asks for is within what this host grants.")


def _secret_scopes(manifest: SkillManifest) -> Check:
    own = f"{OWN_SCOPE}{manifest.skill_id}"
    others = [one.scope for one in manifest.capabilities.secrets if one.scope != own]
    if others:
        message = "It asks for secrets that are not its own."
        return make_check("capability.secrets", FAIL, message, scopes=others[:MAX_SHOWN])
    raw = [name for one in manifest.capabilities.secrets for name in one.raw_key_names]
    if raw:
        message = "It wants to read the values of secrets, not only to have them added to requests."
        return make_check("capability.secrets", WARN, message, raw_key_names=raw[:MAX_SHOWN])
    return make_check("capability.secrets", PASS, "It asks for no secrets but its own.")


# ── what is in it ──


def _content(subject: Subject) -> Iterator[Check]:
    shapes = subject.asset_secrets + sum(sight.secret_shapes for sight in subject.modules.values())
    if shapes:
        yield make_check("content.secrets", WARN, "Something in it looks like a key or a token.", places=shapes)
    else:
        yield make_check("content.secrets", PASS, "Nothing in it looks like a key or a token.")
    named = sorted({url for sight in subject.modules.values() for url in sight.urls})
    granted = {host.rpartition("//")[2] for host in subject.manifest.capabilities.http_egress_allowlist}
    strange = [url for url in named if url.rpartition("//")[2] not in granted]
    if strange:
        message = "Its modules hold addresses that its capabilities do not name."
        yield make_check("content.urls", WARN, message, urls=strange[:MAX_SHOWN])
    else:
        yield make_check("content.urls", PASS, "Its modules hold no addresses but those it asks for.")


def _difference(subject: Subject) -> Check:
    before = subject.previous
    if before is None:
        return make_check("capability.diff", PASS, "There is no version before this one.")
    asked, removed = differences(before.capabilities, subject.manifest.capabilities)
    added = (*asked, *loosened(before, subject.manifest))
    details: dict[str, Json] = {"from": before.version, "added": list(added), "removed": list(removed)}
    told = described_anew(before, subject.manifest)
    if told:
        details["described_anew"] = list(told)
    if added:
        message = f"It asks for more than version {before.version} did, or asks people less often."
        return make_check("capability.diff", WARN, message, **details)
    if told:
        message = (
            f"It asks for no more than version {before.version} did; agents are told different things about its tools."
        )
        return make_check("capability.diff", WARN, message, **details)
    return make_check("capability.diff", PASS, f"It asks for no more than version {before.version} did.", **details)
