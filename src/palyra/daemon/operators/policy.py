"""`/console/v1/policy`: why a call is decided as it is; the policies in use; what others would decide; using them.

Rules: text is checked whole, in a child process first, before anything changes (wiring/policy_acts); comparing and
replaying only read, and go on beside calls in a thread of their own. Not here: the shapes (policy_models).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import orjson

from palyra.canon import Json
from palyra.daemon.operators.answering import change, get, installed, unusable
from palyra.daemon.operators.policy_models import (
    Bundle,
    Bundles,
    Diff,
    Exempted,
    Exempting,
    Imagined,
    NowInUse,
    Replay,
    Source,
    TakenBack,
    WhichCall,
)
from palyra.daemon.routes import Asked, Refused, not_found
from palyra.engine.runs import Run, RunScope, start_run
from palyra.engine.trip import CallRequest
from palyra.model.call import Door, RequestContext, is_ulid, parse_principal
from palyra.policy.bundle import EXAMPLES_FILE, PolicyBundle
from palyra.policy.examples import parse_examples
from palyra.policy.scan import PolicyError
from palyra.policy.store import load_posture
from palyra.wiring.exceptions import allow_call
from palyra.wiring.exceptions import disallow as take_back
from palyra.wiring.explaining import explain_imagined, explain_recorded
from palyra.wiring.places import resolve_workspace
from palyra.wiring.policy_acts import (
    InUse,
    checked,
    diff_json,
    posture_bundle,
    replay_json,
    roll_back_policies,
    use_policies,
    uses_json,
)

PASTED = "console.cedar"
CURRENT = "current"


async def explain_call(asked: Asked) -> Json:
    if not is_ulid(asked.query.call_id):
        raise Refused(422, "BAD_ARGUMENTS", "That is not the id of a call.", "GET /console/v1/calls lists them.")
    return (await explain_recorded(installed(asked), asked.query.call_id)).as_json()


async def explain_new(asked: Asked) -> Json:
    return await imagine(asked, asked.body)


async def imagine(asked: Asked, body: Imagined) -> dict[str, Json]:
    data = body.input.encode("utf-8", "surrogatepass") if isinstance(body.input, str) else orjson.dumps(body.input)
    request = CallRequest(tool=body.tool, input=data, run=_run(asked, body))
    return (await explain_imagined(installed(asked), request)).as_json()


def _run(asked: Asked, body: Imagined) -> Run:
    ports = installed(asked).ports
    workspace = body.workspace or ports.config.tool_call.process_runner.workspace_root
    return start_run(
        ports.config,
        run_id=ports.ids.ulid(),
        context=RequestContext(principal=parse_principal(body.principal), door=Door.HTTP),
        workspace=resolve_workspace(workspace) if workspace else "",
        now_unix_ms=ports.clock.now_unix_ms(),
        scope=RunScope.CALL,
    )


async def list_bundles(asked: Asked) -> Json:
    installation = installed(asked)
    bundle = installation.policies.current()
    return {
        "bundle": bundle.name,
        "policy_sha256": bundle.digest,
        "version": installation.versions.pointer(),
        "posture": installation.config.posture,
        "stale": bundle.stale or None,
        "items": uses_json(installation),
        "next": None,
    }


async def show_bundle(asked: Asked) -> Json:
    """`current`, a posture, an installed version or a bundle that decided before, by the beginning of its name."""
    name = asked.path["version"]
    try:
        bundle = await asyncio.to_thread(_find_bundle, asked, name)
    except PolicyError as error:
        raise unusable(error, code="POLICY_ERROR") from error
    if bundle is None:
        raise not_found("bundle")
    return bundle_json(bundle)


def _find_bundle(asked: Asked, name: str) -> PolicyBundle | None:
    installation = installed(asked)
    if name == CURRENT:
        return installation.policies.current()
    if name in ("locked", "standard", "developer"):
        return posture_bundle(installation, name)
    version = installation.versions.find(name)
    if version is None:
        return installation.versions.bundle(name)
    return load_posture(installation.config.posture, installation.versions.files(version))


def bundle_json(bundle: PolicyBundle) -> dict[str, Json]:
    return {
        "bundle": bundle.name,
        "policy_sha256": bundle.digest,
        "policies": [
            {"id": p.id, "effect": p.effect, "code": p.code.value if p.code else None, "reason": p.reason,
             "file": p.file, "line": p.line, "text": bundle.text_of(p.id), "lifts": list(p.lifts)}
            for p in bundle.index.values()
        ],
        "examples": [
            {"name": one.name, "expect": one.expect, "code": one.code.value if one.code else None,
             "principal": str(one.request.principal), "tool": one.request.tool,
             "program": str(one.request.context["effective_program"])}
            for one in parse_examples(EXAMPLES_FILE, bundle.examples)
        ],
        "files": bundle.files,
    }  # fmt: skip


async def replay(asked: Asked) -> Json:
    return await replayed(asked, asked.body)


async def diff(asked: Asked) -> Json:
    return await differing(asked, asked.body)


async def replayed(asked: Asked, source: Source) -> Json:
    return await _compare(asked, source, replay_json)


async def differing(asked: Asked, source: Source) -> Json:
    return await _compare(asked, source, diff_json)


async def _compare(asked: Asked, source: Source, by: Any) -> Json:
    try:
        bundle = await asyncio.to_thread(source_bundle, asked, source)
        return await asyncio.to_thread(by, installed(asked), bundle, since_unix_ms=source.since_unix_ms or 0)
    except PolicyError as error:
        raise unusable(error, code="POLICY_ERROR") from error


def source_bundle(asked: Asked, body: Source) -> PolicyBundle:
    installation = installed(asked)
    if body.posture:
        _only(body, "posture")
        return posture_bundle(installation, body.posture)
    return checked(installation, source_files(asked, body))


def source_files(asked: Asked, body: Source) -> Mapping[str, str]:
    versions = installed(asked).versions
    if body.version:
        _only(body, "version")
        version = versions.find(body.version)
        if version is None:
            hint = "GET /console/v1/policy/bundles lists them."
            raise Refused(422, "BAD_ARGUMENTS", "There is no such version.", hint)
        return versions.files(version)
    if body.files:
        _only(body, "files")
        return body.files
    if not body.text.strip():
        raise Refused(422, "BAD_ARGUMENTS", "No policies are given.", "Name a posture or a version, or give text.")
    return {PASTED: body.text}


def _only(body: Source, name: str) -> None:
    given = [field for field in ("posture", "version", "text", "files") if getattr(body, field)]
    if given != [name]:
        raise Refused(422, "BAD_ARGUMENTS", f"Both {' and '.join(given)} are given.", "Give one of them.")


async def use(asked: Asked) -> Json:
    body: Source = asked.body
    if body.posture or body.since_unix_ms is not None:
        raise Refused(422, "BAD_ARGUMENTS", "The posture is the configuration's.", "Set posture in palyra.toml.")
    try:
        return _now(await use_policies(installed(asked), source_files(asked, body), by=asked.caller.principal))
    except PolicyError as error:
        raise unusable(error, code="POLICY_ERROR") from error


async def roll_back(asked: Asked) -> Json:
    try:
        return _now(await roll_back_policies(installed(asked), by=asked.caller.principal))
    except PolicyError as error:
        raise Refused(409, "POLICY_ERROR", error.detail, error.hint) from error


async def allow(asked: Asked) -> Json:
    body: Exempting = asked.body
    if not is_ulid(body.call_id):
        raise Refused(422, "BAD_ARGUMENTS", "That is not the id of a call.", "GET /console/v1/calls lists them.")
    by = asked.caller.principal
    try:
        return await allow_call(installed(asked), body.call_id, body.scope, by=by, dry_run=body.dry_run)
    except PolicyError as error:
        raise Refused(409, "POLICY_ERROR", error.detail, error.hint) from error


async def disallow(asked: Asked) -> Json:
    try:
        done = await take_back(installed(asked), asked.path["id"], by=asked.caller.principal)
    except PolicyError as error:
        raise not_found("exception") from error
    with suppress(PolicyError):  # it is taken back, whatever else is wrong
        installed(asked).policies.look_again()
    return done


def _now(now: InUse) -> dict[str, Json]:
    return {"version": now.version, "policy_sha256": now.bundle.digest, "changed": now.changed}


Explained = dict[str, Json]
ROUTES = (
    get("/policy/explain", explain_call, name="explain_call",
        says="Why a journaled call was decided as it was, and what would allow it.", model=Explained, query=WhichCall),
    change("/policy/explain", explain_new, name="explain_imagined",
           says="The same for a call that has not been made; nothing runs.", model=Explained, body=Imagined),
    get("/policy/bundles", list_bundles, name="list_bundles", says="The policies in use, and every use.",
        model=Bundles),
    change("/policy/bundles/replay", replay, name="replay_policies",
           says="Journaled calls that other policies would decide differently.", model=Replay, body=Source),
    change("/policy/bundles/diff", diff, name="diff_policies", says="What other policies would newly allow, ask "
           "about or deny.", model=Diff, body=Source),
    change("/policy/bundles/use", use, name="use_policies", says="Use these policies from now on.", model=NowInUse,
           body=Source),
    change("/policy/exceptions", allow, name="allow_call", says="Make an exception for a refused call, or with dry_run "
           "say what it would be and change.", model=Exempted, body=Exempting),
    change("/policy/exceptions/{id}", disallow, name="disallow", says="Take an exception back.", model=TakenBack,
           method="DELETE"),
    change("/policy/bundles/rollback", roll_back, name="roll_back_policies", says="Go back to the previous policies.",
           model=NowInUse),
    get("/policy/bundles/{version}", show_bundle, name="show_bundle", says="`current`, a posture or a version: its "
        "policies, files and examples.", model=Bundle),
)  # fmt: skip
