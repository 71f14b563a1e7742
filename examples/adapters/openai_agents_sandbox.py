"""OpenAI Agents with Palyra as its sandbox: one command that runs, one that is refused, one that a person approves.

Offline: the model is the SDK's own scripted one. In a checkout of Palyra: `pip install '.[openai-agents]'`
"""

from __future__ import annotations

import asyncio
import json

from agents import RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.testing import ScriptedModel, assistant_message, function_call
from desk import open_desk, operator

from palyra.adapters.openai_agents import PalyraSandboxClient
from palyra.api import grant

LINES = ["cat notes.txt", "cat /etc/shadow", "rm old.txt"]


async def main() -> None:
    with open_desk() as (palyra, project), operator(palyra) as approved:
        steps = [
            [function_call("exec_command", json.dumps({"cmd": line, "yield_time_ms": 30000}), call_id=f"call_{number}")]
            for number, line in enumerate(LINES)
        ]
        model = ScriptedModel([*steps, [assistant_message("done")]])
        client = PalyraSandboxClient(palyra, grant=grant(interpreters=True), wait_s=20)
        agent = SandboxAgent(
            name="Tidy", instructions="Tidy up.", model=model, default_manifest=Manifest(root=str(project))
        )
        config = RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
        result = await Runner.run(agent, "Tidy up.", run_config=config)
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        for line, output in zip(LINES, outputs, strict=True):
            print(f"{line}: {output!r}"[:160])
        print(result.final_output)
        assert "buy milk" in outputs[0]
        assert "OUTSIDE_WORKSPACE" in outputs[1]
        assert "rm" in approved and not (project / "old.txt").exists()


asyncio.run(main())
