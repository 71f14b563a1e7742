"""docs/reference/policy.md: what policies may speak of, from the schema, and the policies that come with Palyra.

Not here: what any of it means in the whole (docs/spec/policy.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from palyra.policy.store import POSTURES, load_posture, read_posture

_TYPE = re.compile(r"type (\w+) = \{\n(.*?)\n\};", re.DOTALL)
_ATTRIBUTE = re.compile(r"\s*(\w+)(\??): (\w+),?\s*(?://\s*(.*))?$")
_ENTITY = re.compile(r"entity (\w+)(?: in \[(\w+)\])?;\s*(?://\s*(.*))?$")


def make_policy() -> Iterator[str]:
    yield "# Policies"
    yield (
        "What a policy may speak of, from the schema that every bundle is validated against, and the policies of each "
        "posture. How a decision comes about is in [the specification](../spec/policy.md), a first policy in "
        "[the guide](../guide/first-policy.md); `palyra policy show` lists what is in force."
    )
    schema = read_posture("standard")["schema.cedarschema"]
    yield "## Entities"
    yield "\n".join(_entities(schema))
    yield "## Actions"
    actions = re.findall(r'"(tool::[\w-]+)"', schema)
    yield "\n".join(f'- `Action::"{name}"`' for name in actions)
    types = dict(_TYPE.findall(schema))
    yield "## The context"
    yield "Always all of these, each computed by Palyra."
    yield "\n".join(_attributes(types["Call"]))
    yield "## context.input"
    yield (
        "Scalar arguments of the call, where it has them. A policy asks first whether they are there: "
        '`context.input has path && context.input.path like "docs/*"`. Paths come without `.` and `..`, those in the '
        "workspace relative to it; a string longer than 1024 characters makes the decision `POLICY_ERROR`, if a policy "
        "looks at the record."
    )
    yield "\n".join(_attributes(types["Input"]))
    for posture in POSTURES:
        yield f"## Posture {posture}"
        yield "\n".join(_policies(posture))


def _entities(schema: str) -> Iterator[str]:
    yield "| entity | in | |"
    yield "|---|---|---|"
    for line in schema.splitlines():
        found = _ENTITY.match(line)
        if found:
            yield f"| `{found[1]}` | {f'`{found[2]}`' if found[2] else ''} | {_cell(found[3])} |"


def _attributes(body: str) -> Iterator[str]:
    yield "| name | type | |"
    yield "|---|---|---|"
    for line in body.splitlines():
        found = _ATTRIBUTE.match(line)
        if found:
            yield f"| `{found[1]}` | {found[3]} | {_cell(found[4])} |"


def _policies(posture: str) -> Iterator[str]:
    yield "| policy | | reason code | says |"
    yield "|---|---|---|---|"
    for info in load_posture(posture).index.values():
        code = f"`{info.code}`" if info.code else ""
        final = " *(final)*" if info.final else ""
        yield f"| `{info.id}`{final} | {info.effect} | {code} | {_cell(info.reason)} |"


def _cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|")
