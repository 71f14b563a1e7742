"""Projection: a model sees head and tail, nothing is lost, small results are left alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palyra.model.outcome import INLINE_BYTES, ArtifactRef
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.projection import attach, project, shorten
from palyra.protocol.registry import make_registry
from palyra.protocol.schema import check_arguments

RUN = make_registry(BUILTIN_TOOLS).get("palyra.process.run")
OUTPUT = {
    "exit_code": 0, "signal": None, "stdout": "", "stderr": "", "stdout_bytes": 0, "stderr_bytes": 0,
    "truncated": False, "tier": "C", "backend": "bubblewrap",
    "egress": {"mode": "strict", "allowed_hosts": [], "connections": []},
}  # fmt: skip


def ref(name: str) -> ArtifactRef:
    return ArtifactRef(artifact_id="01HF7YAT00000000000000ARTF", sha256="0" * 64, size_bytes=1, name=name)


def test_a_small_result_stays_as_it_is():
    projected = project(OUTPUT | {"stdout": "x" * 5000}, RUN.spec)
    assert (projected.output["stdout"], projected.overflow) == ("x" * 5000, ())


def test_a_large_stream_is_kept_whole_and_shown_in_part():
    whole = "é" * 50_000
    projected = project(OUTPUT | {"stdout": whole}, RUN.spec)
    assert projected.overflow == (("stdout", whole.encode()),)
    shown = attach(projected, {"stdout": ref("stdout")})
    check_arguments(RUN.output_schema, shown)
    assert len(shown["stdout"].encode()) < INLINE_BYTES
    assert shown["projection"]["fields"]["stdout"]["size_bytes"] == 100_000


def test_a_result_that_is_large_without_a_large_string_is_kept_as_json():
    many = {f"k{n}": n for n in range(5000)}
    projected = project(many, BUILTIN_TOOLS[0])
    assert [name for name, _ in projected.overflow] == ["output"]
    assert set(attach(projected, {})) == {"preview", "projection"}


@given(st.text(min_size=300, max_size=2000), st.integers(10, 100))
def test_head_and_tail_are_cut_between_characters(text, keep):
    short = shorten(text.encode("utf-8", "ignore"), keep)
    head, _, rest = short.partition("\n[… ")
    assert text.startswith(head)
    assert text.endswith(rest.partition(" bytes left out …]\n")[2])
