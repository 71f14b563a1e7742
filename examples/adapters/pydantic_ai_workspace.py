"""Pydantic AI with Palyra as its workspace: one command that runs, one that is refused, one that a person approves.

Offline: the model is a script. In a checkout of Palyra: `pip install '.[pydantic-ai]'`
"""

from __future__ import annotations

from desk import open_desk, operator
from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import Workspace

from palyra.adapters.pydantic_ai import PalyraWorkspace

STEPS = [["cat", "notes.txt"], ["cat", "/etc/shadow"], ["rm", "old.txt"]]


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    step = sum(isinstance(message, ModelResponse) for message in messages)
    if step == len(STEPS):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("run", {"command": STEPS[step]})])


agent = Agent(FunctionModel(scripted))
results: list[tuple[int, str]] = []


@agent.tool
async def run(ctx: RunContext[None], command: list[str]) -> str:
    """Run a program in the project."""
    result = await ctx.workspace.run(command)
    results.append((result.exit_code, result.stdout or result.stderr))
    return f"exit code {result.exit_code}\n{result.stdout}{result.stderr}"


with open_desk() as (palyra, project), operator(palyra) as approved:
    backend = PalyraWorkspace(palyra.run("agent:writer", project), wait_s=20)
    print(agent.run_sync("Tidy up.", workspace=Workspace(backend)).output)
    for (code, text), words in zip(results, STEPS, strict=True):
        print(f"{' '.join(words)}: {code}: {text.strip().splitlines()[0] if text else ''}")
    assert results[0] == (0, "buy milk\n")
    assert results[1][0] == 126 and "OUTSIDE_WORKSPACE" in results[1][1]
    assert results[2][0] == 0 and approved == ["rm"] and not (project / "old.txt").exists()
