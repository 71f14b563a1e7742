"""smolagents: a `PythonExecutor` whose code runs in the sandbox. Extra `palyra[smolagents]`.

    with Palyra.open() as palyra:
        run = palyra.run("agent:coder", "project", grant=grant(interpreters=True))
        agent = CodeAgent(tools=[], model=…, executor=PalyraPythonExecutor(run))

Each step of the agent is one call of `python3`, with what it may keep of the step before: variables that are plain
values, functions and imports by their source. There is no process between steps, so nothing lives on that nobody sees.
Tools run inside as well, from their source, and reach what the sandbox reaches. A refusal is an error the agent reads.
What a step prints and returns comes out as plain text and JSON, never encoded: so it is redacted like any other output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from smolagents.local_python_executor import CodeOutput, PythonExecutor
from smolagents.tools import Tool, get_tools_definition_code

from palyra.adapters.running import Commands
from palyra.api import SyncRun

MARK = "\x1epalyra-smolagents\x1e"

_DRIVER = """
import contextlib, io, json, sys, traceback
order = json.loads(sys.stdin.read())
space = {"__name__": "__main__"}
class FinalAnswer(BaseException):
    pass
def final_answer(answer=None, *rest, **named):
    raise FinalAnswer(answer if not named else next(iter(named.values())))
answer = {"final": False, "output": None, "error": None}
logs = io.StringIO()
def plain(value):
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
def last_value(tree):
    import ast
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        return ast.Expression(tree.body.pop().value)
    return None
with contextlib.redirect_stdout(logs):
    try:
        import ast
        for code in order["before"]:
            exec(compile(code, "<tools>", "exec"), space)
        space.update(order["values"])
        space["final_answer"] = final_answer
        tree = ast.parse(order["code"])
        value = last_value(tree)
        exec(compile(tree, "<agent>", "exec"), space)
        if value is not None:
            shown = eval(compile(value, "<agent>", "eval"), space)
            answer["output"] = shown if plain(shown) else repr(shown)
    except FinalAnswer as final:
        said = final.args[0]
        answer["final"], answer["output"] = True, said if plain(said) else repr(said)
    except BaseException:
        answer["error"] = traceback.format_exc(limit=-4)
kept = {name: value for name, value in space.items() if not name.startswith("_") and plain(value)}
kinds = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
nodes = [] if answer["error"] else ast.parse(order["code"]).body
defined = [ast.unparse(node) for node in nodes if isinstance(node, kinds)]
answer["values"], answer["defined"] = kept, defined
sys.__stdout__.write(logs.getvalue() + order["mark"] + json.dumps(answer))
"""


class PalyraPythonExecutor(PythonExecutor):
    """`wait_s`: how long a step waits for a person, where policy asks for one."""

    def __init__(self, run: SyncRun, *, python: str = "python3", wait_s: float = 0.0) -> None:
        self._commands = Commands(run, wait_s=wait_s)
        self._python = python
        self._tools: list[str] = []
        self._defined: list[str] = []
        self._values: dict[str, Any] = {}

    def send_tools(self, tools: dict[str, Tool]) -> None:
        given = {name: tool for name, tool in tools.items() if name != "final_answer"}
        self._tools = [get_tools_definition_code(given)] if given else []

    def send_variables(self, variables: Mapping[str, Any]) -> None:
        """Plain values only: nothing is pickled into a sandbox, or out of one."""
        for name, value in variables.items():
            json.dumps(value)
            self._values[name] = value

    def __call__(self, code_action: str) -> CodeOutput:
        order = {
            "before": [*self._tools, *self._defined],
            "values": self._values,
            "code": code_action,
            "mark": MARK,
        }
        ran = self._commands.run([self._python, "-c", _DRIVER], stdin=json.dumps(order))
        logs, mark, told = ran.stdout.rpartition(MARK)
        if not mark:
            raise RuntimeError(ran.stderr or f"the step ended with {ran.exit_code}")
        return self._take(json.loads(told), logs)

    def _take(self, answer: Mapping[str, Any], logs: str) -> CodeOutput:
        if answer["error"]:
            raise RuntimeError(f"{logs}\n{answer['error']}")
        self._values |= answer["values"]
        self._defined += answer["defined"]
        return CodeOutput(output=answer["output"], logs=logs, is_final_answer=bool(answer["final"]))

    def cleanup(self) -> None:
        """Nothing runs between steps."""
