"""Two acts of `palyra demo` that need more than one call: a person who is asked, and a WebAssembly skill.

Each is what the commands do (`approvals approve`; `skills new | build | install --tofu | enable`), in the demo's own
home. Without the extra `skills` nothing can be packed: that act says so and is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from palyra.api import Palyra
    from palyra.model.outcome import Outcome

Tell = Callable[[str], None]
SKILL_ID, PERSON, AGENT = "demo.echo", "user:demo", "agent:demo"
ASKING = """\
@id("demo.ask-before-deleting")
@reason("Deleting needs a person's approval.")
forbid (principal, action == Action::"tool::execute", resource in ToolGroup::"process")
when { context.effective_program == "rm" }
unless { context.approved };
"""


def write_policy(home: Path) -> None:
    (home / "policies").mkdir(mode=0o700, parents=True)
    (home / "policies" / "demo.cedar").write_text(ASKING, encoding="utf-8")


def ask_a_person(palyra: Palyra, workspace: str, tell: Tell) -> list[Outcome]:
    """Asked, approved by somebody else than who asked, repeated."""
    tell("\n• What policy asks about waits for a person\n    $ rm notes.txt")
    run, call = palyra.run(AGENT, workspace), {"command": "rm", "args": ["notes.txt"]}
    waiting = run.call("palyra.process.run", call)
    tell(f"    → {waiting.status.value}: {waiting.message}")
    if waiting.approval is None:
        return [waiting]
    approval_id = str(waiting.approval["approval_id"])
    tell(f"    $ palyra approvals approve {approval_id}    (a person, who is not the agent)")
    palyra.approvals.approve(approval_id, by=PERSON)
    done = run.call("palyra.process.run", call)
    tell(f"    → the same call again: {done.status.value}")
    return [waiting, done]


def run_a_skill(palyra: Palyra, base: Path, tell: Tell) -> list[Outcome]:
    """Written, built in a sandbox, signed, trusted, enabled, called. Empty where it cannot be packed."""
    tell("\n• A WebAssembly skill runs with nothing but what was granted to it: here nothing")
    if find_spec("cyclonedx") is None:
        tell("    skipped: packing a skill needs an extra. In a checkout of Palyra: pip install '.[skills]'")
        return []
    assert palyra._thread is not None
    palyra._thread.wait_for(_install(palyra, base / SKILL_ID))
    tell(f"    $ palyra skills new {SKILL_ID}; … build; … install --tofu; … enable")
    tell(f'    $ palyra call {SKILL_ID} \'{{"say": "hello"}}\'')
    done = palyra.run(AGENT, str(base / "workspace")).call(SKILL_ID, {"say": "hello"})
    tell(f"    | {orjson.dumps(done.output.get('result')).decode()}")
    tell(f"    → {done.status.value}, by {done.attestation['executor']}")
    return [done]


async def _install(palyra: Palyra, folder: Path) -> None:
    from palyra.config.load import user_home
    from palyra.skills.languages import Language
    from palyra.skills.scaffold import project_files
    from palyra.skills.templates.load import read_templates
    from palyra.wiring.skill_building import build_project
    from palyra.wiring.skill_keys import publisher_key
    from palyra.wiring.skill_projects import write_project
    from palyra.wiring.skill_workshop import Workshop

    here = palyra.installation
    write_project(folder, project_files(SKILL_ID, Language.WAT, templates=read_templates("wat"), sdk={}))
    workshop = Workshop(here.executor, here.host, path=(), user_home=user_home())
    built = await build_project(folder, workshop, lambda publisher: publisher_key(here.home, publisher)[0])
    await here.skills.install(built.path.read_bytes(), by=PERSON, tofu=True)
    await here.skills.enable(SKILL_ID, by=PERSON)
