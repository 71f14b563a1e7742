"""What a model sees of a large result: a head and a tail; the whole is kept as artifacts of the run.

`project` says what would have to be kept, the engine keeps it, `attach` says where it is. What is stored and what is
shown are two things, and the attestation has a digest of each.
"""

from __future__ import annotations

from collections.abc import Mapping

from palyra.canon import Json, canonical
from palyra.model.outcome import INLINE_BYTES, ArtifactRef
from palyra.model.tool import Projection, ToolSpec
from palyra.values import dataclass

HEAD_BYTES = {
    Projection.INLINE_UNLESS_LARGE: 2048,
    Projection.REDACTED_PREVIEW_AND_ARTIFACT: 2048,
    Projection.SUMMARIZE_AND_ARTIFACT: 256,
}
"""Bytes of the beginning, and as many of the end, that stay in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    policy: Projection
    output: Mapping[str, Json]
    overflow: tuple[tuple[str, bytes], ...] = ()
    """(field, whole content); empty when everything stays inline. The field `output` stands for the whole object."""
    shown_bytes: Mapping[str, int]


def project(output: Mapping[str, Json], spec: ToolSpec) -> Projected:
    whole = canonical(output)
    if len(whole) <= INLINE_BYTES:
        return Projected(policy=spec.projection, output=output, shown_bytes={})
    keep = HEAD_BYTES[spec.projection]
    shown: dict[str, Json] = dict(output)
    overflow: list[tuple[str, bytes]] = []
    sizes: dict[str, int] = {}
    for name, value in output.items():
        if isinstance(value, str) and len(data := value.encode("utf-8")) > 2 * keep + 256:
            shown[name] = preview = shorten(data, keep)
            sizes[name] = len(preview.encode("utf-8"))
            overflow.append((name, data))
    if not overflow or len(canonical(shown)) > INLINE_BYTES + 2 * keep:
        preview = shorten(whole, keep)
        return Projected(
            policy=spec.projection,
            output={"preview": preview},
            overflow=(("output", whole),),
            shown_bytes={"output": len(preview.encode("utf-8"))},
        )
    return Projected(policy=spec.projection, output=shown, overflow=tuple(overflow), shown_bytes=sizes)


def attach(projected: Projected, refs: Mapping[str, ArtifactRef]) -> dict[str, Json]:
    """The projected output with where the rest is. A field without a ref could not be kept, and says so."""
    fields: dict[str, Json] = {}
    for name, data in projected.overflow:
        ref = refs.get(name)
        fields[name] = {
            "artifact_id": ref.artifact_id if ref else None,
            "sha256": ref.sha256 if ref else None,
            "size_bytes": len(data),
            "shown_bytes": projected.shown_bytes[name],
        }
    return dict(projected.output) | {"projection": {"policy": projected.policy.value, "fields": fields}}


def shorten(data: bytes, keep: int) -> str:
    """The first and the last `keep` bytes of UTF-8 text, cut between characters, and how much is left out."""
    head = data[:keep].decode("utf-8", "ignore")
    tail = data[-keep:].decode("utf-8", "ignore")
    left_out = len(data) - len(head.encode("utf-8")) - len(tail.encode("utf-8"))
    return f"{head}\n[… {left_out} bytes left out …]\n{tail}"
