"""What palyra.fs.write and palyra.fs.apply_patch ask for, as changes to files: a new content, a patch, or an undo.

A patch is worked out whole, on the contents as they are now, before anything is changed; every file it touches must
then still be what it was. Undoing wants each file as the change left it.

Not here: carrying changes out (changes), what a patch says (patch).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from palyra.inside import beneath, patch
from palyra.inside.beneath import Refused, shown
from palyra.inside.changes import ABSENT, Change, carry_out, digest, look


def write(root: int, asked: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    content = asked["text"].encode("utf-8") if "text" in asked else _decode(asked["base64"])
    expected = ABSENT if asked.get("create_only") else asked.get("expected_sha256")
    change = Change(beneath.split(asked["path"], request["workspace"]), content, expected=expected)
    carry_out(root, [change], request, make_folders=asked.get("create_dirs", False))
    after = hashlib.sha256(content).hexdigest()
    return {
        "path": asked["path"],
        "created": change.before is None,
        "bytes": len(content),
        "sha256": after,
        "previous_sha256": digest(change.before),
        "before": [_kept(change)],
    }


def apply_patch(root: int, asked: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    if "undo" in request:
        changes = [_undoing(one) for one in request["undo"]]
        offsets: dict[str, list[int]] = {}
    else:
        changes, offsets = _from_patch(root, asked, request)
    carry_out(root, changes, request, make_folders=True)
    files = [
        {
            "path": change.path,
            "change": "deleted" if change.content is None else "created" if change.before is None else "modified",
            "sha256": digest(change.content),
            "previous_sha256": digest(change.before),
            **({"moved_lines": offsets[change.path]} if any(offsets.get(change.path, ())) else {}),
        }
        for change in changes
    ]
    return {"files": files, "before": [_kept(change) for change in changes]}


def _from_patch(root: int, asked: dict[str, Any], request: dict[str, Any]) -> tuple[list[Change], dict[str, list[int]]]:
    changes: list[Change] = []
    offsets: dict[str, list[int]] = {}
    for one in patch.parse(asked["patch"].encode("utf-8")):
        old = _parts(one.old, request) if one.old is not None else None
        new = _parts(one.new, request) if one.new is not None else None
        content, mode = (b"", 0o644) if old is None else look(root, old)
        made, moved = patch.apply(content, one)
        if new is None and made:
            raise Refused(
                "PATCH_FAILED", f"{one.name} is to be deleted, but the patch leaves lines in it.", path=one.name
            )
        expected = ABSENT if old is None else hashlib.sha256(content).hexdigest()
        if new is not None and old is not None and new != old:
            changes.append(Change(old, None, expected=expected))
            expected = ABSENT
        mode = one.mode or mode
        changes.append(Change(new or old or (), None if new is None else made, expected=expected, mode=mode))
        offsets[changes[-1].path] = moved
    return changes, offsets


def _parts(name: bytes, request: dict[str, Any]) -> tuple[bytes, ...]:
    if name.startswith(b"/"):
        raise Refused("OUTSIDE_WORKSPACE", f"{shown(name[:200])}: names in a patch must be relative.", path=shown(name))
    return beneath.split(name.decode("utf-8", "surrogateescape"), request["workspace"])


def _undoing(kept: dict[str, Any]) -> Change:
    parts = tuple(base64.b64decode(kept["name"]).split(b"/"))
    content = None if kept["content"] is None else base64.b64decode(kept["content"])
    return Change(parts, content, expected=kept["after_sha256"] or ABSENT, mode=kept["mode"])


def _kept(change: Change) -> dict[str, Any]:
    """What undoing needs: the file as it was, and what it must be now."""
    return {
        "name": base64.b64encode(b"/".join(change.parts)).decode("ascii"),
        "content": None if change.before is None else base64.b64encode(change.before).decode("ascii"),
        "mode": change.before_mode,
        "after_sha256": digest(change.content),
    }


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise Refused("BAD_CONTENT", "base64 is not base64.") from None
