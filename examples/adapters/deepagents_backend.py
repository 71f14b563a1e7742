"""LangChain deepagents with Palyra as its backend: one command that runs, one that is refused, one that is approved.

Offline: the model is a script. In a checkout of Palyra: `pip install '.[deepagents]'`
"""

from __future__ import annotations

from typing import Any

from deepagents import create_deep_agent
from desk import open_desk, operator
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall, ToolMessage

from palyra.adapters.deepagents import PalyraSandbox
from palyra.api import grant

LINES = ["cat notes.txt", "cat /etc/shadow", "rm old.txt"]


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **options: Any) -> Scripted:
        return self


def steps() -> list[AIMessage]:
    calls = [ToolCall(name="execute", args={"command": line}, id=f"call_{at}") for at, line in enumerate(LINES)]
    write = ToolCall(name="write_file", args={"file_path": "", "content": "tidied\n"}, id="call_w")
    return [*(AIMessage(content="", tool_calls=[call]) for call in (*calls, write)), AIMessage(content="done")]


with open_desk() as (palyra, project), operator(palyra) as approved:
    said = steps()
    said[3].tool_calls[0]["args"]["file_path"] = str(project / "log.txt")
    run = palyra.run("agent:deep", project, grant=grant(interpreters=True))
    agent = create_deep_agent(model=Scripted(messages=iter(said)), backend=PalyraSandbox(run, wait_s=20))
    state = agent.invoke({"messages": [{"role": "user", "content": "Tidy up."}]})
    outputs = [str(message.content) for message in state["messages"] if isinstance(message, ToolMessage)]
    for line, output in zip([*LINES, "write_file"], outputs, strict=True):
        print(f"{line}: {output!r}"[:160])
    print(state["messages"][-1].content)
    assert "buy milk" in outputs[0]
    assert "OUTSIDE_WORKSPACE" in outputs[1]
    assert approved == ["rm"] and not (project / "old.txt").exists()
    assert (project / "log.txt").read_text() == "tidied\n"
