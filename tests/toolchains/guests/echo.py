# mypy: ignore-errors
"""The same JSON out, read and written again; an object with `fail` is an err."""

import json

import wit_world
from componentize_py_types import Err


class WitWorld(wit_world.WitWorld):
    def run(self, input: str) -> str:
        value = json.loads(input)
        if isinstance(value, dict) and "fail" in value:
            raise Err(str(value["fail"]))
        return json.dumps(value)
