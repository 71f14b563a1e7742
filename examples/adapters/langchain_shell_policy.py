"""LangChain's shell tool in a sandbox of Palyra's: lines that run, one that meets the wall, a shell that is refused,
and one that a person approves.

Offline: the model is a script. In a checkout of Palyra: `pip install '.[langchain]'`
"""

from __future__ import annotations

from typing import Any

from desk import open_desk, operator
from langchain.agents import create_agent
from langchain.agents.middleware import ShellToolMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from palyra.adapters.langchain_shell import PalyraExecutionPolicy

LINES = ["cat notes.txt", "cat /etc/shadow", "rm old.txt && ls"]
ASK = """
@id("desk.ask-before-a-shell")
@reason("A shell is for people to decide.")
forbid (principal == Agent::"careful", action == Action::"tool::execute", resource)
when { context.program == "bash" }
unless { context.approved };

@id("desk.no-shell")
@reason("This agent gets no shell.")
forbid (principal == Agent::"stranger", action == Action::"tool::execute", resource)
when { context.program == "bash" };
"""


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Scripted:
        return self


def outputs(project: str, policy: PalyraExecutionPolicy) -> list[str]:
    calls = [ToolCall(name="shell", args={"command": line}, id=f"call_{at}") for at, line in enumerate(LINES)]
    said = [*(AIMessage(content="", tool_calls=[call]) for call in calls), AIMessage(content="done")]
    middleware = ShellToolMiddleware(workspace_root=project, execution_policy=policy)
    agent = create_agent(model=Scripted(messages=iter(said)), middleware=[middleware])
    state = agent.invoke({"messages": [{"role": "user", "content": "Tidy up."}]})
    return [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]


with open_desk(ask=ASK) as (palyra, project), operator(palyra) as approved:
    home = str(palyra.installation.home.root)
    shown = outputs(str(project), PalyraExecutionPolicy(principal="agent:shell", home=home))
    for line, output in zip(LINES, shown, strict=True):
        print(f"{line}: {output!r}"[:160])
    assert "buy milk" in shown[0]
    assert "No such file" in shown[1] or "denied" in shown[1]
    assert "notes.txt" in shown[2] and not (project / "old.txt").exists()

    why = ""
    try:
        outputs(str(project), PalyraExecutionPolicy(principal="agent:stranger", home=home))
    except RuntimeError as error:
        why = str(error)
    print(f"refused: {why}"[:160])
    assert "POLICY_DENIED" in why

    (project / "old.txt").write_text("again\n")
    (project / "old.txt").chmod(0o666)
    careful = PalyraExecutionPolicy(principal="agent:careful", home=home, wait_s=20)
    shown = outputs(str(project), careful)
    print(f"approved: {approved}")
    assert "buy milk" in shown[0] and approved == ["bash"]
