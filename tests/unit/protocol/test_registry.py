"""The registry: known tools, near names for unknown ones, no duplicates; every built-in schema is sound."""

from __future__ import annotations

import pytest

from palyra.errors import Reason, Rejected
from palyra.protocol.catalog import BUILTIN_TOOLS
from palyra.protocol.registry import make_registry

REGISTRY = make_registry(BUILTIN_TOOLS)


@pytest.mark.parametrize("spec", BUILTIN_TOOLS, ids=lambda s: s.name)
def test_every_built_in_tool_has_schemas_that_compile(spec):
    tool = REGISTRY.get(spec.name)
    assert tool.input_schema.validator.is_valid({}) in (True, False)
    assert tool.output_schema.schema["type"] == "object"
    assert len(spec.schema_sha256) == 64


def test_an_unknown_tool_names_the_near_one():
    with pytest.raises(Rejected) as caught:
        REGISTRY.get("palyra.proces.run")
    assert caught.value.reason is Reason.UNKNOWN_TOOL
    assert (caught.value.hint or "").startswith("Did you mean palyra.process.run or ")


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"palyra\.echo"):
        make_registry((*BUILTIN_TOOLS, BUILTIN_TOOLS[0]))
