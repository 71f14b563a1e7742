"""smolagents with its code in Palyra's sandbox: a step that runs, one that meets the wall, one that a person approves.

Offline: the model is a script. In a checkout of Palyra: `pip install '.[smolagents]'`
"""

from __future__ import annotations

from typing import Any

from desk import open_desk, operator
from smolagents import CodeAgent
from smolagents.models import ChatMessage, MessageRole, Model

from palyra.adapters.smolagents import PalyraPythonExecutor
from palyra.api import grant

STEPS = [
    "note = open('notes.txt').read()\nprint(note)",
    "print(open('/etc/shadow').read())",
    "final_answer(note.strip().upper())",
]
ASK = """
@id("desk.ask-before-code")
@reason("Code of this agent is for people to decide.")
forbid (principal == Agent::"careful", action == Action::"tool::execute", resource)
when { context.inline_code }
unless { context.approved };
"""


class Scripted(Model):
    def __init__(self, steps: list[str]) -> None:
        super().__init__(model_id="scripted")
        self._steps = iter(steps)

    def generate(self, messages: Any, **options: Any) -> ChatMessage:
        text = f"Thought: next.\n<code>\n{next(self._steps)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


with open_desk(ask=ASK) as (palyra, project), operator(palyra) as approved:
    run = palyra.run("agent:coder", project, grant=grant(interpreters=True))
    agent = CodeAgent(tools=[], model=Scripted(STEPS), executor=PalyraPythonExecutor(run), verbosity_level=0)
    answer = agent.run("What is in my notes?")
    shown = [str(step.observations or step.error) for step in agent.memory.steps if hasattr(step, "observations")]
    for step, output in zip(STEPS, shown, strict=False):
        print(f"{step.splitlines()[0]}: {output!r}"[:160])
    assert answer == "BUY MILK"
    assert "buy milk" in shown[0] and "shadow" in shown[1]

    denied = palyra.run("agent:strict", project)
    refused = CodeAgent(
        tools=[], model=Scripted(STEPS * 9), executor=PalyraPythonExecutor(denied), verbosity_level=0, max_steps=1
    )
    refused.run("What is in my notes?")
    assert any("INTERPRETER_DENIED" in str(getattr(step, "error", "")) for step in refused.memory.steps)

    careful = palyra.run("agent:careful", project, grant=grant(interpreters=True))
    asked = CodeAgent(
        tools=[],
        model=Scripted(["final_answer(6 * 7)"]),
        executor=PalyraPythonExecutor(careful, wait_s=20),
        verbosity_level=0,
    )
    assert asked.run("How much is it?") == 42
    print(f"refused without interpreters; approved: {approved}")
    assert len(approved) == 1
